//! Listing, removing, exporting, verifying and collecting garbage.

mod common;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;

use common::{Built, Layer, Packing, Place, name};
use turnjail_images::{BUILTIN, ExportFormat, Image, ImageConfig, ImportOptions, Source};

fn layers() -> [Layer; 2] {
    [
        Layer::new()
            .file("bin/tool", 0o755, b"tool")
            .symlink("link", "bin/tool")
            .directory("d", 0o755),
        Layer::new().file("data", 0o644, b"data"),
    ]
}

fn import(place: &Place, as_name: &str, packing: Packing) -> Image {
    let config = ImageConfig {
        entrypoint: vec!["/bin/tool".to_owned()],
        labels: [("roundtable.sandbox.protocol".to_owned(), "2".to_owned())].into(),
        ..ImageConfig::default()
    };
    let built = Built::new(&config, &layers(), packing);
    let path = place.write("archive", &built.oci_archive("x"));
    let imported =
        place.store.import(Source::Path(path), &name(as_name), &ImportOptions::default());
    imported.expect("imported").image
}

#[test]
fn what_is_there_is_listed_and_shown() {
    let place = Place::new();
    let image = import(&place, "me/tool:1", Packing::Gzip);
    let list = place.store.list().expect("a list");
    assert!(list[0].builtin && list[0].reference.to_string() == "turnjail-worker:latest");
    assert_eq!(
        (list[1].reference.to_string(), list[1].protocol),
        ("me/tool:1".to_owned(), Some(2))
    );
    assert!(list[1].in_use && !list[0].in_use);
    drop(image);
    assert!(!place.store.list().expect("a list")[1].in_use);
    let shown = place.store.inspect("me/tool:1").expect("shown");
    assert_eq!(shown["RepoTags"][0], "me/tool:1");
    assert_eq!(shown["Config"]["Labels"]["roundtable.sandbox.protocol"], "2");
    assert_eq!(shown["Turnjail"]["Protocol"], 2);
    assert_eq!(shown["RootFS"]["Layers"].as_array().map(Vec::len), Some(2));
    let builtin = place.store.inspect(BUILTIN).expect("shown");
    assert_eq!(builtin["Turnjail"]["Profile"], "sealed");
    assert_eq!(builtin["Id"], turnjail_images::builtin_digest());
    assert_eq!(place.store.inspect("absent").expect_err("absent").code(), "image-absent");
}

#[test]
fn an_image_in_use_is_not_removed_unless_forced() {
    let place = Place::new();
    let image = import(&place, "tool:1", Packing::None);
    let other_process = place.again();
    assert_eq!(other_process.remove("tool:1", false).expect_err("in use").code(), "image-in-use");
    assert!(image.rootfs.join("bin/tool").exists());
    // Another name of it can go, since the image stays.
    import(&place, "tool:2", Packing::None);
    assert_eq!(other_process.remove("tool:2", false).expect("untagged").deleted, None);
    let clone = image.clone();
    drop(image);
    assert!(other_process.remove("tool:1", false).is_err(), "a copy holds it too");
    drop(clone);
    assert!(other_process.remove("tool:1", false).expect("removed").deleted.is_some());
    let image = import(&place, "tool:1", Packing::None);
    assert!(other_process.remove("tool:1", true).expect("forced").deleted.is_some());
    assert!(!image.rootfs.exists());
    assert!(place.store.resolve("tool:1").is_err());
    assert_eq!(fs::read_dir(place.dir().join("blobs/sha256")).expect("blobs").count(), 0);
    assert!(place.store.remove(BUILTIN, true).is_err(), "the worker is always there");
    assert_eq!(place.store.remove("tool:1", false).expect_err("gone").code(), "image-absent");
}

#[test]
fn an_exported_image_is_the_same_image_again() {
    let place = Place::new();
    for packing in [Packing::None, Packing::Gzip, Packing::Zstd] {
        let digest = import(&place, "me/tool:1", packing).digest;
        for format in [ExportFormat::Oci, ExportFormat::Docker] {
            let mut bytes = Vec::new();
            place.store.export("me/tool:1", format, &mut bytes).expect("exported");
            let mut again = Vec::new();
            place.store.export("me/tool:1", format, &mut again).expect("exported");
            assert!(bytes == again, "the same bytes every time");
            let other = Place::new();
            let path = other.write("archive", &bytes);
            let options = ImportOptions::default();
            let imported = other.store.import(Source::Path(path.clone()), &name("x"), &options);
            assert_eq!(imported.expect("imported").image.digest, digest);
            let loaded = other.store.load(Source::Path(path), &options).expect("loaded");
            assert_eq!(loaded[0].name.to_string(), "me/tool:1");
        }
    }
}

