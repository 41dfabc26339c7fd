//! Identity: nothing is taken for what it is not, whatever an archive calls it (A47).

mod common;

use std::fs;

use common::{Built, Layer, Packing, Place, archive, name};
use serde_json::{Value, json};
use turnjail_images::{Digest, ImageConfig, ImageError, ImportOptions, Imported, Platform, Source};

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";

fn built() -> Built {
    let layers = [Layer::new().file("one", 0o644, b"1"), Layer::new().file("two", 0o644, b"2")];
    Built::new(&ImageConfig::default(), &layers, Packing::Gzip)
}

fn import(place: &Place, bytes: &[u8]) -> Result<Imported, ImageError> {
    let path = place.write("archive", bytes);
    let result = place.store.import(Source::Path(path), &name("tool"), &ImportOptions::default());
    assert_eq!(place.staged(), 0);
    result
}

fn refused(bytes: &[u8], code: &str, reason: &str) {
    let place = Place::new();
    let error = import(&place, bytes).expect_err(reason);
    assert_eq!(error.code(), code, "{error}");
    assert!(error.to_string().contains(reason), "{reason}: {error}");
    assert!(place.store.resolve("tool").is_err());
    assert!(!place.dir().join("blobs").exists());
}

/// The archive with another manifest, which its index names rightly.
fn with_manifest(change: impl FnOnce(&mut Value)) -> Vec<u8> {
    let mut built = built();
    let mut manifest = built.manifest_value();
    change(&mut manifest);
    built.manifest = manifest.to_string().into_bytes();
    built.oci_archive("tool")
}

#[test]
fn what_is_not_what_its_digest_or_size_says_is_refused() {
    assert!(import(&Place::new(), &built().oci_archive("tool")).is_ok(), "the control");
    let mut files = built().oci_files("tool");
    for index in 0..4 {
        let mut spoilt = files.clone();
        let last = spoilt[index].1.len() - 1;
        spoilt[index].1[last] ^= 1;
        refused(&archive(&spoilt), "image-digest", "not what was promised");
        spoilt[index].1.push(b' ');
        refused(&archive(&spoilt), "image-digest", "bytes");
    }
    refused(&with_manifest(|m| m["layers"][0]["size"] = json!(7)), "image-digest", "7 bytes");
    files.retain(|(name, _)| !name.contains(Digest::of(&built().layers[0]).hex()));
    refused(&archive(&files), "image-refused", "it has no \"blobs/sha256/");
}

#[test]
fn layers_must_be_those_of_the_configuration_in_its_order() {
    let swap = |m: &mut Value| m["layers"].as_array_mut().expect("layers").swap(0, 1);
    refused(&with_manifest(swap), "image-digest", "layer 1, unpacked,");
    let fewer = |m: &mut Value| drop(m["layers"].as_array_mut().expect("layers").pop());
    refused(&with_manifest(fewer), "image-refused", "for 2 layers, and it has 1");
    let mut swapped = built();
    swapped.layers.swap(0, 1);
    refused(&swapped.docker_archive("tool"), "image-digest", "layer 1, unpacked,");
}

#[test]
fn digests_that_cannot_be_checked_are_refused() {
    for digest in [
        format!("sha512:{:0128}", 0),
        "md5:d41d8cd98f00b204e9800998ecf8427e".to_owned(),
        format!("sha256:../{:061}", 0),
        format!("sha256:{}", "A".repeat(64)),
        "sha256:../../../etc/passwd".to_owned(),
    ] {
        let place = Place::new();
        let spoilt = with_manifest(|m| m["layers"][0]["digest"] = json!(digest));
        assert_eq!(
            import(&place, &spoilt).expect_err("refused").code(),
            "image-refused",
            "{digest}"
        );
    }
}

#[test]
fn layers_from_elsewhere_and_of_other_kinds_are_refused() {
    let urls = |m: &mut Value| m["layers"][0]["urls"] = json!(["https://elsewhere.example/layer"]);
    refused(&with_manifest(urls), "image-refused", "to be had from a URL");
    for media in [
        "application/vnd.oci.image.layer.nondistributable.v1.tar+gzip",
        "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip",
        "application/octet-stream",
    ] {
        let other = |m: &mut Value| m["layers"][0]["mediaType"] = json!(media);
        refused(&with_manifest(other), "image-refused", "layer of the type");
    }
    for media in
        ["application/vnd.oci.image.layer.v1.tar", "application/vnd.oci.image.layer.v1.tar+zstd"]
    {
        let other = |m: &mut Value| m["layers"][0]["mediaType"] = json!(media);
        refused(&with_manifest(other), "image-refused", "compression is not the one");
    }
}

