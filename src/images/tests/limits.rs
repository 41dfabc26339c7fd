//! Bombs: each limit with an archive that goes beyond it, and one that just does not.

mod common;

use common::{Built, Layer, Packing, Place, name};
use turnjail_images::{Format, ImageConfig, ImageError, ImageLimits, ImportOptions, Source};

const MIB: u64 = 1024 * 1024;

fn import(place: &Place, archive: &[u8], limits: ImageLimits) -> Result<(), ImageError> {
    let options = ImportOptions { limits, format: Format::Rootfs, ..ImportOptions::default() };
    let path = place.write("archive", archive);
    let result = place.store.import(Source::Path(path), &name("bomb"), &options);
    assert_eq!(place.staged(), 0, "nothing is left half made");
    if result.is_err() {
        assert!(place.store.resolve("bomb").is_err());
        assert!(!place.dir().join("blobs").exists());
    }
    result.map(drop)
}

/// The archive is refused at the limit of this setting, and the message says which.
fn beyond(place: &Place, archive: &[u8], limits: ImageLimits, setting: &str) {
    let error = import(place, archive, limits).expect_err(setting);
    assert_eq!(error.code(), "image-limit", "{error}");
    assert!(error.remedy().contains(&format!("import.{setting} ")), "{}", error.remedy());
}

fn files(count: usize) -> Layer {
    (0..count).fold(Layer::new(), |layer, number| layer.file(&format!("{number}"), 0o644, b""))
}

#[test]
fn the_defaults_are_the_documented_numbers() {
    let limits = ImageLimits::default();
    assert_eq!((limits.entries, limits.layers, limits.ratio), (500_000, 128, 200));
    assert_eq!((limits.layer_bytes, limits.total_bytes), (4096 * MIB, 8192 * MIB));
    assert_eq!((limits.metadata_bytes, limits.name_bytes, limits.depth), (4 * MIB, 4096, 64));
    assert_eq!(ImageLimits::RATIO_FROM, 64 * MIB);
}

#[test]
fn entries_are_counted_and_so_are_directories_that_they_imply() {
    let limits = ImageLimits { entries: 20, ..ImageLimits::default() };
    // Six of them are mount points.
    import(&Place::new(), &files(14).build(), limits).expect("within");
    beyond(&Place::new(), &files(21).build(), limits, "max_entries");
    let deep = Layer::new().file("d/".repeat(30).trim_end_matches('/'), 0o644, b"");
    beyond(&Place::new(), &deep.build(), limits, "max_entries");
    let skipped = (0..30).fold(Layer::new(), |layer, number| {
        layer.entry(b'6', &format!("{number}"), 0o644, "", b"")
    });
    beyond(&Place::new(), &skipped.build(), limits, "max_entries");
}

#[test]
fn layers_are_counted() {
    let layers = vec![files(1); 4];
    let built = Built::new(&ImageConfig::default(), &layers, Packing::None);
    for (most, fits) in [(4, true), (3, false)] {
        let place = Place::new();
        let limits = ImageLimits { layers: most, ..ImageLimits::default() };
        let options = ImportOptions { limits, ..ImportOptions::default() };
        for archive in [built.oci_archive("x"), built.docker_archive("x")] {
            let path = place.write("archive", &archive);
            let result = place.store.import(Source::Path(path), &name("x"), &options);
            assert_eq!(result.is_ok(), fits);
            if let Err(error) = result {
                assert_eq!(error.code(), "image-limit");
            }
        }
    }
}

#[test]
fn bytes_of_a_layer_and_of_all_are_counted_as_they_are_unpacked() {
    let big = Layer::new().file("big", 0o644, &vec![1; 3 * MIB as usize]).build();
    let layer = |bytes| ImageLimits { layer_bytes: bytes, ..ImageLimits::default() };
    let total = |bytes| ImageLimits { total_bytes: bytes, ..ImageLimits::default() };
    for archive in [big.clone(), common::zstd(&big)] {
        import(&Place::new(), &archive, layer(4 * MIB)).expect("within");
        beyond(&Place::new(), &archive, layer(2 * MIB), "max_layer_mb");
        beyond(
            &Place::new(),
            &archive,
            total(2 * MIB),
            if archive == big { "max_total_mb" } else { "max_layer_mb" },
        );
    }
    let two = [
        files(1),
        Layer::new().file("big", 0o644, &vec![1; 3 * MIB as usize]),
        Layer::new().file("more", 0o644, &vec![1; 3 * MIB as usize]),
    ];
    let built = Built::new(&ImageConfig::default(), &two, Packing::Gzip);
    let place = Place::new();
    let options = ImportOptions { limits: total(5 * MIB), ..ImportOptions::default() };
    let path = place.write("archive", &built.oci_archive("x"));
    let error = place.store.import(Source::Path(path), &name("x"), &options).expect_err("too much");
    assert!(error.to_string().contains("in all layers"), "{error}");
}

