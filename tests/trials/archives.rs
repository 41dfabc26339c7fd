//! R30: an archive with everything that needs root, or leads somewhere else, from its import to its end.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use serde_json::json;
use turnjail_driver::ExitReason;
use turnjail_images::{Format, ImageConfig, ImageStore, ImportOptions, Source};
use turnjail_jail::Profile;
use turnjail_tests::jails::{Bench, PROBE};

const EROFS: i64 = 30;
const EACCES: i64 = 13;

struct Archive(tar::Builder<Vec<u8>>);

impl Archive {
    fn entry(&mut self, kind: tar::EntryType, name: &str, mode: u32, link: &str, content: &[u8]) {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_size(content.len() as u64);
        // Nobody here has these ids.
        header.set_uid(70_000);
        header.set_gid(70_000);
        if kind.is_character_special() || kind.is_block_special() {
            header.set_device_major(1).and_then(|()| header.set_device_minor(3)).expect("a device");
        }
        let done = if link.is_empty() {
            self.0.append_data(&mut header, name, content)
        } else {
            self.0.append_link(&mut header, name, link)
        };
        done.expect("an entry");
    }

    fn new() -> Self {
        use tar::EntryType as Kind;
        let mut all = Self(tar::Builder::new(Vec::new()));
        for point in ["broker", "channel", "dev", "proc", "tmp", "workspace"] {
            all.entry(Kind::Directory, &format!("{point}/"), 0o755, "", b"");
        }
        all.entry(Kind::Directory, "closed/", 0o500, "", b"");
        all.entry(Kind::Regular, "closed/later", 0o000, "", b"nobody may read this");
        all.entry(Kind::Regular, "worker", 0o6755, "", PROBE);
        // As a file system would have it: version, effective, every capability.
        let everything = b"\x01\0\0\x02\xff\xff\xff\xff\0\0\0\0\xff\xff\xff\xff\0\0\0\0";
        let capability = [("SCHILY.xattr.security.capability", &everything[..])];
        all.0.append_pax_extensions(capability).expect("an extension");
        all.entry(Kind::Regular, "capable", 0o755, "", PROBE);
        all.entry(Kind::Char, "null", 0o666, "", b"");
        all.entry(Kind::Block, "disk", 0o660, "", b"");
        all.entry(Kind::Fifo, "pipe", 0o666, "", b"");
        all.entry(Kind::Directory, "etc/", 0o755, "", b"");
        all.entry(Kind::Symlink, "etc/resolv.conf", 0o777, "/etc/passwd", b"");
        all.entry(Kind::Symlink, "etc/up", 0o777, "../../../../../../etc/passwd", b"");
        all.entry(Kind::Link, "again", 0o644, "closed/later", b"");
        all.entry(Kind::Regular, &"n".repeat(255), 0o644, "", b"long");
        all
    }

    fn import(self, store: &ImageStore, name: &str) -> Result<Box<Path>, String> {
        let archive = tempfile::NamedTempFile::new().expect("a file");
        fs::write(archive.path(), self.0.into_inner().expect("an archive")).expect("written");
        let config =
            ImageConfig { entrypoint: vec!["/worker".to_owned()], ..ImageConfig::default() };
        let options = ImportOptions {
            format: Format::Rootfs,
            config: Some(config),
            ..ImportOptions::default()
        };
        let name = name.parse().expect("a name");
        let imported = store.import(Source::Path(archive.path().into()), &name, &options);
        imported.map(|done| done.image.rootfs.clone().into()).map_err(|error| error.to_string())
    }
}