#[test]
fn a_layouts_files_are_never_links_or_pipes() {
    let place = Place::new();
    let built = built();
    let outside = place.write("layer", &built.layers[0]);
    let blob = format!("blobs/sha256/{}", Digest::of(&built.layers[0]).hex());
    for (kind, reason) in
        [("link", "is a link"), ("pipe", "is no file"), ("directory", "is no file")]
    {
        let layout = built.oci_directory(&place.scratch("layout"), "tool");
        let path = layout.join(&blob);
        fs::remove_file(&path).expect("removed");
        match kind {
            "link" => std::os::unix::fs::symlink(&outside, &path).expect("a link"),
            "pipe" => nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).expect("a pipe"),
            _ => fs::create_dir(&path).expect("a directory"),
        }
        let result =
            place.store.import(Source::Path(layout), &name("tool"), &ImportOptions::default());
        let error = result.expect_err(kind);
        assert!(error.to_string().contains(reason), "{kind}: {error}");
    }
}

#[test]
fn paths_in_a_docker_archive_stay_in_it() {
    let config = built().config;
    for (manifest, reason) in [
        (json!([{"Config": "../../etc/passwd", "Layers": []}]), "upwards"),
        (json!([{"Config": "/etc/passwd", "Layers": []}]), "absolute"),
        (json!([{"Config": "config.json", "Layers": ["../layer.tar"]}]), "upwards"),
        (json!([{"Config": "config.json", "Layers": ["/dev/zero"]}]), "absolute"),
        (json!([{"Config": "config.json", "Layers": ["absent/layer.tar"]}]), "it has no"),
        (json!([{"Config": "link.json", "Layers": []}]), "out of the archive"),
        (json!([{"Config": "loop.json", "Layers": []}]), "link to links"),
        (json!([]), "0 images"),
        (json!({"Config": "config.json"}), "not understood"),
    ] {
        let archive = Layer::new()
            .file("config.json", 0o644, &config)
            .symlink("link.json", "../etc/passwd")
            .symlink("loop.json", "loop.json")
            .file("manifest.json", 0o644, manifest.to_string().as_bytes());
        refused(&archive.build(), "image-refused", reason);
    }
}

#[test]
fn a_layer_that_stands_twice_in_an_old_docker_archive_is_a_link_within_it() {
    let layer = Layer::new().file("f", 0o644, b"x");
    let built = Built::new(&ImageConfig::default(), &[layer.clone(), layer], Packing::None);
    let manifest =
        json!([{"Config": "c.json", "RepoTags": null, "Layers": ["1/layer.tar", "2/layer.tar"]}]);
    let archive = Layer::new()
        .file("c.json", 0o644, &built.config)
        .file("1/layer.tar", 0o644, &built.layers[0])
        .symlink("2/layer.tar", "../1/layer.tar")
        .file("manifest.json", 0o644, manifest.to_string().as_bytes());
    assert_eq!(import(&Place::new(), &archive.build()).expect("imported").layers, 2);
}

/// As builders write docker's archives that are not docker: compressed layers and a configuration named by
/// their digests.
#[test]
fn an_archive_of_a_builder_without_docker_is_read() {
    let layers = [Layer::new().file("a", 0o644, b"a"), Layer::new().file("b", 0o644, b"b")];
    let built = Built::new(&ImageConfig::default(), &layers, Packing::Gzip);
    let config = format!("sha256:{}", Digest::of(&built.config).hex());
    let first = format!("{}.tar.gz", Digest::of(&built.layers[0]).hex());
    let second = Digest::of(&built.layers[1]).hex().to_owned();
    let manifest = json!([{"Config": config, "RepoTags": ["tool:1"], "Layers": [first, second]}]);
    let archive = Layer::new()
        .file(&config, 0o644, &built.config)
        .file(&first, 0o644, &built.layers[0])
        .file(&second, 0o644, &built.layers[1])
        .file("manifest.json", 0o644, manifest.to_string().as_bytes());
    assert_eq!(import(&Place::new(), &archive.build()).expect("imported").layers, 2);
}

/// A layout whose index.json is `index`, with more documents.
fn layout(index: &Value, documents: &[Vec<u8>]) -> Vec<u8> {
    let mut files = built().blobs();
    files.push(("oci-layout".to_owned(), b"{}".to_vec()));
    files.push(("index.json".to_owned(), index.to_string().into_bytes()));
    for bytes in documents {
        files.push((format!("blobs/sha256/{}", Digest::of(bytes).hex()), bytes.clone()));
    }
    archive(&files)
}

fn descriptor(media: &str, bytes: &[u8]) -> Value {
    json!({"mediaType": media, "digest": Digest::of(bytes).as_str(), "size": bytes.len()})
}

fn index(manifests: Vec<Value>) -> Value {
    json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests})
}

