//! What the kernel will really execute for an image's program, followed before a jail is made.
//!
//! A script names its interpreter and a dynamic program its loader; the kernel opens either by path, in
//! the jail, while the process that executes it is still the warden. `/proc/self/exe` then is the
//! warden's own program, which no image may run. So every file on the way must be a regular file of the
//! image itself. Nothing is refused that the image could not do to itself later: a program may execute
//! what it likes once it runs, because /proc/self is then its own.

use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};

use nix::fcntl::OFlag;
use rustix::fs::{FileType, fstat};
use rustix::io::{Errno, pread};
use turnjail_warden::open::in_root;
use turnjail_warden::step::Step;
use turnjail_warden::wire::Failure;

use crate::StartError;

/// How many interpreters of interpreters the kernel follows (fs/exec.c).
const DEPTH: usize = 5;
/// How much of a script's first line the kernel reads (BINPRM_BUF_SIZE).
const LINE_BYTES: usize = 256;
/// The type of a program header that names the loader (elf(5)).
const PT_INTERP: u32 = 3;
const PATH_MAX: u64 = 4096;

/// Follows `program`, seen from `working_dir` (absolute, or empty for `/`) inside `root`.
pub(crate) fn check(root: &OwnedFd, working_dir: &str, program: &str) -> Result<(), StartError> {
    let mut path = program.to_owned();
    for _ in 0..=DEPTH {
        let failed = |errno: Errno| {
            let failure = Failure { step: Step::Exec, index: 0, errno: errno.raw_os_error() };
            StartError::step(failure, Some(path.clone()))
        };
        let file = open(root, working_dir, &path).map_err(failed)?;
        match next(&file).map_err(failed)? {
            Next::Nothing => return Ok(()),
            Next::Script(interpreter) => path = interpreter,
            Next::Loader(loader) => {
                return open(root, working_dir, &loader).map(drop).map_err(|errno| {
                    let failure =
                        Failure { step: Step::Exec, index: 0, errno: errno.raw_os_error() };
                    StartError::step(failure, Some(loader))
                });
            }
        }
    }
    // As the kernel answers it.
    let failure = Failure { step: Step::Exec, index: 0, errno: Errno::LOOP.raw_os_error() };
    Err(StartError::step(failure, Some(program.to_owned())))
}

/// Opens a regular file of the image.
fn open(root: &OwnedFd, working_dir: &str, path: &str) -> Result<OwnedFd, Errno> {
    let path =
        if path.starts_with('/') { path.to_owned() } else { format!("{working_dir}/{path}") };
    let path = CString::new(path).map_err(|_| Errno::INVAL)?;
    let file = in_root(root.as_fd(), &path, OFlag::O_RDONLY | OFlag::O_NONBLOCK);
    let file = file.map_err(|errno| Errno::from_raw_os_error(errno as i32))?;
    let found = fstat(&file)?;
    if FileType::from_raw_mode(found.st_mode) == FileType::RegularFile {
        Ok(file)
    } else {
        Err(Errno::ACCESS)
    }
}

/// What a program has the kernel execute next.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    /// Itself alone.
    Nothing,
    /// The interpreter of a script, which may be a script too.
    Script(String),
    /// The loader of a dynamic program, which has none of its own.
    Loader(String),
}

fn next(file: &OwnedFd) -> Result<Next, Errno> {
    let mut start = [0; LINE_BYTES];
    let read = read_at(file, &mut start, 0)?;
    let start = &start[..read];
    if let Some(line) = start.strip_prefix(b"#!") {
        return Ok(Next::Script(interpreter(line)));
    }
    Ok(match loader(file, start)? {
        Some(loader) => Next::Loader(loader),
        None => Next::Nothing,
    })
}

/// The interpreter in a script's first line: up to white space, after white space.
fn interpreter(line: &[u8]) -> String {
    let blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let end = |byte: &u8| blank(byte) || matches!(byte, b'\n' | 0);
    let name = line.iter().copied().skip_while(blank).take_while(|byte| !end(byte));
    String::from_utf8_lossy(&name.collect::<Vec<_>>()).into_owned()
}

