//! A01 to A07: how the jail is built.

use std::fs::{self, File};
use std::os::fd::AsFd as _;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use serde_json::{Value, json};
use turnjail_jail::Profile;
use turnjail_tests::Test;
use turnjail_tests::acts::call;
use turnjail_tests::jails::{Bench, PROBE};
use turnjail_warden::seccomp::numbers;

use crate::support::{HERE, PROFILES, assert_refused};

pub const TESTS: &[Test] = &[
    Test::new("a01_the_runtime_cannot_be_overwritten", a01_runtime),
    Test::new("a01_a_program_through_a_magic_link_is_refused", a01_entry),
    Test::new("a02_a_working_directory_stays_inside", a02),
    Test::new("a03_descriptors_are_three_pipes", a03),
    Test::new("a05_no_kernel_files", a05),
    Test::new("a06_traps_at_mount_points_stop_the_start", a06),
    Test::new("a07_devices_are_not_the_images", a07),
];

const ENOENT: i32 = 2;
const EACCES: i32 = 13;
const EROFS: i32 = 30;

const WRITE: i64 = 1;

fn open(path: &str, flags: i64) -> Value {
    call(numbers::OPENAT, json!([HERE, path, flags, 0]))
}

fn a01_runtime() {
    let bench = Bench::new();
    let copy = bench.path("copy");
    fs::write(&copy, PROBE).expect("a copy");
    for &profile in PROFILES {
        let control = [open(&copy.to_string_lossy(), WRITE)];
        let program = [open("/worker", WRITE)];
        assert_refused(&bench, profile, "its program", &[EACCES, EROFS], &control, &program);
        for path in ["/proc/self/exe", "/proc/1/exe", "/proc/self/root/worker"] {
            let write = [open(path, WRITE)];
            assert_refused(&bench, profile, path, &[ENOENT, EACCES, EROFS], &control, &write);
        }
    }
    let program = fs::read(bench.path("root").join("worker")).expect("the program");
    assert!(program == PROBE, "the program was changed");
}

fn a01_entry() {
    let bench = Bench::new();
    let root = bench.path("root");
    symlink("/proc/self/exe", root.join("magic")).expect("a link");
    symlink("worker", root.join("plain")).expect("a link");
    fs::write(root.join("script"), "#!/proc/self/exe\n").expect("a script");
    let mode = fs::metadata(root.join("worker")).expect("the program").permissions();
    fs::set_permissions(root.join("script"), mode).expect("its mode");
    for &profile in PROFILES {
        let run = |program: &str| {
            let mut spec = bench.spec_for(profile, &[json!(["print", "ran"])]);
            program.clone_into(&mut spec.command[0]);
            bench.run(&spec, b"")
        };
        let control = run("/plain").expect("a link within the image is followed");
        assert!(control.stdout.starts_with(b"ran"), "{control:?}");
        for program in ["/magic", "/script"] {
            assert!(run(program).is_err(), "{program} was started");
        }
    }
}

fn a02() {
    let bench = Bench::new();
    let root = bench.path("root");
    let up = "../".repeat(20) + "etc";
    symlink(&up, root.join("up")).expect("a link");
    symlink("/etc", root.join("absolute")).expect("a link");
    fs::write(root.join("file"), "").expect("a file");
    assert!(fs::read_dir(root.join("up")).is_ok(), "the control leads nowhere");
    let outside: Vec<String> = ["up", "absolute", "missing", "file", "workspace/../../../../etc"]
        .iter()
        .map(|name| format!("/{name}"))
        .chain((0..64).map(|number| format!("/proc/self/fd/{number}")))
        .chain(["..".to_owned(), up, "/../../../etc".to_owned()])
        .collect();
    for &profile in PROFILES {
        for directory in &outside {
            let acts =
                [json!(["status", "."]), json!(["status", "../../../.."]), json!(["status", "/"])];
            let mut spec = bench.spec_for(profile, &acts);
            directory.clone_into(&mut spec.working_dir);
            // Refusing to start is right too.
            if bench.run(&spec, b"").is_err() {
                continue;
            }
            let report = bench.acts_in(&spec, b"");
            let place = |act: usize| [&report.list(act)[1], &report.list(act)[2]];
            assert_eq!(place(0), place(2), "{directory} led to somewhere else than the root");
            assert_eq!(place(1), place(2), "{directory}");
        }
        let mut spec = bench.spec_for(profile, &[json!(["status", "."])]);
        "/workspace".clone_into(&mut spec.working_dir);
        let inode = nix::sys::stat::stat(&bench.path("workspace")).expect("it is there").st_ino;
        assert_eq!(bench.acts_in(&spec, b"").list(0)[2], inode);
    }
}

fn a03() {
    let own = tempfile::tempdir().expect("a directory");
    let key = own.path().join("key");
    fs::write(&key, "secret").expect("a file");
    let (socket, _other) = UnixDatagram::pair().expect("sockets");
    let (directory, key) = (File::open(own.path()).expect("it"), File::open(key).expect("it"));
    for descriptor in [socket.as_fd(), directory.as_fd(), key.as_fd()] {
        fcntl(descriptor, FcntlArg::F_SETFD(FdFlag::empty())).expect("inheritable");
    }
    // After them: the warden is started with what this process lets through.
    let bench = Bench::new();
    let acts = [json!(["descriptors"])];
    assert!(bench.outside(&acts).list(0).len() >= 6, "the control does not inherit them");
    for &profile in PROFILES {
        let report = bench.acts(profile, &acts);
        let numbers: Vec<&Value> = report.list(0).iter().map(|one| &one[0]).collect();
        assert_eq!(numbers, [0, 1, 2]);
        for one in report.list(0) {
            const FIFO: u64 = 0o010_000;
            assert_eq!(one[1].as_u64().expect("a mode") & 0o170_000, FIFO, "{one}");
        }
    }
}

