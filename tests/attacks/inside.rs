//! What a program finds in a jail: seen from within, and from outside where the sealed profile lets it
//! look at nothing.

use std::fs;

use serde_json::json;
use turnjail_jail::Profile;
use turnjail_tests::acts::call;
use turnjail_tests::jails::Bench;
use turnjail_tests::{Fact, Test};
use turnjail_warden::seccomp::numbers;

use crate::support::{HERE, PROFILES, Process, held};

pub const TESTS: &[Test] = &[
    Test::new("the_program_is_nobody_special", identity),
    Test::new("the_init_of_a_general_jail_is_nobody_special_either", init),
    Test::new("every_namespace_is_its_own", namespaces),
    Test::new("only_the_jails_mounts_are_there", mounts),
    Test::new("the_network_is_empty", network),
    Test::new(SESSION, session),
    Test::new("limits_are_set", limits),
    Test::new("the_environment_is_the_images", environment),
    Test::with("landlock_stands_behind_the_mounts", &[Fact::Jail, Fact::Landlock], landlock),
    Test::with("a_general_jail_makes_no_sockets_in_files", &[Fact::Landlock], landlock_general),
];

fn identity() {
    for &profile in PROFILES {
        identity_of(profile);
    }
}

fn identity_of(profile: Profile) {
    let bench = Bench::new();
    let (status, report) = held(
        &bench,
        profile,
        &[call(numbers::UNAME, json!([{"buffer": 390}])), json!(["arguments"])],
        Process::status,
    );
    let own = Process::own().status();
    let capabilities = ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"];
    assert!(own["CapBnd"].contains(|digit| digit != '0'), "the control has no bounding set");
    for set in capabilities {
        assert_eq!(status[set], "0000000000000000", "{set}");
    }
    assert_eq!((own["NoNewPrivs"].as_str(), own["Seccomp"].as_str()), ("0", "0"), "the control");
    assert_eq!((status["NoNewPrivs"].as_str(), status["Seccomp"].as_str()), ("1", "2"));
    // The host's user, whose files it writes, in every place.
    let uid = nix::unistd::geteuid().to_string();
    assert!(status["Uid"].split_whitespace().all(|id| id == uid), "{}", status["Uid"]);
    let gid = nix::unistd::getegid().to_string();
    assert!(status["Gid"].split_whitespace().all(|id| id == gid), "{}", status["Gid"]);
    let (umask, number) = match profile {
        Profile::Sealed => ("0077", "\t1"),
        // After its init.
        Profile::General => ("0022", "\t2"),
    };
    assert_eq!(status["Umask"], umask);
    assert!(status["NSpid"].ends_with(number), "{}", status["NSpid"]);
    assert_eq!(status["Threads"], "1");
    let names = report.buffer(0, 0);
    let host = names[65..].split(|&byte| byte == 0).next();
    assert_eq!(host, Some(b"sandbox".as_slice()));
    assert_eq!(report.list(1)[0], "/worker");
}

fn init() {
    let bench = Bench::new();
    let (status, _) = held(&bench, Profile::General, &[], |process| {
        let init = &process.status()["PPid"];
        Process { dir: std::path::Path::new("/proc").join(init) }.status()
    });
    assert!(status["NSpid"].ends_with("\t1"), "{}", status["NSpid"]);
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert_eq!(status[set], "0000000000000000", "{set}");
    }
    assert_eq!((status["NoNewPrivs"].as_str(), status["Seccomp"].as_str()), ("1", "2"));
    assert_eq!(status["Threads"], "1");
}

fn namespaces() {
    for &profile in PROFILES {
        namespaces_of(profile);
    }
}

fn namespaces_of(profile: Profile) {
    let kinds = ["cgroup", "ipc", "mnt", "net", "pid", "user", "uts"];
    let all = |process: &Process| kinds.map(|kind| process.link(&format!("ns/{kind}")));
    let (one, another) = (Bench::new(), Bench::new());
    // At the same time: the number of a namespace that is gone is used again.
    let ((first, second), _) =
        held(&one, profile, &[], |p| (all(p), held(&another, profile, &[], all).0));
    let own = all(&Process::own());
    for ((kind, own), (first, second)) in kinds.iter().zip(own).zip(first.into_iter().zip(second)) {
        assert_ne!(own, first, "the host's {kind} namespace");
        assert_ne!(first, second, "two jails share a {kind} namespace");
    }
}

/// A mount: where, its own options, its propagation ("shared:N" and the like).
type Mount = (String, Vec<String>, Vec<String>);

