//! R18: descriptors that a host has let slip, with numbers that loops do not get to.

use std::fs::File;
use std::os::fd::{AsRawFd as _, IntoRawFd as _, RawFd};
use std::os::unix::net::UnixStream;

use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde_json::json;
use turnjail_jail::Profile;
use turnjail_tests::jails::{Bench, private_dir};

/// A copy of a descriptor that is not closed at exec, at this number or the next free one.
fn let_slip(descriptor: impl std::os::fd::AsFd, number: RawFd) -> RawFd {
    fcntl(descriptor.as_fd(), FcntlArg::F_DUPFD(number)).expect("a copy")
}

/// A secret file at a low number, a directory of the host at 900, a connected socket at 3000 or as high as
/// can be; then the limit is lowered below them, so that no loop up to it would find them.
pub fn r18() {
    let dir = private_dir();
    std::fs::write(dir.path().join("secret"), "secret").expect("a file");
    let secret = File::open(dir.path().join("secret")).expect("it");
    let directory = File::open(dir.path()).expect("it");
    let (socket, other) = UnixStream::pair().expect("sockets");
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("the limit");
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).expect("raised");
    let highest = i32::try_from(hard - 1).unwrap_or(3_000).min(3_000);
    let slipped = [let_slip(&secret, 7), let_slip(&directory, 900), let_slip(&socket, highest)];
    // Other tests of this program run at once and need more than a few.
    setrlimit(Resource::RLIMIT_NOFILE, 256.min(soft), hard).expect("lowered");
    let bench = Bench::new();
    let acts = [json!(["descriptors"]), json!(["list", "/proc/self/fd/900/.."])];
    let control = bench.outside(&acts[..1]);
    let has = |number: RawFd| control.list(0).iter().any(|one| one[0] == number);
    assert!(slipped.iter().all(|&number| has(number)), "the control has none: {control:?}");
    for profile in [Profile::Sealed, Profile::General] {
        let report = bench.acts(profile, &acts);
        let numbers: Vec<_> = report.list(0).iter().map(|one| &one[0]).collect();
        assert_eq!(numbers, [0, 1, 2], "{profile}");
        assert!(report.last_error().is_some(), "{profile}: {report:?}");
    }
    setrlimit(Resource::RLIMIT_NOFILE, soft, hard).expect("as it was");
    for number in slipped {
        nix::unistd::close(number).expect("closed");
    }
    drop((secret.as_raw_fd(), directory.into_raw_fd(), other));
}