fn a05() {
    let bench = Bench::new();
    let control = [json!(["read", "/proc/sys/kernel/core_pattern"]), json!(["list", "/sys"])];
    assert!(bench.outside(&control).worked(), "the host has none either");
    let paths = [
        "/proc/sys/kernel/core_pattern",
        "/proc/sysrq-trigger",
        "/proc/kcore",
        "/proc/kmsg",
        "/proc/keys",
        "/proc/timer_list",
        "/proc/bus",
        "/proc/irq",
        "/proc/acpi",
        "/proc/scsi",
        "/sys",
        "/sys/fs/cgroup",
    ];
    let acts: Vec<Value> =
        paths.iter().flat_map(|path| [open(path, 0), open(path, WRITE)]).collect();
    for &profile in PROFILES {
        let report = bench.acts(profile, &acts);
        assert_eq!(report.lines.len(), acts.len(), "{report:?}");
        for (line, act) in report.lines.iter().zip(&acts) {
            assert_eq!(line["errno"], ENOENT, "{act} under {profile}");
        }
    }
    // A general jail has entries of its own processes. None of them can be written.
    let control = bench.outside(&[open("/proc/self/oom_score_adj", WRITE)]);
    assert!(control.worked(), "the host cannot write its own either: {control:?}");
    for name in ["attr/current", "oom_score_adj", "uid_map", "setgroups", "mem", "clear_refs"] {
        let path = format!("/proc/self/{name}");
        let report = bench.acts(Profile::General, &[open(&path, WRITE)]);
        let refused = [EACCES, EROFS].map(|errno| Some(errno.into()));
        assert!(refused.contains(&report.last_error()), "{name}: {report:?}");
    }
}

fn a06() {
    for &profile in PROFILES {
        for name in ["workspace", "broker", "channel", "tmp", "proc", "dev"] {
            if profile == Profile::Sealed && ["proc", "dev"].contains(&name) {
                continue;
            }
            let bench = Bench::new();
            let outside = bench.path("outside");
            fs::create_dir(&outside).expect("a directory");
            let ran = || bench.run(&bench.spec(profile, &[]), b"");
            ran().expect("without a trap it starts");
            let place = bench.path("root").join(name);
            fs::remove_dir(&place).expect("an empty directory");
            let relative = Path::new("../outside");
            let dangling = outside.join("new");
            for target in [outside.as_path(), relative, dangling.as_path(), Path::new("/")] {
                symlink(target, &place).expect("a link");
                let error = ran().expect_err("a link is followed");
                assert_eq!(error.code(), "mount-point", "{name} to {}: {error}", target.display());
                fs::remove_file(&place).expect("the link");
            }
            fs::write(&place, "").expect("a file");
            assert!(ran().is_err(), "a file at {name}");
            let left = fs::read_dir(&outside).expect("it is there").count();
            assert_eq!(left, 0, "something was made outside of the jail");
        }
    }
}

fn a07() {
    let bench = Bench::new();
    let secret = bench.path("secret");
    fs::write(&secret, "untouched").expect("a file");
    let dev = bench.path("root").join("dev");
    symlink(&secret, dev.join("null")).expect("a link");
    fs::write(dev.join("zero"), "no zeroes").expect("a file");
    fs::create_dir(dev.join("random")).expect("a directory");
    symlink("/proc/self/mem", dev.join("full")).expect("a link");
    assert!(bench.outside(&[json!(["write", dev.join("null"), "x"])]).worked());
    assert_eq!(fs::read_to_string(&secret).expect("it"), "x", "the control leads nowhere");
    let names = [("null", 3), ("zero", 5), ("full", 7), ("random", 8), ("urandom", 9)];
    let mut acts: Vec<Value> =
        names.iter().map(|(name, _)| json!(["status", format!("/dev/{name}")])).collect();
    acts.push(json!(["write", "/dev/null", "y"]));
    let report = bench.acts(Profile::General, &acts);
    for (line, (name, minor)) in report.lines.iter().zip(names) {
        let (mode, device) = (line["list"][0].as_u64(), line["list"][6].as_u64());
        assert_eq!(mode.map(|mode| mode & 0o170_000), Some(0o020_000), "{name}: {line}");
        assert_eq!(device, Some(nix::sys::stat::makedev(1, minor)), "{name}: {line}");
    }
    assert_eq!(report.value(names.len()), 1);
    assert_eq!(fs::read_to_string(&secret).expect("it"), "x", "the image's link was followed");
    for act in [
        json!(["write", "/dev/new", "x"]),
        call(numbers::RENAMEAT, json!([HERE, "/dev/null", HERE, "/dev/other"])),
        call(numbers::UNLINKAT, json!([HERE, "/dev/zero", 0])),
        call(numbers::SYMLINKAT, json!(["/", HERE, "/dev/link"])),
    ] {
        let report = bench.acts(Profile::General, std::slice::from_ref(&act));
        let refused = [EACCES, EROFS].map(|errno| Some(errno.into()));
        assert!(refused.contains(&report.last_error()), "{act}: {report:?}");
    }
}
