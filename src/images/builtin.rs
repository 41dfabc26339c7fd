//! The worker image inside this binary.
//!
//! The name always means the image embedded in the running program, so an upgrade never runs an old
//! worker, whatever else the store holds.

use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use oci_spec::image::ImageConfiguration;

use crate::{Digest, ImageConfig, ImageError, Reference};

/// The reference of the built-in worker image.
pub const BUILTIN: &str = "turnjail-worker";

include!(concat!(env!("OUT_DIR"), "/digest.rs"));

static LAYER: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/layer.tar"));
static CONFIG: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/config.json"));
static MANIFEST: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/manifest.json"));

/// The digest of the built-in image's manifest, `sha256:...`.
pub fn builtin_digest() -> &'static str {
    DIGEST
}

/// The built-in image's name and digest, checked like any other.
pub(crate) fn digest() -> Digest {
    DIGEST.parse().expect("the build script's own digest")
}

/// Whether `reference` has the name that is the built-in image's alone.
pub(crate) fn owns(reference: &Reference) -> bool {
    reference.familiar_repository() == BUILTIN
}

/// Whether `reference` names the built-in image: with the tag `latest`, its digest, or both.
pub(crate) fn is_builtin(reference: &Reference) -> bool {
    owns(reference)
        && reference.tag().is_none_or(|tag| tag == "latest")
        && reference.digest().is_none_or(|digest| digest.as_str() == DIGEST)
}

/// What the image is made of: manifest, configuration and layer.
pub(crate) fn parts() -> (&'static [u8], &'static [u8], &'static [u8]) {
    (MANIFEST, CONFIG, LAYER)
}

pub(crate) fn config() -> ImageConfig {
    let configuration = ImageConfiguration::from_reader(CONFIG).expect("the build script's own");
    ImageConfig::of(&configuration).expect("the build script's own")
}

/// Bytes of the layer.
pub(crate) fn size() -> u64 {
    LAYER.len() as u64
}

/// Writes the image's root filesystem into the empty directory `root`.
pub(crate) fn unpack(root: &Path) -> Result<(), ImageError> {
    each_entry(|path, content| {
        let to = root.join(path);
        match content {
            None => fs::create_dir(&to),
            Some(bytes) => {
                OpenOptions::new().write(true).create_new(true).mode(0o500).open(&to).and_then(
                    |mut file| {
                        file.write_all(bytes)?;
                        file.set_permissions(Permissions::from_mode(0o555))?;
                        file.sync_all()
                    },
                )
            }
        }
        .map_err(ImageError::io("write", &to))
    })
}

/// Whether the root filesystem in `root` is still what was written: the worker's bytes and the mount
/// points. The check costs a few milliseconds and is made once a process.
pub(crate) fn intact(root: &Path) -> bool {
    let mut expected = 0;
    let as_written = each_entry(|path, content| {
        expected += 1;
        let found = root.join(path);
        let same = match content {
            None => fs::symlink_metadata(&found).is_ok_and(|m| m.is_dir()),
            Some(bytes) => {
                fs::symlink_metadata(&found).is_ok_and(|m| m.is_file())
                    && fs::read(&found).is_ok_and(|have| have == bytes)
            }
        };
        if same { Ok(()) } else { Err(ImageError::Absent(path.display().to_string())) }
    });
    let found = fs::read_dir(root).map_or(0, Iterator::count);
    as_written.is_ok() && found == expected
}

/// Calls `visit` with each entry of the embedded layer: a directory or a file with its bytes.
fn each_entry(
    mut visit: impl FnMut(&Path, Option<&[u8]>) -> Result<(), ImageError>,
) -> Result<(), ImageError> {
    let broken = |source: io::Error| ImageError::Io {
        action: "read",
        path: "the built-in image".into(),
        source,
    };
    let mut archive = tar::Archive::new(LAYER);
    for entry in archive.entries().map_err(broken)? {
        let mut entry = entry.map_err(broken)?;
        // Without the slash that ends a directory's name: it would have a link followed.
        let path: PathBuf = entry.path().map_err(broken)?.components().collect();
        if entry.header().entry_type().is_dir() {
            visit(&path, None)?;
        } else {
            let mut bytes = Vec::with_capacity(entry.size() as usize);
            entry.read_to_end(&mut bytes).map_err(broken)?;
            visit(&path, Some(&bytes))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_means_the_embedded_digest_only() {
        let means = |text: &str| is_builtin(&text.parse().expect("a reference"));
        assert!(means("turnjail-worker"));
        assert!(means("turnjail-worker:latest"));
        assert!(means(&format!("turnjail-worker@{DIGEST}")));
        assert!(means(&format!("turnjail-worker:latest@{DIGEST}")));
        assert!(!means("turnjail-worker:1"));
        assert!(!means(&format!("turnjail-worker@sha256:{:064}", 0)));
        assert!(!means("me/turnjail-worker") && !means("other"));
    }

    #[test]
    fn the_configuration_names_entry_point_protocol_and_profile() {
        let config = config();
        assert_eq!(config.entrypoint, ["/worker"]);
        assert_eq!(config.protocol(), Some(turnjail_protocol::SANDBOX_PROTOCOL));
        assert_eq!(config.profile(), crate::ProfileLabel::Sealed);
    }

    #[test]
    fn the_worker_is_a_static_program_at_a_fixed_address() {
        each_entry(|path, content| {
            if let Some(elf) = content {
                assert_eq!(path, Path::new("worker"));
                assert_eq!(&elf[..4], b"\x7fELF");
                // e_type 2 is ET_EXEC; a dynamic or position-independent program has 3.
                assert_eq!(elf[16], 2, "not at a fixed address");
                assert!(!has_interpreter(elf), "needs a dynamic linker");
            }
            Ok(())
        })
        .expect("the embedded layer");
    }

    /// Looks for a PT_INTERP (type 3) program header.
    fn has_interpreter(elf: &[u8]) -> bool {
        let u16_at = |at: usize| u16::from_le_bytes([elf[at], elf[at + 1]]) as usize;
        let start = u64::from_le_bytes(elf[32..40].try_into().expect("8 bytes")) as usize;
        (0..u16_at(56)).any(|i| elf[start + i * u16_at(54)] == 3)
    }
}
