//! Hostile archives: each rule with an archive that breaks it. Nothing is kept of any, and nothing beside
//! the store is touched.

mod common;

use std::fs;
use std::os::unix::fs::FileTypeExt as _;

use common::{Layer, Place, name, pax_records};
use turnjail_images::{Format, ImageError, ImportOptions, Imported, Source};

/// A store with a directory beside it that no archive may reach.
struct Trial {
    place: Place,
}

impl Trial {
    fn new() -> Self {
        let place = Place::new();
        let outside = place.scratch("outside");
        fs::write(outside.join("file"), b"precious").expect("a file");
        place.store.resolve("turnjail-worker").expect("an image that is trusted");
        Self { place }
    }

    fn import(&self, layers: &[Layer]) -> Result<Imported, ImageError> {
        let built = common::Built::new(
            &turnjail_images::ImageConfig::default(),
            layers,
            common::Packing::None,
        );
        self.attempt(&built.oci_archive("hostile"), &ImportOptions::default())
    }

    /// Imports, and looks that whatever came of it stayed in the store.
    fn attempt(&self, archive: &[u8], options: &ImportOptions<'_>) -> Result<Imported, ImageError> {
        let path = self.place.write("archive", archive);
        let store = self.place.dir();
        let before = common::snapshot(self.place.outside(), &store);
        let result = self.place.store.import(Source::Path(path), &name("hostile"), options);
        assert_eq!(
            before,
            common::snapshot(self.place.outside(), &store),
            "only the store changed"
        );
        assert_eq!(self.place.staged(), 0, "nothing is left half made");
        if result.is_err() {
            assert!(self.place.store.resolve("hostile").is_err(), "nothing has the name");
            assert_eq!(fs::read_dir(store.join("roots")).expect("roots").count(), 1);
            let blobs = fs::read_dir(store.join("blobs/sha256")).map_or(0, Iterator::count);
            assert_eq!(blobs, 0, "no blob was kept");
        }
        result
    }

    /// Imports layers that must be refused, for a reason that names what is wrong.
    fn refused(&self, layers: &[Layer], reason: &str) {
        let error = self.import(layers).expect_err(reason);
        assert_eq!(error.code(), "image-refused", "{error}");
        assert!(error.to_string().contains(reason), "{reason}: {error}");
        assert!(!error.to_string().chars().any(char::is_control), "{error:?}");
    }
}

fn layer() -> Layer {
    Layer::new()
}

#[test]
fn a42_names_that_lead_out_are_refused() {
    let trial = Trial::new();
    let outside = trial.place.outside().join("outside/file").display().to_string();
    for (layer, reason) in [
        (layer().file("/etc/passwd", 0o644, b"x"), "absolute"),
        (layer().file(&outside, 0o644, b"x"), "absolute"),
        (layer().file("a/../../outside/file", 0o644, b"x"), "upwards"),
        (layer().file("../outside/file", 0o644, b"x"), "upwards"),
        (layer().directory("..", 0o777), "upwards"),
        (layer().pax(&[("path", "a\0b")]).file("a", 0o644, b"x"), "NUL"),
        (layer().pax(&[("path", "")]).file("a", 0o644, b"x"), "empty"),
        (layer().pax(&[("path", "/a")]).file("a", 0o644, b"x"), "absolute"),
        (
            layer().entry(b'L', "././@LongLink", 0o644, "", b"../a\0").file("a", 0o644, b"x"),
            "upwards",
        ),
        (layer().file("", 0o644, b"x"), "empty"),
        (layer().file(".", 0o644, b"x"), "root must be a directory"),
        (layer().symlink("./", "/"), "root must be a directory"),
    ] {
        trial.refused(&[layer], reason);
    }
}

#[test]
fn a42_links_are_never_followed() {
    let trial = Trial::new();
    let outside = trial.place.outside().join("outside").display().to_string();
    let one = "link or file in this layer";
    trial.refused(&[layer().symlink("a", &outside).file("a/file", 0o644, b"x")], one);
    trial.refused(
        &[layer().symlink("a", "b").symlink("b", &outside).file("a/file", 0o644, b"x")],
        one,
    );
    trial.refused(&[layer().symlink("a", "..").directory("a/b", 0o755)], one);
    trial.refused(&[layer().symlink("a", &outside).hard_link("b", "a/file")], "not there");
    let absolute = format!("{outside}/file");
    trial.refused(&[layer().hard_link("a", &absolute).file("a", 0o644, b"x")], "absolute");
    trial.refused(&[layer().hard_link("a", "../outside/file")], "upwards");
    trial.refused(&[layer().hard_link("a", "a")], "itself");
    trial.refused(&[layer().directory("d", 0o755).hard_link("a", "d")], "hard link to a directory");
    trial.refused(&[layer().hard_link("a", "later").file("later", 0o644, b"x")], "not there");
    trial.refused(
        &[layer().directory("d", 0o755).file("d/f", 0o644, b"x"), layer().hard_link("d", "d/f")],
        "what it replaces",
    );
}

