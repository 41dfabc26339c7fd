//! Calls through the doors of other architectures: the 32 bit entry, and x32 numbers.
#![allow(unsafe_code)]

use turnjail_warden::seccomp::{FilterOptions, Profile, program};

use super::child::{End, FILTERED, attempt, numbered, refused};

/// A call through the 32 bit entry. Only the low halves of the registers count there.
fn int80(number: u32, first: u32, second: u32) -> i64 {
    let mut value = i64::from(number);
    // SAFETY: the entry leaves every register but rax as it is (r8 to r11 aside); rbx belongs to the
    // compiler, so it is exchanged and put back.
    unsafe {
        std::arch::asm!(
            "xchg {first:r}, rbx",
            "int 0x80",
            "xchg {first:r}, rbx",
            first = inout(reg) u64::from(first) => _,
            inout("rax") value,
            in("rcx") u64::from(second),
            in("rdx") 0_u64,
            in("rsi") 0_u64,
            in("rdi") 0_u64,
            out("r8") _, out("r9") _, out("r10") _, out("r11") _,
        );
    }
    i64::from(value as i32)
}

/// Arguments of socketcall(SYS_SOCKET): a place below 4 GiB that holds `AF_INET, SOCK_STREAM, 0`.
fn socket_arguments() -> u32 {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_32BIT;
    // SAFETY: a new mapping, never unmapped; three words are written at its start.
    unsafe {
        let page = libc::mmap(std::ptr::null_mut(), 4096, protection, flags, -1, 0);
        assert_ne!(page, libc::MAP_FAILED);
        page.cast::<[u32; 3]>().write([2, 1, 0]);
        page as u32
    }
}

const GETPID_32: u32 = 20;
const SOCKETCALL_32: u32 = 102;
const MOUNT_32: u32 = 21;
const KEYCTL_32: u32 = 288;
const X32: i64 = 0x4000_0000;

#[test]
fn the_32_bit_entry_is_death() {
    let arguments = socket_arguments();
    let calls =
        [(GETPID_32, 0, 0), (SOCKETCALL_32, 1, arguments), (MOUNT_32, 0, 0), (KEYCTL_32, 0, 0)];
    for (number, first, second) in calls {
        let act = || int80(number, first, second);
        // Kernels without the entry raise SIGSEGV; then there is no door to close.
        let control = attempt(None, act);
        assert_ne!(control, FILTERED);
        if number == GETPID_32 {
            assert!(matches!(control, End::Value(1..) | End::Signal(libc::SIGSEGV)), "{control:?}");
        }
        if number == SOCKETCALL_32 {
            assert!(matches!(control, End::Value(3..) | End::Signal(libc::SIGSEGV)), "{control:?}");
        }
        for profile in [Profile::Sealed, Profile::General] {
            let filter = program(profile, &FilterOptions::default());
            assert_eq!(attempt(Some(&filter), act), FILTERED, "{number} under {profile}");
        }
    }
}

#[test]
fn x32_numbers_are_death() {
    for number in [libc::SYS_getpid, libc::SYS_read, libc::SYS_socket, 512, 545] {
        let act = || numbered(X32 | number, &[0, 0, 0]);
        assert_ne!(attempt(None, act), FILTERED);
        for profile in [Profile::Sealed, Profile::General] {
            let filter = program(profile, &FilterOptions::default());
            assert_eq!(attempt(Some(&filter), act), FILTERED, "{number} under {profile}");
        }
    }
    // The same number through the proper door is only unknown.
    let filter = program(Profile::General, &FilterOptions::default());
    assert_eq!(attempt(Some(&filter), || numbered(0x3fff_ffff, &[])), refused(libc::ENOSYS));
}