#[test]
fn the_builtin_worker_can_be_exported_and_is_the_same_elsewhere() {
    let place = Place::new();
    let mut bytes = Vec::new();
    place.store.export(BUILTIN, ExportFormat::Docker, &mut bytes).expect("exported");
    let path = place.write("archive", &bytes);
    let imported =
        place.store.import(Source::Path(path), &name("worker"), &ImportOptions::default());
    let image = imported.expect("imported").image;
    assert_eq!(image.digest, turnjail_images::builtin_digest());
    assert_eq!(image.config.protocol(), Some(2));
    let worker = |rootfs: &std::path::Path| fs::read(rootfs.join("worker")).expect("the worker");
    let builtin = place.store.resolve(BUILTIN).expect("built in");
    assert!(worker(&image.rootfs) == worker(&builtin.rootfs));
}

#[test]
fn a_damaged_blob_is_never_exported() {
    let place = Place::new();
    import(&place, "tool", Packing::Gzip);
    for path in fs::read_dir(place.dir().join("blobs/sha256")).expect("blobs") {
        let path = path.expect("one").path();
        let good = fs::read(&path).expect("a blob");
        let mut bad = good.clone();
        bad[0] ^= 1;
        fs::write(&path, bad).expect("damaged");
        let result = place.again().export("tool", ExportFormat::Oci, &mut Vec::new());
        assert!(result.is_err(), "{}", path.display());
        fs::write(&path, good).expect("mended");
    }
    place.again().export("tool", ExportFormat::Oci, &mut Vec::new()).expect("mended");
}

#[test]
fn every_difference_is_found_and_importing_again_mends_it() {
    let place = Place::new();
    let image = import(&place, "tool", Packing::Gzip);
    place.store.resolve(BUILTIN).expect("built in");
    let verified = place.store.verify().expect("verified");
    assert!(verified.differences.is_empty(), "{:?}", verified.differences);
    assert_eq!((verified.images, verified.blobs), (2, 4));
    let root = image.rootfs.clone();
    drop(image);
    let at = |name: &str| root.join(name);
    let first_blob = || {
        fs::read_dir(place.dir().join("blobs/sha256"))
            .expect("blobs")
            .next()
            .expect("one")
            .expect("one")
            .path()
    };
    let damages: [(&str, &str, &dyn Fn()); 9] = [
        ("another byte", "another content", &|| fs::write(at("data"), b"dat!").expect("written")),
        ("a longer file", "5 bytes", &|| fs::write(at("data"), b"data!").expect("written")),
        ("a missing file", "is missing", &|| fs::remove_file(at("data")).expect("removed")),
        ("a new file", "should not be there", &|| fs::write(at("d/new"), b"").expect("written")),
        ("permissions", "0777", &|| {
            fs::set_permissions(at("bin/tool"), Permissions::from_mode(0o777)).expect("chmod");
        }),
        ("a directory's permissions", "0700", &|| {
            fs::set_permissions(at("d"), Permissions::from_mode(0o700)).expect("chmod");
        }),
        ("a link's target", "leads elsewhere", &|| {
            fs::remove_file(at("link")).expect("removed");
            std::os::unix::fs::symlink("/bin/sh", at("link")).expect("a link");
        }),
        ("a directory for a link", "should be a directory", &|| {
            fs::remove_dir(at("workspace")).expect("removed");
            std::os::unix::fs::symlink("/", at("workspace")).expect("a link");
        }),
        ("a blob", "content", &|| fs::write(first_blob(), b"{}").expect("written")),
    ];
    for (damage, found, act) in damages {
        act();
        let differences = place.again().verify().expect("verified").differences;
        let said = differences.iter().any(|difference| difference.what.contains(found));
        assert!(said, "{damage}: {differences:?}");
        drop(import(&place, "tool", Packing::Gzip));
        let differences = place.again().verify().expect("verified").differences;
        assert!(differences.is_empty(), "{damage}, mended: {differences:?}");
    }
}

#[test]
fn garbage_is_what_no_name_leads_to_and_nobody_uses() {
    let place = Place::new();
    let image = import(&place, "tool", Packing::None);
    place.store.resolve(BUILTIN).expect("built in");
    assert_eq!(place.store.gc().expect("collected").roots, 0);
    // The name moves on; the image is still in use.
    import(&place, "tool", Packing::Zstd);
    fs::create_dir(place.dir().join("staging/dead")).expect("a directory");
    fs::create_dir(place.dir().join("roots").join("f".repeat(64))).expect("an older worker's root");
    let freed = place.store.gc().expect("collected");
    assert_eq!((freed.roots, freed.kept_in_use, freed.left_over), (1, 1, 1));
    assert!(image.rootfs.exists() && freed.blobs >= 3 && freed.blob_bytes > 0);
    drop(image);
    assert_eq!(place.store.gc().expect("collected").roots, 1);
    let verified = place.store.verify().expect("verified");
    assert!(verified.differences.is_empty() && verified.unreferenced == 0, "{verified:?}");
    assert!(place.store.resolve("tool").is_ok() && place.store.resolve(BUILTIN).is_ok());
}
