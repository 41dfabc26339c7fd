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
use rustix::fs::{FileType, fstat, readlinkat};
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
/// How many links the kernel follows on a path (path_resolution(7)).
const LINKS: usize = 40;
/// What lies over the image in a jail.
const MOUNT_POINTS: [&[u8]; 6] = [b"broker", b"channel", b"dev", b"proc", b"tmp", b"workspace"];

/// Follows `program`, seen from `working_dir` (absolute, or empty for `/`) inside `root`.
pub(crate) fn check(root: &OwnedFd, working_dir: &str, program: &str) -> Result<(), StartError> {
    let mut path = program.to_owned();
    for _ in 0..=DEPTH {
        let failed = |errno: Errno| failed(errno, &path);
        let file = open(root, working_dir, &path).map_err(failed)?;
        match next(&file).map_err(failed)? {
            Next::Nothing => return Ok(()),
            Next::Script(interpreter) => path = interpreter,
            Next::Loader(loader) => {
                let opened = open(root, working_dir, &loader);
                return opened.map(drop).map_err(|errno| self::failed(errno, &loader));
            }
        }
    }
    // As the kernel answers it.
    Err(failed(Errno::LOOP, program))
}

fn failed(errno: Errno, path: &str) -> StartError {
    if errno == Errno::XDEV {
        let cause =
            format!("the image's program or its interpreter, {path:?}, is where a jail has mounts");
        let remedy = "keep programs out of /workspace, /channel, /broker, /tmp, /proc and /dev";
        return StartError::policy(cause, remedy);
    }
    let failure = Failure { step: Step::Exec, index: 0, errno: errno.raw_os_error() };
    StartError::step(failure, Some(path.to_owned()))
}

/// Refuses a path that leads through a place where something else than the image will be: what stands
/// there in the image is not what would be executed. The image is read-only, so what is seen is what is.
fn check_place(root: &OwnedFd, path: &str) -> Result<(), Errno> {
    let parts = |path: &[u8]| -> Vec<Vec<u8>> {
        path.split(|&byte| byte == b'/')
            .filter(|part| !part.is_empty())
            .map(<[u8]>::to_vec)
            .collect()
    };
    let mut todo: Vec<_> = parts(path.as_bytes()).into_iter().rev().collect();
    let (mut at, mut links) = (Vec::<Vec<u8>>::new(), 0);
    while let Some(part) = todo.pop() {
        match &part[..] {
            b"." => continue,
            b".." => {
                at.pop();
                continue;
            }
            _ => at.push(part),
        }
        if at.len() > 1 && MOUNT_POINTS.contains(&&at[0][..]) {
            return Err(Errno::XDEV);
        }
        match readlinkat(root, at.join(&b'/'), Vec::new()) {
            Err(Errno::INVAL) => {}
            Err(errno) => return Err(errno),
            Ok(_) if links == LINKS => return Err(Errno::LOOP),
            Ok(target) => {
                links += 1;
                at.pop();
                if target.as_bytes().starts_with(b"/") {
                    at.clear();
                }
                todo.extend(parts(target.as_bytes()).into_iter().rev());
            }
        }
    }
    Ok(())
}

/// Opens a regular file of the image.
fn open(root: &OwnedFd, working_dir: &str, path: &str) -> Result<OwnedFd, Errno> {
    let path =
        if path.starts_with('/') { path.to_owned() } else { format!("{working_dir}/{path}") };
    check_place(root, &path)?;
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
            Err(StartError::Policy { .. }) => Some(Errno::XDEV.raw_os_error()),
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
    fn what_a_mount_will_cover_is_refused() {
        let image = image();
        let at = |name: &str| image.path().join(name);
        for name in ["workspace", "tmp", "broker"] {
            fs::create_dir(at(name)).expect("a directory");
        }
        fs::write(at("workspace/program"), "\x7fELF").expect("a file");
        symlink("/bin", at("workspace/bin")).expect("a link");
        symlink("/workspace/program", at("bin/planted")).expect("a link");
        symlink("../tmp/../bin/real", at("bin/around")).expect("a link");
        fs::write(at("bin/script-there"), "#!/workspace/program\n").expect("a file");
        let moved = Some(Errno::XDEV.raw_os_error());
        for program in [
            "/workspace/program",
            "/bin/../workspace/program",
            "/workspace/bin/real",
            "/bin/planted",
            "/bin/script-there",
        ] {
            assert_eq!(errno_of(image.path(), program), moved, "{program}");
        }
        for program in ["/bin/around", "/tmp/../bin/real", "/workspace/../bin/real"] {
            assert_eq!(errno_of(image.path(), program), None, "{program}");
        }
        assert_eq!(errno_of(image.path(), "/bin/sh/x"), Some(Errno::NOTDIR.raw_os_error()));
    }

    #[test]
    fn what_is_not_the_images_is_refused() {
        let image = image();
        let (missing, denied) = (Errno::NOENT.raw_os_error(), Errno::ACCESS.raw_os_error());
        assert_eq!(errno_of(image.path(), "/none"), Some(missing));
        let moved = Some(Errno::XDEV.raw_os_error());
        for program in ["/bin/magic", "/bin/link", "/bin/dynamic-magic", "/proc/self/exe"] {
            assert_eq!(errno_of(image.path(), program), moved, "{program}");
        }
        assert_eq!(errno_of(image.path(), "/bin"), Some(denied));
        assert_eq!(errno_of(image.path(), "/bin/loop"), Some(Errno::LOOP.raw_os_error()));
    }
}
