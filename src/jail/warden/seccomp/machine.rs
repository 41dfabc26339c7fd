//! The machines that a filter can be made for.

/// A processor architecture. A filter serves exactly one: a call that is made through the door of
/// another (the 32 bit entry of an x86_64 kernel) has other numbers, and is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Machine {
    /// x86_64, without its x32 numbers.
    X86_64,
    /// aarch64.
    Aarch64,
}

impl Machine {
    /// The machine this program is built for.
    #[cfg(target_arch = "x86_64")]
    pub const NATIVE: Self = Self::X86_64;
    /// The machine this program is built for.
    #[cfg(target_arch = "aarch64")]
    pub const NATIVE: Self = Self::Aarch64;

    /// The kernel's `AUDIT_ARCH_*` value, which it hands to the filter beside the number.
    pub const fn audit_architecture(self) -> u32 {
        match self {
            Self::X86_64 => 0xc000_003e,
            Self::Aarch64 => 0xc000_00b7,
        }
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("turnjail's system call filters exist for x86_64 and aarch64 only");
