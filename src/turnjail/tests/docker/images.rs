//! Images go in and out as Docker's do.

use turnjail_tests::archive;
use turnjail_tests::engine::docker;
use turnjail_tests::jails::PROBE;

use crate::account::Account;

pub fn round() {
    let account = Account::with_probes();
    let listed = account.run(&["images", "--format", "{{.Repository}}:{{.Tag}}"], b"");
    assert_eq!(listed.out, "turnjail-worker:latest\nturnjail-test-probe:1\n");
    let table = account.run(&["images"], b"").out;
    assert!(table.starts_with("REPOSITORY") && table.lines().count() == 3, "{table}");
    let ids = account.run(&["images", "--quiet", "--no-trunc", "turnjail-test-probe"], b"").out;
    let id = account.run(&["image", "inspect", "-f", "{{.Id}}", "turnjail-test-probe:1"], b"").out;
    assert_eq!(ids, id);

    let saved = account.path("probe.tar");
    let path = saved.display().to_string();
    let save = account.run(&["save", "--output", &path, "turnjail-test-probe:1"], b"");
    assert_eq!(save.code, 0, "{save:?}");
    let other = Account::new();
    let loaded = other.run(&["load", "--input", &path], b"");
    assert_eq!(loaded.out, "Loaded image: turnjail-test-probe:1\n", "{loaded:?}");
    let same = other.run(&["image", "inspect", "-f", "{{.Id}}", "turnjail-test-probe:1"], b"").out;
    assert_eq!(same, id, "the identity is the content's");

    let absent = account.run(&["save", "--output", &path, "nothing:1"], b"");
    assert_eq!(absent.code, 1);
    assert!(saved.metadata().unwrap().len() > 0, "a mistyped name costs no file");
    let broken = account.run(&["load"], b"this is no archive");
    assert_eq!((broken.code, broken.out.as_str()), (1, ""));
    let odd = archive::image("turnjail-worker:latest", PROBE, archive::configuration());
    assert_eq!(account.run(&["load"], &odd).code, 1, "the built-in name is nobody else's");
}

/// The image in the program, saved by it, in a real engine.
pub fn to_docker() {
    let account = Account::new();
    let path = account.path("worker.tar").display().to_string();
    assert_eq!(account.run(&["save", "-o", &path, "turnjail-worker"], b"").code, 0);
    docker(&["load", "--input", &path], b"");
    let entry =
        docker(&["image", "inspect", "-f", "{{.Config.Entrypoint}}", "turnjail-worker"], b"");
    assert_eq!(entry, "[/worker]\n");
    let version = docker(
        &["run", "--rm", "--network", "none", "--read-only", "turnjail-worker", "--version"],
        b"",
    );
    assert!(version.contains(env!("CARGO_PKG_VERSION")), "{version}");
}