/// 1 GiB of zeros in about 1 MiB, made and refused without ever being there whole.
#[test]
fn a46_a_bomb_is_stopped_at_its_ratio_with_little_on_disk() {
    let size = 1024 * MIB;
    let header = Layer::new().raw(b'0', b"zeros", 0o644, b"", size, b"").unended();
    let zeros = vec![0; MIB as usize];
    // Members and frames may follow each other: one is made, and repeated.
    let bomb = |pack: fn(&[u8]) -> Vec<u8>| {
        let mut archive = pack(&header);
        archive.extend(pack(&zeros).repeat((size / MIB) as usize));
        archive
    };
    let best = |bytes: &[u8]| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        std::io::Write::write_all(&mut encoder, bytes).expect("compressed");
        encoder.finish().expect("compressed")
    };
    for archive in [bomb(best), bomb(common::zstd)] {
        assert!((archive.len() as u64) < 2 * MIB);
        beyond(&Place::new(), &archive, ImageLimits::default(), "max_ratio");
        // As a layer too.
        let layers = [archive.clone()];
        let config =
            br#"{"architecture":"amd64","os":"linux","rootfs":{"type":"layers","diff_ids":["x"]}}"#;
        let media = "application/vnd.oci.image.layer.v1.tar+gzip";
        let manifest = common::manifest(config, &layers, media).to_string().into_bytes();
        let built = Built { config: config.to_vec(), manifest, layers: layers.to_vec() };
        let place = Place::new();
        let path = place.write("archive", &built.docker_archive("x"));
        let options = ImportOptions::default();
        let error =
            place.store.import(Source::Path(path), &name("x"), &options).expect_err("a bomb");
        assert_eq!(error.code(), "image-limit", "{error}");
        assert_eq!(place.staged(), 0);
    }
    let little =
        common::gzip(&Layer::new().file("zeros", 0o644, &vec![0; 60 * MIB as usize]).build());
    import(&Place::new(), &little, ImageLimits::default()).expect("below 64 MiB the ratio is free");
}

#[test]
fn a46_a_window_that_would_fill_memory_is_refused() {
    // A frame whose header asks for a window of 2 GiB, and one that asks for 128 MiB.
    let frame = |exponent: u8| [0x28, 0xb5, 0x2f, 0xfd, 0x00, exponent << 3, 0x01, 0x00, 0x00];
    let error =
        import(&Place::new(), &frame(31 - 10), ImageLimits::default()).expect_err("refused");
    assert!(error.to_string().contains("memory"), "{error}");
    let error = import(&Place::new(), &frame(27 - 10), ImageLimits::default());
    assert!(error.is_ok(), "an empty archive: {error:?}");
}

#[test]
fn names_and_depth_are_limited() {
    let place = Place::new();
    let with = |path: &str| Layer::new().pax(&[("path", path)]).file("a", 0o644, b"").build();
    let refused = |archive: &[u8], reason: &str| {
        let error = import(&place, archive, ImageLimits::default()).expect_err(reason);
        assert!(error.to_string().contains(reason), "{error}");
    };
    refused(&with(&format!("{}f", "d/".repeat(64))), "64 levels");
    refused(&with(&format!("{}f", "d/".repeat(10_000))), "4096 bytes");
    refused(&with(&format!("{}{}", "d".repeat(200), "/e".repeat(2000))), "4096 bytes");
    let target = "t".repeat(5000);
    refused(
        &Layer::new().pax(&[("linkpath", &target)]).symlink("a", "b").build(),
        "cannot be a path",
    );
    import(&Place::new(), &with(&format!("{}f", "d/".repeat(63))), ImageLimits::default())
        .expect("64 levels");
}

#[test]
fn metadata_is_limited_before_it_is_read() {
    let built = Built::new(&ImageConfig::default(), &[files(1)], Packing::None);
    let limits = ImageLimits { metadata_bytes: 4096, ..ImageLimits::default() };
    let options = ImportOptions { limits, ..ImportOptions::default() };
    let place = Place::new();
    let big = vec![b' '; 5000];
    for spoilt in ["index.json", "config", "manifest"] {
        let mut built = built.clone();
        match spoilt {
            "config" => {
                built.config.extend(&big);
                let media = "application/vnd.oci.image.layer.v1.tar";
                built.manifest =
                    common::manifest(&built.config, &built.layers, media).to_string().into();
            }
            "manifest" => built.manifest.extend(&big),
            _ => {}
        }
        let mut files = built.oci_files("x");
        if spoilt == "index.json"
            && let Some((_, bytes)) = files.iter_mut().find(|(name, _)| name == "index.json")
        {
            bytes.extend(&big);
        }
        let path = place.write("archive", &common::archive(&files));
        let error = place.store.import(Source::Path(path), &name("x"), &options).expect_err(spoilt);
        assert!(error.remedy().contains("import.max_metadata_kb"), "{spoilt}: {error}");
    }
}
