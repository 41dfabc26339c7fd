//! The table of numbers against two tables that others keep.

use std::collections::HashMap;

use crate::seccomp::{
    machine::Machine,
    numbers::{ALL, Call},
};

/// The names under which the other table has them, or for which it is wrong: its aarch64 list calls
/// newfstatat fstatat, and has the calls of 32 bit machines.
fn same_name(machine: Machine, name: &str) -> Option<&str> {
    match (machine, name) {
        (Machine::Aarch64, "fstatat") => Some("newfstatat"),
        (Machine::Aarch64, name) if name.ends_with("64") && name.contains("time") => None,
        (_, name) => Some(name),
    }
}

fn compare(machine: Machine, others: impl Iterator<Item = (&'static str, u32)>) {
    let mut ours: HashMap<&str, u32> =
        ALL.iter().filter_map(|call| Some((call.name, call.number(machine)?))).collect();
    for (name, number) in others {
        let Some(name) = same_name(machine, name) else { continue };
        assert_eq!(ours.remove(name), Some(number), "{name} on {machine:?}");
    }
    // Newer than that table; from the kernel's own.
    ours.retain(|name, _| !["uretprobe", "uprobe"].contains(name));
    assert!(ours.is_empty(), "only ours on {machine:?}: {ours:?}");
}

#[test]
fn agrees_with_the_table_of_another_project() {
    use syscalls::{aarch64, x86_64};
    let numbers = 0..1000;
    compare(
        Machine::X86_64,
        numbers.clone().filter_map(|n| Some((x86_64::Sysno::new(n as usize)?.name(), n))),
    );
    compare(
        Machine::Aarch64,
        numbers.filter_map(|n| Some((aarch64::Sysno::new(n as usize)?.name(), n))),
    );
}

#[test]
fn agrees_with_the_headers_of_the_c_library() {
    use crate::seccomp::numbers as ours;
    macro_rules! same {
        ($($ours:ident = $libc:ident,)*) => {
            $(assert_eq!(
                ours::$ours.number(Machine::NATIVE),
                Some(libc::$libc as u32),
                stringify!($ours)
            );)*
        };
    }
    same! {
        READ = SYS_read, OPENAT = SYS_openat, EXECVE = SYS_execve, CLONE = SYS_clone,
        SOCKET = SYS_socket, PTRACE = SYS_ptrace, MOUNT = SYS_mount, UNSHARE = SYS_unshare,
        PRCTL = SYS_prctl, IOCTL = SYS_ioctl, NEWFSTATAT = SYS_newfstatat, STATX = SYS_statx,
        SECCOMP = SYS_seccomp, BPF = SYS_bpf, IO_URING_SETUP = SYS_io_uring_setup,
        CLONE3 = SYS_clone3, OPENAT2 = SYS_openat2, LANDLOCK_RESTRICT_SELF = SYS_landlock_restrict_self,
        FCHMODAT2 = SYS_fchmodat2, MSEAL = SYS_mseal,
    }
}

#[test]
fn no_number_and_no_name_stands_twice() {
    for machine in [Machine::X86_64, Machine::Aarch64] {
        let mut seen = HashMap::new();
        for call in ALL {
            if let Some(number) = call.number(machine) {
                assert_eq!(seen.insert(number, call.name), None, "{} on {machine:?}", call.name);
                assert_eq!(Call::find(machine, number), Some(call));
            }
        }
    }
}
