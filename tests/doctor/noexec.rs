//! R09: file systems on which no program may be started, wherever a user may write, or in one place.

use super::Test;
use super::environment::{Account, Fact, program};
use super::judge::Around;
use crate::tests;

pub const TESTS: &[Test] = tests![&[Fact::Jail, Fact::Unshare];
    r09_noexec_everywhere_until_a_setting_names_another_place,
    r09_a_noexec_workspace_is_a_warning,
    r07_a_read_only_place_for_workspaces_is_refused,
];

/// Home, temporary and run directory lie below /tmp, all of which is noexec here but for the program's
/// place; /mnt is not.
fn noexec() -> Around {
    let bin = program().parent().unwrap().display();
    let setup = format!(
        "mount --rbind /tmp /tmp; mount -o remount,bind,noexec /tmp; mount --bind {bin} {bin}; \
         mount -o remount,bind,exec {bin}; mount -t tmpfs -o mode=700 none /mnt; \
         cp {bin}/turnjail $HOME/control; ! $HOME/control --version 2>/dev/null; rm $HOME/control"
    );
    Around::outer_namespace(&setup)
}

fn r09_noexec_everywhere_until_a_setting_names_another_place() {
    let account = Account::new();
    account.ask("http://127.0.0.1:9/", "");
    let around = noexec();
    let doctor = around.run(&account, &["doctor", "--json"]);
    assert_eq!(doctor.code, 2, "{doctor:?}");
    let found = doctor.json();
    let place = found["checks"].as_array().unwrap().iter().find(|check| check["code"] == "noexec");
    let said = place.unwrap_or_else(|| panic!("{found:#}"));
    assert!(said["evidence"].as_str().unwrap().contains("(/tmp)"), "the mount: {said:#}");
    assert!(said["remedy"].as_str().unwrap().contains("directories.images"), "{said:#}");
    for command in [&["turn", "hi"][..], &["image", "import", "/dev/null", "x"]] {
        let refused = around.run(&account, command);
        refused.assert_refused(2, "noexec");
        assert!(refused.err.contains("directories.images"), "the setting: {refused:?}");
        assert!(refused.err.contains("/tmp/turnjail-cli-"), "the place: {refused:?}");
    }
    // The place is a setting; everything else stays where no program may be started.
    account.ask("http://127.0.0.1:9/", "[directories]\nimages = \"/mnt/images\"\n");
    let doctor = around.run(&account, &["doctor", "--json"]);
    assert_eq!(doctor.code, 0, "{doctor:?}");
    let found = doctor.json();
    let checks = found["checks"].as_array().unwrap();
    let warning = checks.iter().find(|check| check["code"] == "noexec-workspace");
    assert_eq!(warning.unwrap()["state"], "degraded", "{found:#}");
    around.run(&account, &["turn", "hi"]).assert_refused(1, "model");
}

/// A file system with these flags at the place of workspaces.
pub fn workspaces(flags: &str) -> String {
    let place = "\"$HOME/.local/share/turnjail/workspaces\"";
    format!("mkdir -m 700 -p {place}; mount -t tmpfs -o {flags},mode=700 none {place}")
}

fn r09_a_noexec_workspace_is_a_warning() {
    let setup = workspaces("noexec");
    Around::outer_namespace(&setup).must_degrade("noexec-workspace", "directories.workspaces");
}

fn r07_a_read_only_place_for_workspaces_is_refused() {
    let account = Account::new();
    account.ask("http://127.0.0.1:9/", "");
    let run = Around::outer_namespace(&workspaces("ro")).run(&account, &["turn", "hi"]);
    run.assert_refused(2, "Read-only file system");
    assert!(run.err.contains("turnjail/workspaces"), "{run:?}");
}