/// The loader that a 64 bit ELF program names. Both machines are little-endian, and programs of other
/// machines are not started.
fn loader(file: &OwnedFd, start: &[u8]) -> Result<Option<String>, Errno> {
    const CLASS_64: u8 = 2;
    let half = |at: usize| Some(u16::from_le_bytes(start.get(at..at + 2)?.try_into().ok()?));
    let header = || {
        let table = u64::from_le_bytes(start.get(32..40)?.try_into().ok()?);
        (start.starts_with(b"\x7fELF") && start[4] == CLASS_64).then_some(())?;
        Some((table, half(54)?, half(56)?))
    };
    let Some((table, size, count)) = header() else { return Ok(None) };
    for index in 0..u64::from(count) {
        let mut entry = [0; 56];
        let at = table.saturating_add(index * u64::from(size));
        if read_at(file, &mut entry, at)? < entry.len() {
            return Ok(None);
        }
        let word =
            |at: usize| entry[at..at + 8].iter().rev().fold(0, |all, &b| all << 8 | u64::from(b));
        if word(0) as u32 == PT_INTERP {
            let mut name = vec![0; word(32).min(PATH_MAX) as usize];
            let read = read_at(file, &mut name, word(8))?;
            name.truncate(read);
            let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
            return Ok(Some(String::from_utf8_lossy(name).into_owned()));
        }
    }
    Ok(None)
}

fn read_at(file: impl AsFd, into: &mut [u8], at: u64) -> Result<usize, Errno> {
    let mut done = 0;
    while done < into.len() {
        match pread(&file, &mut into[done..], at.saturating_add(done as u64)) {
            Ok(0) => break,
            Ok(read) => done += read,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use rustix::fs::{Mode, OFlags};

    use super::*;

    fn image() -> tempfile::TempDir {
        let image = tempfile::tempdir().expect("a directory");
        let at = |name: &str| image.path().join(name);
        for name in ["bin", "proc", "lib"] {
            fs::create_dir(at(name)).expect("a directory");
        }
        fs::write(at("bin/sh"), "#! /bin/real -x\n").expect("a file");
        fs::write(at("bin/real"), "\x7fELF").expect("a file");
        fs::write(at("bin/script"), "#!/bin/sh").expect("a file");
        fs::write(at("bin/relative"), "#!bin/sh\n").expect("a file");
        fs::write(at("bin/loop"), "#!/bin/loop\n").expect("a file");
        fs::write(at("bin/magic"), "#!\t/proc/self/exe x\n").expect("a file");
        symlink("/proc/self/exe", at("bin/link")).expect("a link");
        symlink("../../../bin/real", at("lib/up")).expect("a link");
        fs::write(at("bin/dynamic"), elf("/lib/up")).expect("a file");
        fs::write(at("bin/dynamic-magic"), elf("/proc/self/exe")).expect("a file");
        image
    }

    /// A 64 bit ELF header, a header of another kind, and one that names a loader.
    fn elf(loader: &str) -> Vec<u8> {
        let mut file = vec![0; 64 + 2 * 56];
        file[..5].copy_from_slice(b"\x7fELF\x02");
        file[32] = 64;
        file[54] = 56;
        file[56] = 2;
        file[64] = 1;
        let (entry, at) = (64 + 56, 64 + 2 * 56);
        file[entry] = PT_INTERP as u8;
        file[entry + 8] = at as u8;
        file[entry + 32] = loader.len() as u8 + 1;
        file.extend(loader.bytes().chain([0]));
        file
    }

    fn errno_of(image: &Path, program: &str) -> Option<i32> {
        let root = rustix::fs::open(image, OFlags::PATH, Mode::empty()).expect("it");
        match check(&root, "", program) {
            Ok(()) => None,
            Err(StartError::Step { failure, .. }) => Some(failure.errno),
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn files_of_the_image_are_followed() {
        let image = image();
        for program in ["/bin/real", "/bin/sh", "/bin/script", "bin/relative", "/bin/dynamic"] {
            assert_eq!(errno_of(image.path(), program), None, "{program}");
        }
    }

    #[test]
    fn what_is_not_the_images_is_refused() {
        let image = image();
        let (missing, denied) = (Errno::NOENT.raw_os_error(), Errno::ACCESS.raw_os_error());
        for program in ["/bin/magic", "/bin/link", "/bin/dynamic-magic", "/none", "/proc/self/exe"]
        {
            assert_eq!(errno_of(image.path(), program), Some(missing), "{program}");
        }
        assert_eq!(errno_of(image.path(), "/bin"), Some(denied));
        assert_eq!(errno_of(image.path(), "/bin/loop"), Some(Errno::LOOP.raw_os_error()));
    }
}