#[test]
fn a42_a_lower_layers_link_is_replaced_and_not_followed() {
    let trial = Trial::new();
    let outside = trial.place.outside().join("outside").display().to_string();
    let lower = layer()
        .symlink("a", &outside)
        .symlink("b", &outside)
        .symlink("c", &format!("{outside}/file"));
    let upper = layer().file("a/file", 0o644, b"in").directory("b", 0o777).file("c", 0o644, b"in");
    let root = trial.import(&[lower, upper]).expect("imported").image.rootfs;
    assert_eq!(fs::read(root.join("a/file")).expect("a file"), b"in");
    assert!(fs::symlink_metadata(root.join("b")).expect("there").is_dir());
    assert!(fs::symlink_metadata(root.join("c")).expect("there").is_file());
}

#[test]
fn a42_rewriting_a_hard_links_name_leaves_its_target_alone() {
    let trial = Trial::new();
    let lower = layer().file("target", 0o644, b"old").hard_link("name", "target");
    let upper = layer().file("name", 0o600, b"new");
    let root = trial.import(&[lower, upper]).expect("imported").image.rootfs;
    assert_eq!(fs::read(root.join("target")).expect("a file"), b"old");
    assert_eq!(fs::read(root.join("name")).expect("a file"), b"new");
}

#[test]
fn a43_a_directory_entry_does_not_change_what_a_link_leads_to() {
    let trial = Trial::new();
    let outside = trial.place.outside().join("outside").display().to_string();
    trial.refused(&[layer().symlink("a", &outside).directory("a", 0o777)], "twice");
    let root = trial
        .import(&[layer().symlink("a", &outside), layer().directory("a", 0o777)])
        .expect("imported")
        .image
        .rootfs;
    assert!(fs::symlink_metadata(root.join("a")).expect("there").is_dir());
}

#[test]
fn a43_whiteouts_hide_lower_layers_and_nothing_else() {
    let trial = Trial::new();
    let outside = trial.place.outside().join("outside").display().to_string();
    let link = layer().symlink("a", &outside);
    trial.refused(&[link.clone(), layer().whiteout("a/file")], "below a link");
    trial.refused(&[link, layer().opaque("a")], "below a link");
    for odd in [".wh.", ".wh..", ".wh...", "a/.wh.", "a/.wh..", ".wh..wh.plnk"] {
        trial.refused(&[layer().file(odd, 0o644, b"")], "whiteout of nothing");
    }
    trial.refused(&[layer().directory(".wh.a", 0o755)], "whiteout and is no empty file");
    trial.refused(&[layer().symlink(".wh.a", "/")], "whiteout and is no empty file");
    trial.refused(&[layer().file(".wh.a", 0o644, b"x")], "whiteout and is no empty file");
    trial.refused(&[layer().file(".wh.a/b", 0o644, b"x")], "directory with the name of a whiteout");
    trial.refused(&[layer().whiteout("a").whiteout("a")], "twice");
    let lower = layer()
        .file("d/old", 0o644, b"1")
        .file("d/kept/deep", 0o644, b"1")
        .file("gone", 0o644, b"1");
    // Whatever their order, and a mount point may be hidden and is there again.
    let upper = layer()
        .file("d/new", 0o644, b"2")
        .opaque("d")
        .file("d/kept/mine", 0o644, b"2")
        .whiteout("gone")
        .whiteout("absent")
        .whiteout("workspace")
        .whiteout("proc");
    let root = trial.import(&[lower, upper]).expect("imported").image.rootfs;
    assert!(!root.join("d/old").exists() && !root.join("gone").exists());
    assert!(!root.join("d/kept/deep").exists() && root.join("d/kept/mine").exists());
    assert!(root.join("d/new").exists() && root.join("workspace").is_dir());
}

#[test]
fn a43_what_a_layer_hides_and_puts_there_again_is_its_own() {
    let trial = Trial::new();
    let lower = layer().file("f", 0o644, b"old").directory("d", 0o700).file("d/old", 0o644, b"old");
    let upper = layer().file("f", 0o644, b"new").whiteout("f").directory("d", 0o755).whiteout("d");
    let root = trial.import(&[lower, upper]).expect("imported").image.rootfs;
    assert_eq!(fs::read(root.join("f")).expect("a file"), b"new");
    assert_eq!(fs::read_dir(root.join("d")).expect("a directory").count(), 0);
}