#[test]
fn a46_indexes_that_nest_or_fan_out_are_refused() {
    let manifest = built().manifest;
    let mut documents: Vec<Vec<u8>> = Vec::new();
    let mut top = index(vec![descriptor(MANIFEST, &manifest)]);
    for depth in 0..6 {
        let result = import(&Place::new(), &layout(&top, &documents));
        assert_eq!(result.is_ok(), depth <= 3, "{depth} indexes within: {result:?}");
        let bytes = top.to_string().into_bytes();
        top = index(vec![descriptor(INDEX, &bytes)]);
        documents.push(bytes);
    }
    let many = index(vec![descriptor(MANIFEST, &manifest); 70]);
    refused(&layout(&many, &[]), "image-refused", "more than 64");
    let inner = index(vec![descriptor(MANIFEST, &manifest)]).to_string().into_bytes();
    let twice = index(vec![descriptor(INDEX, &inner), descriptor(INDEX, &inner)]);
    refused(&layout(&twice, &[inner]), "image-refused", "there twice");
}

#[test]
fn one_of_several_platforms_is_chosen_and_its_absence_is_said() {
    let manifest = built().manifest;
    let platform = |os: &str, architecture: &str, bytes: &[u8]| {
        let mut one = descriptor(MANIFEST, bytes);
        one["platform"] = json!({"os": os, "architecture": architecture});
        one
    };
    let here = Platform::here().architecture;
    let attestation = platform("unknown", "unknown", b"absent");
    let other = platform("linux", "riscv64", b"absent");
    let several = index(vec![attestation, other.clone(), platform("linux", &here, &manifest)]);
    let nested = several.to_string().into_bytes();
    let chosen_from = Digest::of(&nested);
    let place = Place::new();
    let imported = import(&place, &layout(&index(vec![descriptor(INDEX, &nested)]), &[nested]))
        .expect("imported");
    assert_eq!(imported.image.digest, Digest::of(&manifest).to_string());
    // The index's digest means the image too.
    assert!(place.store.resolve(&format!("tool@{chosen_from}")).is_ok());
    refused(&layout(&index(vec![other]), &[]), "image-platform", "linux/riscv64");
    // What says nothing of its platform says it in its configuration.
    let mut foreign = built();
    foreign.config =
        String::from_utf8(foreign.config).expect("JSON").replace(&here, "riscv64").into_bytes();
    let media = "application/vnd.oci.image.layer.v1.tar+gzip";
    foreign.manifest =
        common::manifest(&foreign.config, &foreign.layers, media).to_string().into_bytes();
    refused(&foreign.oci_archive("tool"), "image-platform", "riscv64");
    let options =
        ImportOptions { platform: "linux/riscv64".parse().ok(), ..ImportOptions::default() };
    let path = place.write("foreign", &foreign.oci_archive("tool"));
    let imported =
        place.store.import(Source::Path(path), &name("foreign"), &options).expect("asked for");
    assert_eq!(imported.image.check_runnable().expect_err("not here").code(), "image-config");
}

#[test]
fn a_name_with_a_digest_means_this_digest() {
    let place = Place::new();
    let digest = Digest::of(&built().manifest);
    let path = place.write("archive", &built().oci_archive("tool"));
    let options = ImportOptions::default();
    let wrong = name(&format!("tool:1@sha256:{:064}", 1));
    let error =
        place.store.import(Source::Path(path.clone()), &wrong, &options).expect_err("another");
    assert_eq!(error.code(), "image-digest");
    place
        .store
        .import(Source::Path(path), &name(&format!("tool:1@{digest}")), &options)
        .expect("this");
    for reference in ["tool:1".to_owned(), format!("tool@{digest}"), format!("tool:1@{digest}")] {
        assert_eq!(place.store.resolve(&reference).expect(&reference).digest, digest.to_string());
    }
    assert!(place.store.resolve(&format!("tool:2@{digest}")).is_err());
    assert!(place.store.resolve(&format!("other@{digest}")).is_err());
}

#[test]
fn one_of_several_images_is_chosen_by_name() {
    let (one, two) = (built(), Built::new(&ImageConfig::default(), &[Layer::new()], Packing::None));
    let mut index = one.index("me/one:1");
    index["manifests"]
        .as_array_mut()
        .expect("a list")
        .extend(two.index("me/two:1")["manifests"].as_array().expect("a list").clone());
    let mut files = one.blobs();
    files.extend(two.blobs());
    files.push(("oci-layout".to_owned(), b"{}".to_vec()));
    files.push(("index.json".to_owned(), index.to_string().into_bytes()));
    let place = Place::new();
    let path = place.write("archive", &archive(&files));
    let import = |as_name: &str, select: Option<&str>| {
        let options =
            ImportOptions { select: select.map(str::to_owned), ..ImportOptions::default() };
        place
            .store
            .import(Source::Path(path.clone()), &name(as_name), &options)
            .map(|i| i.image.digest)
    };
    let digest = |built: &Built| Digest::of(&built.manifest).to_string();
    assert_eq!(import("mine", None).expect_err("which").code(), "image-ambiguous");
    assert_eq!(import("mine", Some("me/two:1")).expect("selected"), digest(&two));
    assert_eq!(import("me/one:1", None).expect("by its name"), digest(&one));
    assert!(import("mine", Some("me/three:1")).is_err());
    let loaded = place.again().load(Source::Path(path.clone()), &ImportOptions::default());
    assert_eq!(loaded.expect("both").len(), 2);
}
