//! Archives of every kind become images, and the same image whatever it came in.

mod common;

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use common::{Layer, Place, name};
use turnjail_images::{Format, ImageConfig, ImportOptions, Source};

fn config() -> ImageConfig {
    ImageConfig {
        entrypoint: vec!["/bin/program".to_owned()],
        env: vec!["A=b".to_owned()],
        labels: [("x".to_owned(), "y".to_owned())].into(),
        ..ImageConfig::default()
    }
}

fn layer() -> Layer {
    Layer::new()
        .directory("bin", 0o755)
        .file("bin/program", 0o4755, b"#!/bin/sh\n")
        .file("etc/shadow", 0o000, b"secret")
        .directory("closed", 0o000)
        .file("closed/file", 0o644, b"inside")
        .symlink("bin/sh", "/bin/program")
        .hard_link("bin/other", "bin/program")
}

#[test]
fn a_root_filesystem_becomes_an_image_with_the_configuration_that_is_given() {
    let place = Place::new();
    let options = ImportOptions { config: Some(config()), ..ImportOptions::default() };
    let archive = place.write("root.tar", &layer().build());
    let imported =
        place.store.import(Source::Path(archive), &name("tool:1"), &options).expect("imported");
    assert_eq!(imported.skipped.set_id_bits, 1);
    let image = place.store.resolve("tool:1").expect("there");
    assert_eq!(image.digest, imported.image.digest);
    assert_eq!(image.config.entrypoint, ["/bin/program"]);
    assert_eq!(image.config.labels["x"], "y");
    assert_eq!(
        (&*image.config.os, &*image.config.architecture),
        ("linux", turnjail_images::architecture())
    );
    let at = |path: &str| image.rootfs.join(path);
    let mode = |path: &str| fs::symlink_metadata(at(path)).expect(path).mode() & 0o7777;
    assert_eq!(mode("bin/program"), 0o755, "set-id bits are dropped");
    assert_eq!(mode("etc/shadow"), 0o400, "the owner can read everything");
    assert_eq!(mode("closed"), 0o700);
    assert_eq!(fs::read(at("closed/file")).expect("readable"), b"inside");
    assert_eq!(fs::read_link(at("bin/sh")).expect("a link").to_str(), Some("/bin/program"));
    let inode = |path: &str| fs::metadata(at(path)).expect(path).ino();
    assert_eq!(inode("bin/other"), inode("bin/program"));
    for point in ["workspace", "channel", "broker", "tmp", "proc", "dev"] {
        assert!(at(point).is_dir(), "{point}");
    }
    let store = fs::metadata(place.dir()).expect("the store").permissions().mode();
    assert_eq!(store & 0o777, 0o700);
}

#[test]
fn compressed_and_streamed_archives_are_the_same_image() {
    let place = Place::new();
    let options = ImportOptions { config: Some(config()), ..ImportOptions::default() };
    let tar = layer().build();
    let archives = [tar.clone(), common::gzip(&tar), common::zstd(&tar)];
    let mut digests = Vec::new();
    for (number, bytes) in archives.into_iter().enumerate() {
        let path = place.write(&format!("{number}.tar"), &bytes);
        let stream = Source::Stream(Box::new(std::io::Cursor::new(bytes)));
        for source in [Source::Path(path), stream] {
            let imported = place.store.import(source, &name("tool"), &options).expect("imported");
            digests.push(imported.image.digest);
        }
    }
    digests.dedup();
    assert_eq!(digests.len(), 1, "{digests:?}");
}

#[test]
fn layouts_and_docker_archives_say_themselves_what_they_are() {
    let place = Place::new();
    let upper = Layer::new().whiteout("etc/shadow").file("etc/new", 0o644, b"new");
    for packing in [common::Packing::None, common::Packing::Gzip, common::Packing::Zstd] {
        let built = common::Built::new(&config(), &[layer(), upper.clone()], packing);
        let sources = [
            Source::Path(place.write("layout.tar", &built.oci_archive("tool:2"))),
            Source::Path(built.oci_directory(&place.scratch("layout"), "tool:2")),
            Source::Path(place.write("saved.tar", &built.docker_archive("tool:2"))),
            Source::Path(
                place.write("saved.tar.gz", &common::gzip(&built.docker_archive("tool:2"))),
            ),
        ];
        for source in sources {
            let shown = format!("{source:?}, {packing:?}");
            let options = ImportOptions::default();
            let imported = place.store.import(source, &name("tool:2"), &options);
            let image = imported.unwrap_or_else(|e| panic!("{shown}: {e}")).image;
            assert!(!image.rootfs.join("etc/shadow").exists(), "{shown}");
            assert_eq!(fs::read(image.rootfs.join("etc/new")).expect("new"), b"new", "{shown}");
            assert_eq!(image.config.env, ["A=b"], "{shown}");
        }
    }
}

#[test]
fn a_name_moves_to_the_newer_image_and_the_format_can_be_said() {
    let place = Place::new();
    let options = ImportOptions { format: Format::Rootfs, ..ImportOptions::default() };
    let mut digests = Vec::new();
    for content in [b"one", b"two"] {
        // Looks like a docker archive and is not one.
        let layer = Layer::new().file("manifest.json", 0o644, content);
        let archive = place.write("root.tar", &layer.build());
        place.store.import(Source::Path(archive), &name("tool"), &options).expect("imported");
        digests.push(place.store.resolve("docker.io/library/tool").expect("there").digest);
    }
    assert_ne!(digests[0], digests[1]);
    let by_digest = format!("tool@{}", digests[1]);
    assert_eq!(place.store.resolve(&by_digest).expect("by digest").digest, digests[1]);
    assert!(place.store.resolve(&format!("tool@{}", digests[0])).is_err());
}

#[test]
fn loading_takes_the_archives_names_and_never_another_images() {
    let place = Place::new();
    let first = common::Built::new(&config(), &[layer()], common::Packing::None);
    let second = common::Built::new(&ImageConfig::default(), &[layer()], common::Packing::None);
    let load = |bytes: Vec<u8>| {
        place
            .store
            .load(Source::Stream(Box::new(std::io::Cursor::new(bytes))), &ImportOptions::default())
    };
    let loaded = load(first.docker_archive("me/tool:3")).expect("loaded");
    assert_eq!(loaded[0].name.to_string(), "me/tool:3");
    load(first.docker_archive("me/tool:3")).expect("the same again");
    let refused = load(second.docker_archive("me/tool:3")).expect_err("another");
    assert_eq!(refused.code(), "image-reference");
    assert_eq!(place.store.resolve("me/tool:3").expect("kept").digest, loaded[0].image.digest);
    let refused = load(first.docker_archive("turnjail-worker")).expect_err("the worker's name");
    assert!(refused.to_string().contains("built into turnjail"), "{refused}");
}
