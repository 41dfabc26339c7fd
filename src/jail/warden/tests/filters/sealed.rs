//! The sealed profile in the kernel.

use turnjail_warden::seccomp::{
    Filter, FilterOptions, Profile,
    machine::Machine,
    numbers::{self, ALL},
    program, rules,
};

use super::child::{End, FILTERED, abort, address_mut, attempt, call, numbered, pipe};

/// Bits that the kernel ignores in a 32 bit argument.
const HIGH: u64 = 0xdead_beef << 32;

fn sealed() -> Filter {
    program(Profile::Sealed, &FilterOptions::default())
}

/// Whether the act works without the filter and is death with it.
fn assert_death(what: &str, act: impl Fn() -> i64) {
    let control = attempt(None, &act);
    assert!(matches!(control, End::Value(0..)), "{what} fails anyway: {control:?}");
    assert_eq!(attempt(Some(&sealed()), &act), FILTERED, "{what}");
}

fn assert_allowed(what: &str, act: impl Fn() -> i64) {
    let end = attempt(Some(&sealed()), act);
    assert!(matches!(end, End::Value(0..)), "{what}: {end:?}");
}

#[test]
fn what_is_not_listed_is_death() {
    let rules = rules(Profile::Sealed, &FilterOptions::default());
    let listed = |number| rules.iter().any(|rule| rule.number(Machine::NATIVE) == Some(number));
    let mut tried = 0;
    for number in ALL.iter().filter_map(|call| call.number(Machine::NATIVE)).chain(470..530) {
        // Since 6.14 the kernel asks no filter about these two; it ends whoever calls them unasked.
        let passed_by = [numbers::URETPROBE, numbers::UPROBE];
        let passed_by = passed_by.map(|call| call.number(Machine::NATIVE));
        if !listed(number) && !passed_by.contains(&Some(number)) {
            assert_eq!(
                attempt(Some(&sealed()), || numbered(number.into(), &[])),
                FILTERED,
                "{number}"
            );
            tried += 1;
        }
    }
    assert!(tried > 300, "only {tried} calls are not listed");
    assert_death("getppid", || call(numbers::GETPPID, &[]));
    let [end, _] = pipe();
    assert_death("an ioctl", || {
        let mut waiting = 0_i32;
        let place = address_mut(&mut waiting);
        call(numbers::IOCTL, &[end as u64, 0x541b, place])
    });
    assert_death("dup", || call(numbers::DUP, &[2]));
    assert_death("umask", || call(numbers::UMASK, &[0o77]));
}

#[test]
fn no_processes_and_threads() {
    let fork = || match call(numbers::CLONE, &[17, 0, 0, 0, 0]) {
        0 => call(numbers::EXIT_GROUP, &[0]),
        pid => pid,
    };
    assert_death("clone", fork);
}

#[test]
fn only_streams_of_the_unix_family() {
    const STREAM: u64 = 0x8_0001;
    for (family, kind, protocol) in [
        (2, STREAM, 0),
        (10, 0x8_0002, 0),
        (16, 0x8_0003, 0),
        (1, 0x8_0002, 0),
        (1, 0x8_0005, 0),
        (HIGH | 2, STREAM, 0),
        (1, STREAM, 1),
    ] {
        assert_death("a socket", || call(numbers::SOCKET, &[family, kind, protocol]));
    }
    assert_allowed("a socket", || call(numbers::SOCKET, &[1, STREAM, 0]));
}

#[test]
fn no_executable_memory() {
    assert_death("mmap", || call(numbers::MMAP, &[0, 4096, 7, 0x22, u64::MAX, 0]));
    assert_death("mmap, high bits", || call(numbers::MMAP, &[0, 4096, 5, 0x22, u64::MAX, 0]));
    assert_death("mprotect", || {
        let page = call(numbers::MMAP, &[0, 4096, 3, 0x22, u64::MAX, 0]);
        call(numbers::MPROTECT, &[page as u64, 4096, 5])
    });
    assert_allowed("memory", || call(numbers::MMAP, &[0, 4096, 3, 0x22, u64::MAX, 0]));
}

#[test]
fn limits_are_only_read() {
    let mut limit = [0_u64; 2];
    let place = address_mut(&mut limit);
    assert_allowed("reading", || call(numbers::PRLIMIT64, &[0, 3, 0, place]));
    assert_death("writing", || {
        call(numbers::PRLIMIT64, &[0, 3, 0, place]);
        call(numbers::PRLIMIT64, &[0, 3, place, 0])
    });
}

#[test]
fn aborting_is_an_abort() {
    assert_eq!(attempt(None, || abort()), End::Signal(libc::SIGABRT));
    assert_eq!(attempt(Some(&sealed()), || abort()), End::Signal(libc::SIGABRT));
}

#[test]
fn the_clock_can_be_asked_without_the_vdso() {
    let mut time = [0_u64; 2];
    let place = address_mut(&mut time);
    assert_allowed("clock_gettime", || call(numbers::CLOCK_GETTIME, &[0, place]));
}

#[test]
fn memory_is_given_back() {
    assert_allowed("madvise", || {
        let page = call(numbers::MMAP, &[0, 4096, 3, 0x4022, u64::MAX, 0]) as u64;
        call(numbers::MADVISE, &[page, 4096, 4])
    });
    assert_death("other advice", || {
        let page = call(numbers::MMAP, &[0, 4096, 3, 0x22, u64::MAX, 0]) as u64;
        call(numbers::MADVISE, &[page, 4096, 3])
    });
}

#[test]
fn the_kernels_version_can_be_asked() {
    let mut names = [0_u8; 6 * 65];
    let place = address_mut(&mut names);
    assert_allowed("uname", || call(numbers::UNAME, &[place]));
}

#[test]
fn no_mapping_of_a_file() {
    let file = std::fs::File::open("/proc/self/exe").expect("this program");
    let file = std::os::fd::AsRawFd::as_raw_fd(&file) as u64;
    assert_death("mapping a file", || call(numbers::MMAP, &[0, 4096, 1, 2, file, 0]));
}