fn mount_table(process: &Process) -> Vec<Mount> {
    let line = |line: &str| {
        let (before, _) = line.split_once(" - ").expect("a separator");
        let fields: Vec<&str> = before.split(' ').collect();
        let options = fields[5].split(',').map(str::to_owned).collect();
        let propagation = fields[6..].iter().map(|&field| field.to_owned()).collect();
        (fields[4].to_owned(), options, propagation)
    };
    process.file("mountinfo").lines().map(line).collect()
}

fn mounts() {
    for &profile in PROFILES {
        mounts_of(profile);
    }
}

fn mounts_of(profile: Profile) {
    let bench = Bench::new();
    let (table, _) = held(&bench, profile, &[], mount_table);
    let mut expected = vec![
        ("/", vec!["ro", "nosuid", "nodev"]),
        ("/broker", vec!["ro", "nosuid", "nodev", "noexec"]),
        ("/channel", vec!["rw", "nosuid", "nodev"]),
        ("/tmp", vec!["rw", "nosuid", "nodev", "noexec"]),
        ("/workspace", vec!["rw", "nosuid", "nodev"]),
    ];
    match profile {
        Profile::Sealed => {
            for (_, options) in expected.iter_mut().filter(|(_, options)| options[0] == "rw") {
                options.push("noexec");
            }
        }
        Profile::General => {
            expected.extend([
                ("/dev", vec!["ro", "nosuid", "noexec"]),
                ("/dev/shm", vec!["rw", "nosuid", "nodev", "noexec"]),
                ("/proc", vec!["ro", "nosuid", "nodev", "noexec"]),
            ]);
            // nodev on a device itself would make it useless.
            let devices = ["/dev/full", "/dev/null", "/dev/random", "/dev/urandom", "/dev/zero"];
            expected.extend(devices.map(|device| (device, vec!["nosuid", "noexec"])));
            expected.sort();
        }
    }
    let mut places: Vec<&str> = table.iter().map(|(place, _, _)| place.as_str()).collect();
    places.sort_unstable();
    assert_eq!(places, expected.iter().map(|(place, _)| *place).collect::<Vec<_>>());
    for (place, options) in expected {
        let (_, found, propagation) = table.iter().find(|one| one.0 == place).expect("it is there");
        for option in options {
            assert!(found.iter().any(|one| one == option), "{place} is not {option}: {found:?}");
        }
        assert_eq!(propagation, &Vec::<String>::new(), "{place} is not private");
    }
    // What a path names in the jail is not what it names outside.
    let secret = bench.path("secret");
    fs::write(&secret, "the host's").expect("a file");
    let read = [json!(["read", secret])];
    assert_eq!(bench.outside(&read).text(0), "the host's");
    assert_eq!(bench.acts(profile, &read).last_error(), Some(2));
}

fn network() {
    for &profile in PROFILES {
        network_of(profile);
    }
}

fn network_of(profile: Profile) {
    let bench = Bench::new();
    let interfaces = |process: &Process| {
        let table = process.file("net/dev");
        let name = |line: &str| line.split_once(':').map(|(name, _)| name.trim().to_owned());
        table.lines().skip(2).filter_map(name).collect::<Vec<_>>()
    };
    let ((found, addresses, routes), _) = held(&bench, profile, &[], |process| {
        (interfaces(process), process.file("net/fib_trie"), process.file("net/route"))
    });
    assert_eq!(found, ["lo"]);
    assert_eq!(addresses.trim(), "", "an IPv4 address");
    assert_eq!(routes.lines().skip(1).count(), 0, "a route: {routes}");
    let own = Process::own();
    assert!(!own.file("net/fib_trie").trim().is_empty(), "the control has no address either");
}

/// Fields of `stat` after the program's name: state, parent, group, session, terminal, ...
fn stat(process: &Process) -> Vec<String> {
    let text = process.file("stat");
    let (_, rest) = text.rsplit_once(") ").expect("a name");
    rest.split(' ').map(str::to_owned).collect()
}

/// Set where this program was started on a terminal on purpose.
pub const HAS_TERMINAL: &str = "TURNJAIL_TEST_HAS_TERMINAL";
/// The test that then is run again.
pub const SESSION: &str = "there_is_no_terminal_and_a_session_of_its_own";

fn session() {
    for &profile in PROFILES {
        session_of(profile);
    }
}

fn session_of(profile: Profile) {
    let bench = Bench::new();
    let ((pid, stat), _) = held(&bench, profile, &[], |process| {
        let pid = process.dir.file_name().expect("a pid").to_string_lossy().into_owned();
        (pid, stat(process))
    });
    // Group and session as this process sees them: those of the jailed program itself.
    assert_eq!((&stat[2], &stat[3]), (&pid, &pid), "a group or session of the host's");
    assert_eq!(stat[4], "0", "a controlling terminal");
    if std::env::var_os(HAS_TERMINAL).is_some() {
        assert_ne!(self::stat(&Process::own())[4], "0", "the control has no terminal");
    }
    for device in ["/dev/tty", "/dev/ptmx", "/dev/pts", "/dev/console", "/dev/mem", "/dev/kvm"] {
        let open = call(numbers::OPENAT, json!([HERE, device, 0, 0]));
        assert_eq!(bench.acts(profile, &[open]).last_error(), Some(2), "{device}");
    }
}