#[test]
fn duplicate_names_in_a_layer_are_refused() {
    let trial = Trial::new();
    let file = || layer().file("a", 0o644, b"1");
    for (layer, reason) in [
        (file().file("a", 0o644, b"2"), "twice"),
        (file().file("./a", 0o644, b"2"), "twice"),
        (file().symlink("a", "b"), "twice"),
        (file().directory("a", 0o755), "twice"),
        (file().hard_link("b", "a").file("b", 0o644, b"2"), "twice"),
        (layer().directory("d", 0o755).directory("d", 0o755), "twice"),
        (layer().directory(".", 0o755).directory(".", 0o755), "twice"),
        (layer().file("d/f", 0o644, b"1").file("d", 0o644, b"2"), "twice"),
        (file().file("a/b", 0o644, b"2"), "link or file in this layer"),
    ] {
        trial.refused(&[layer], reason);
    }
}

#[test]
fn what_two_readers_would_understand_differently_is_refused() {
    let trial = Trial::new();
    let file = |records: &[(&str, &str)]| layer().pax(records).file("a", 0o644, b"x");
    for (layer, reason) in [
        (file(&[("size", "512")]), "disagree about its size"),
        (file(&[("size", "0")]), "disagree about its size"),
        (file(&[("size", "1"), ("size", "1")]), "twice"),
        (file(&[("GNU.sparse.major", "1"), ("GNU.sparse.minor", "0")]), "sparse"),
        (file(&[("GNU.sparse.realsize", "9223372036854775807")]), "sparse"),
        (file(&[("UNKNOWN.key", "1")]), "unknown key"),
        (
            layer().pax(&[("path", "b")]).pax(&[("path", "c")]).file("a", 0o644, b"x"),
            "two extended",
        ),
        (layer().pax(&[("path", "b")]), "ends after a header"),
        (layer().entry(b'g', "pax", 0o644, "", &pax_records(&[("path", "b")])), "global"),
        (layer().entry(b'S', "a", 0o644, "", b"x"), "sparse"),
        (layer().entry(b'D', "a", 0o644, "", b""), "unknown type"),
        (layer().entry(b'5', "a/", 0o755, "", b"content"), "content and is no file"),
        (layer().entry(b'2', "a", 0o755, "b", b"content"), "content and is no file"),
        (
            layer().file("b", 0o644, b"x").entry(b'1', "a", 0o755, "b", b"content"),
            "content and is no file",
        ),
        (layer().file("a/", 0o644, b"x"), "name of a directory"),
        (layer().symlink("a", ""), "link to nothing"),
        (
            layer()
                .pax(&[("path", "b")])
                .entry(b'L', "long", 0o644, "", b"c\0")
                .file("a", 0o644, b"x"),
            "disagree",
        ),
        (layer().raw(b'0', b"a", 0o644, b"", u64::from(u32::MAX), b"x"), "ends"),
        (layer().entry(b'x', "pax", 0o644, "", b"nonsense"), "malformed"),
        (layer().raw(b'x', b"pax", 0o644, b"", 1 << 30, b""), "bytes, and"),
        (layer().raw(b'L', b"long", 0o644, b"", 1 << 30, b""), "bytes, and"),
    ] {
        trial.refused(&[layer], reason);
    }
}

#[test]
fn what_follows_the_end_of_an_archive_is_refused() {
    let trial = Trial::new();
    let mut hidden = layer().file("a", 0o644, b"x").build();
    hidden.extend(layer().file("hidden", 0o4755, b"x").build());
    let options = ImportOptions { format: Format::Rootfs, ..ImportOptions::default() };
    let error = trial.attempt(&hidden, &options).expect_err("refused");
    assert!(error.to_string().contains("follows the end"), "{error}");
    let mut padded = layer().file("a", 0o644, b"x").build();
    padded.resize(20 * 512, 0);
    trial.attempt(&padded, &options).expect("zeros are how archives are padded");
}

#[test]
fn damaged_archives_are_refused() {
    let trial = Trial::new();
    let options = ImportOptions { format: Format::Rootfs, ..ImportOptions::default() };
    let good = layer().file("a", 0o644, &[7; 2000]).build();
    let mut checksum = good.clone();
    checksum[150] ^= 1;
    let mut gzip = common::gzip(&good);
    let half = gzip.len() / 2;
    let cut_gzip = gzip[..half].to_vec();
    gzip[half] ^= 0xff;
    let zstd = common::zstd(&good);
    let cut_zstd = zstd[..zstd.len() / 2].to_vec();
    let xz = b"\xfd7zXZ\0 and so on".to_vec();
    let nested = common::gzip(&common::gzip(&good));
    for archive in
        [checksum, good[..1500].to_vec(), gzip, cut_gzip, cut_zstd, xz, nested, vec![b'x'; 5000]]
    {
        let error = trial.attempt(&archive, &options).expect_err("refused");
        assert_eq!(error.code(), "image-refused", "{error}");
    }
}

