//! Starting the warden's program.
//!
//! It is executed from a sealed memfd, with an empty environment and nothing but its end of the socket:
//! no secret of this process can reach it.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::Pid;
use turnjail_warden::trial::{self, Block, Outcome};

use crate::StartError;

static PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/warden"));

/// Starts the warden and gives back the host's end of its socket, in non-blocking mode, and the number of
/// the started process.
///
/// The started process only keeps the warden proper, which ends when that socket closes; a thread waits
/// for it, so that it never stays behind as a zombie.
pub(crate) fn start() -> Result<(OwnedFd, Pid), StartError> {
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .map_err(|e| StartError::host("make a socket pair", e))?;
    rustix::io::ioctl_fionbio(&ours, true).map_err(|e| StartError::host("set up a socket", e))?;
    let program = program()?;
    let mut keeper = Command::new(format!("/proc/self/fd/{}", program.as_raw_fd()))
        .env_clear()
        // From its first moment out of reach of a Ctrl-C that is meant for the host.
        .process_group(0)
        .stdin(Stdio::from(theirs))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|e| StartError::execute(&e))?;
    let pid = Pid::from_child(&keeper);
    std::thread::Builder::new()
        .name("turnjail-keeper".to_owned())
        .stack_size(64 * 1024)
        .spawn(move || keeper.wait())
        .map_err(|e| StartError::host("start a thread", errno(&e)))?;
    Ok((ours, pid))
}

/// Has the same program try each building block of a jail on its own. Blocks for as long as that takes,
/// which the program bounds itself.
pub(crate) fn try_blocks() -> Result<Vec<(Block, Outcome)>, StartError> {
    let program = program()?;
    let tried = Command::new(format!("/proc/self/fd/{}", program.as_raw_fd()))
        .arg(trial::ARGUMENT)
        .env_clear()
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .map_err(|e| StartError::execute(&e))?;
    postcard::from_bytes(&tried.stdout).map_err(|_| StartError::WardenKilled)
}

/// A write past the limit of file sizes is death by SIGXFSZ, into a memfd, too: better said than died of.
/// The built-in image's files must fit in it as well; they are about as large.
pub(crate) fn check_file_size() -> Result<(), StartError> {
    const NEEDED: u64 = 8 * 1024 * 1024;
    const { assert!(PROGRAM.len() as u64 * 2 < NEEDED) };
    match rustix::process::getrlimit(rustix::process::Resource::Fsize).current {
        Some(bytes) if bytes < NEEDED => {
            Err(StartError::host("copy the warden into memory", Errno::FBIG))
        }
        _ => Ok(()),
    }
}

/// The program in a memfd that nobody can change any more.
fn program() -> Result<File, StartError> {
    check_file_size()?;
    in_memory().map_err(|e| match e {
        // vm.memfd_noexec forbids executable ones.
        Errno::ACCESS | Errno::PERM => StartError::Execute(e),
        other => StartError::host("copy the warden into memory", other),
    })
}

fn in_memory() -> Result<File, Errno> {
    // The flag for executable memfds is unknown before Linux 6.3, where all are executable.
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let memfd = match memfd_create(c"turnjail-warden", flags | MemfdFlags::EXEC) {
        Err(Errno::INVAL) => memfd_create(c"turnjail-warden", flags)?,
        other => other?,
    };
    let mut file = File::from(memfd);
    file.write_all(PROGRAM).map_err(|e| errno(&e))?;
    let seals = SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
    fcntl_add_seals(&file, seals)?;
    Ok(file)
}

fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}