pub fn r30() {
    let bench = Bench::new();
    let store = ImageStore::open(&bench.path("images")).expect("a store");
    refused(&store);
    let root = Archive::new().import(&store, "odd").expect("what is harmless is imported");
    harmless(&root);
    let long = "n".repeat(255);
    for profile in [Profile::Sealed, Profile::General] {
        for (acts, errnos) in [
            (vec![json!(["read", "/etc/resolv.conf"])], &[2, EACCES][..]),
            (vec![json!(["read", "/etc/up"])], &[2, EACCES]),
            (vec![json!(["write", "/null", "x"])], &[EROFS, EACCES]),
            (vec![json!(["write", "/closed/later", "x"])], &[EROFS, EACCES]),
        ] {
            let mut spec = bench.spec_for(profile, &acts);
            root.to_path_buf().clone_into(&mut spec.rootfs);
            let report = bench.acts_in(&spec, b"");
            let refused = report.last_error().is_some_and(|errno| errnos.contains(&errno));
            assert!(refused, "{acts:?} under {profile}: {report:?}");
        }
    }
    // As an image of its own: the whole root is there, and its programs have no more than any other's.
    let read = [json!(["read", "/again"]), json!(["read", format!("/{long}")])];
    let mut spec = bench.spec_for(Profile::General, &read);
    root.to_path_buf().clone_into(&mut spec.rootfs);
    let report = bench.acts_in(&spec, b"");
    assert_eq!((report.text(0), report.text(1)), ("nobody may read this", "long"));
    "/capable".clone_into(&mut spec.command[0]);
    spec.command.truncate(1);
    spec.command.push(json!(["read", "/proc/self/status"]).to_string());
    let report = bench.acts_in(&spec, b"");
    let none = |line: &str| !line.starts_with("Cap") || line.ends_with("0000000000000000");
    assert!(report.text(0).lines().all(none), "{report:?}");
    assert_eq!(report.reason, Some(ExitReason::Ok));
    // None of it left a mark, and all of it can be removed.
    let verified = store.verify().expect("looked at");
    assert_eq!(verified.differences, []);
    assert!(store.remove("odd", false).expect("removed").deleted.is_some());
    assert!(!root.exists(), "the root of a removed image is there");
}

/// Its kind, its name, and what it links to.
type Entry = (tar::EntryType, &'static str, &'static str);

/// What would land outside, or where a jail mounts, is refused by name, and nothing is left of it.
fn refused(store: &ImageStore) {
    use tar::EntryType as Kind;
    let before = fs::read_to_string("/etc/passwd").expect("a file of the host's");
    let entries: [(&str, &[Entry]); 4] = [
        ("proc", &[(Kind::Symlink, "proc", "/")]),
        ("linked", &[(Kind::Symlink, "linked", "/tmp"), (Kind::Regular, "linked/planted-r30", "")]),
        ("theirs", &[(Kind::Link, "theirs", "/etc/passwd")]),
        ("/absolute-r30", &[(Kind::Regular, "/absolute-r30", "")]),
    ];
    for (culprit, entries) in entries {
        let mut archive = Archive::new();
        for &(kind, name, link) in entries {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(kind);
            header.set_mode(0o644);
            header.set_size(0);
            // By hand: the builder refuses such names itself.
            header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
            header.as_old_mut().linkname[..link.len()].copy_from_slice(link.as_bytes());
            header.set_cksum();
            archive.0.append(&header, &[][..]).expect("an entry");
        }
        let error = archive.import(store, "bad").expect_err(culprit);
        assert!(error.contains(&format!("{culprit:?}")), "{culprit} is not named: {error}");
        assert!(store.resolve("bad").is_err(), "{culprit}: an image was made");
    }
    assert!(!Path::new("/tmp/planted-r30").exists() && !Path::new("/absolute-r30").exists());
    assert_eq!(fs::read_to_string("/etc/passwd").expect("it"), before);
}

/// The root as it lies in the store.
fn harmless(root: &Path) {
    for name in ["null", "disk", "pipe"] {
        assert!(root.join(name).symlink_metadata().is_err(), "{name} was made");
    }
    let uid = nix::unistd::geteuid().as_raw();
    let mut places = vec![root.to_owned()];
    while let Some(place) = places.pop() {
        let found = place.symlink_metadata().expect("it is there");
        assert_eq!(found.uid(), uid, "{} is somebody else's", place.display());
        let kind = found.file_type();
        assert!(kind.is_file() || kind.is_dir() || kind.is_symlink());
        if !kind.is_symlink() {
            assert_eq!(found.permissions().mode() & 0o7000, 0, "{}", place.display());
        }
        if kind.is_dir() {
            let entries = fs::read_dir(&place).expect("readable");
            places.extend(entries.map(|entry| entry.expect("an entry").path()));
        }
    }
}