#[test]
fn a48_devices_and_pipes_are_counted_and_never_made() {
    let trial = Trial::new();
    let layer = layer()
        .entry(b'3', "dev/null", 0o666, "", b"")
        .entry(b'4', "dev/sda", 0o660, "", b"")
        .entry(b'6', "pipe", 0o644, "", b"")
        .pax(&[("SCHILY.xattr.security.capability", "\u{1}"), ("SCHILY.acl.access", "user::rwx")])
        .file("capable", 0o7777, b"x")
        .directory("sticky", 0o1777);
    let imported = trial.import(&[layer]).expect("imported");
    let skipped = imported.skipped;
    assert_eq!((skipped.devices, skipped.fifos), (2, 1));
    assert_eq!((skipped.attributes, skipped.set_id_bits), (2, 1));
    let root = &imported.image.rootfs;
    assert!(fs::symlink_metadata(root.join("pipe")).is_err());
    let mut left = vec![root.clone()];
    while let Some(path) = left.pop() {
        let found = fs::symlink_metadata(&path).expect("metadata");
        let kind = found.file_type();
        assert!(!kind.is_fifo() && !kind.is_char_device() && !kind.is_block_device());
        let mode = std::os::unix::fs::PermissionsExt::mode(&found.permissions());
        assert_eq!(mode & 0o7000, 0, "{}", path.display());
        if kind.is_dir() {
            left.extend(
                fs::read_dir(&path).expect("a list").map(|entry| entry.expect("one").path()),
            );
        }
    }
}

#[test]
fn a48_configurations_that_no_program_can_be_started_with_are_refused() {
    let trial = Trial::new();
    let with = |env: &str, entrypoint: &str| turnjail_images::ImageConfig {
        env: vec![env.to_owned()],
        entrypoint: vec![entrypoint.to_owned()],
        ..turnjail_images::ImageConfig::default()
    };
    for config in
        [with("A\0=b", "/x"), with("novalue", "/x"), with("=x", "/x"), with("A=b", "/x\0y")]
    {
        let built = common::Built::new(&config, &[layer()], common::Packing::None);
        let error = trial.attempt(&built.oci_archive("x"), &ImportOptions::default());
        assert_eq!(error.expect_err("refused").code(), "image-refused");
    }
    let harmless = with("LD_PRELOAD=/evil.so", "--bind");
    let built = common::Built::new(&harmless, &[layer()], common::Packing::None);
    let imported = trial.attempt(&built.oci_archive("x"), &ImportOptions::default());
    assert_eq!(imported.expect("data is data").image.config.entrypoint, ["--bind"]);
}

#[test]
fn r30_what_an_ordinary_image_has_that_needs_root_becomes_the_users() {
    let trial = Trial::new();
    let long = "n".repeat(255);
    let lower = layer()
        .directory("closed", 0o500)
        .file("closed/later", 0o000, b"1")
        .file("shared", 0o644, b"shared")
        .pax(&[("uid", "70000"), ("gid", "70000"), ("path", &long)])
        .file("a", 0o644, b"x")
        .symlink("etc/resolv.conf", "/run/resolv.conf");
    let upper = layer()
        .file("closed/later", 0o000, b"2")
        .file("closed/new", 0o600, b"3")
        .hard_link("mine", "shared");
    let imported = trial.import(&[lower, upper]).expect("imported");
    let root = &imported.image.rootfs;
    assert_eq!(fs::read(root.join("closed/later")).expect("readable"), b"2");
    assert_eq!(fs::read(root.join("mine")).expect("readable"), b"shared");
    assert!(root.join(&long).is_file());
    drop(imported);
    let removed = trial.place.store.remove("hostile", false).expect("deletable");
    assert!(removed.deleted.is_some());
    trial
        .refused(&[layer().pax(&[("path", &"n".repeat(300))]).file("a", 0o644, b"x")], "255 bytes");
    for point in ["proc", "dev", "tmp", "workspace", "channel", "broker"] {
        trial.refused(&[layer().symlink(point, "/etc")], "a jail mounts there");
        trial.refused(&[layer().file(point, 0o644, b"")], "a jail mounts there");
    }
}