fn limits() {
    for &profile in PROFILES {
        limits_of(profile);
    }
}

fn limits_of(profile: Profile) {
    let bench = Bench::new();
    let (table, _) = held(&bench, profile, &[], |process| process.file("limits"));
    let limit = |name: &str| {
        let line = table.lines().find(|line| line.starts_with(name)).expect("a limit");
        let values: Vec<&str> = line[name.len()..].split_whitespace().take(2).collect();
        values.iter().map(|value| value.parse().unwrap_or(u64::MAX)).collect::<Vec<_>>()
    };
    // Not 0: a core file's size of 1 is what keeps a handler that runs as root from being started.
    assert_eq!(limit("Max core file size"), [1, 1]);
    assert_eq!(limit("Max open files"), [256, 256]);
    if profile == Profile::Sealed {
        assert_eq!(limit("Max address space"), [512 << 20, 512 << 20]);
    }
    assert_eq!(limit("Max locked memory"), [0, 0]);
    assert_eq!(limit("Max msgqueue size"), [0, 0]);
    // 64, and a general image's init; where a group holds them, the group is to refuse first.
    if Fact::Processes.is_here() {
        let most = 65 + u64::from(Fact::Cgroup.is_here());
        assert!(limit("Max processes").iter().all(|&limit| limit <= most), "{table}");
    }
    assert!(limit("Max file size").iter().all(|&most| most <= 1 << 30), "{table}");
    assert!(limit("Max cpu time").iter().all(|&most| most <= 10), "{table}");
}

fn environment() {
    for &profile in PROFILES {
        environment_of(profile);
    }
}

fn environment_of(profile: Profile) {
    let bench = Bench::new();
    let mut spec = bench.spec_for(profile, &[json!(["environment"])]);
    spec.environment = vec!["IMAGE=says so".to_owned(), "LD_PRELOAD=/workspace/x.so".to_owned()];
    let report = bench.acts_in(&spec, b"");
    let path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    let home = "HOME=/tmp/home";
    let expected = ["IMAGE=says so", "LD_PRELOAD=/workspace/x.so", path, home];
    assert_eq!(report.list(0), expected);
    // The host's own has more, some of it secret.
    let control = bench.outside(&[json!(["environment"])]);
    assert!(control.list(0).len() > 2, "the control has no environment to leak");
    let home = bench.acts(profile, &[json!(["write", "/tmp/home/x", "x"])]);
    assert!(home.worked(), "{home:?}");
}

fn landlock() {
    let bench = Bench::new();
    let list = [json!(["list", "/"])];
    let mut without = bench.spec_for(Profile::Sealed, &list);
    without.landlock = false;
    assert!(bench.acts_in(&without, b"").worked(), "the mounts refuse it already");
    assert_eq!(bench.acts(Profile::Sealed, &list).last_error(), Some(13));
    // Nothing but the program can be executed, and it can.
    fs::copy(bench.path("root").join("worker"), bench.path("root").join("other")).expect("a copy");
    let execute = [json!(["execute", "/other", "[\"print\",\"other\"]"])];
    assert_eq!(bench.acts(Profile::Sealed, &execute).last_error(), Some(13));
    let mut without = bench.spec_for(Profile::Sealed, &execute);
    without.landlock = false;
    let ended = bench.run(&without, b"").expect("a jail");
    assert!(ended.stdout.starts_with(b"other"), "{ended:?}");
    let again = bench.acts(Profile::Sealed, &[json!(["execute", "/worker", "[\"sleep\",0]"])]);
    assert!(again.last_error().is_none(), "{again:?}");
}

fn landlock_general() {
    let bench = Bench::new();
    // A socket bound to a name in the workspace: family, "/workspace/s", NUL.
    let address = "01002f776f726b73706163652f7300";
    let length = address.len() / 2;
    let socket = call(numbers::SOCKET, json!([1, 1, 0]));
    let bind = call(numbers::BIND, json!([{"of": 0}, {"hex": address}, length]));
    let acts = [socket, bind];
    assert_eq!(bench.acts(Profile::General, &acts).last_error(), Some(13));
    let mut without = bench.spec_for(Profile::General, &acts);
    without.landlock = false;
    assert!(bench.acts_in(&without, b"").worked(), "the mounts refuse it already");
}
