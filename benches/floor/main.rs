//! The floor of a jail start: what the kernel alone asks for.
//!
//! For each line on standard input: clone3 with every namespace, one-id maps, private propagation, a
//! tmpfs root, three bind mounts (program, workspace, broker directory read-only), a tmpfs /tmp,
//! pivot_root, exec of a static program that writes three bytes and exits; read the bytes, reap. No
//! seccomp, landlock, limits or checks. Answers with the nanoseconds it took.
//!
//! Started as `turnjail-floor noop`, it is that program; as `spin`, one that never ends. It is static and small like the warden, because
//! cloning a large process costs milliseconds of its own.
#![no_main]

use std::ffi::{CStr, CString, OsStr, c_char, c_int};
use std::fs::{DirBuilder, File, create_dir_all, write};
use std::io::{BufRead as _, Read as _};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::time::Instant;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::unistd::{chdir, getgid, getuid, pivot_root};
use turnjail_warden::make::NAMESPACES;
use turnjail_warden::sys::{self, Cloned};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The C entry point. Rust's own makes system calls before the first act that the sealed profile, in
/// which the same program is started, forbids, and that would be measured.
#[allow(unsafe_code)]
// SAFETY: no other symbol of this program is named main.
#[unsafe(no_mangle)]
extern "C" fn main(count: c_int, arguments: *const *const c_char) -> c_int {
    let count = usize::try_from(count).unwrap_or_default();
    let arguments: Vec<&Path> = (1..count)
        // SAFETY: the C library passes `count` pointers to strings that end with NUL and live as long
        // as the process.
        .map(|index| unsafe { CStr::from_ptr(*arguments.add(index)) }.to_bytes())
        .map(|argument| Path::new(OsStr::from_bytes(argument)))
        .collect();
    let result = match &arguments[..] {
        [word] if *word == Path::new("noop") => sys::write(1, b"hi\n").map_err(Into::into),
        [word] if *word == Path::new("spin") => loop {
            std::hint::spin_loop();
        },
        [program, directory] => serve(program, directory),
        _ => Err("usage: turnjail-floor PROGRAM DIRECTORY, or turnjail-floor noop or spin".into()),
    };
    match result {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("turnjail-floor: {error}");
            1
        }
    }
}

/// One start for each line read.
fn serve(program: &Path, directory: &Path) -> Result<()> {
    let floor = Floor::new(program, directory)?;
    for line in std::io::stdin().lock().lines() {
        line?;
        let start = Instant::now();
        floor.start()?;
        println!("{}", start.elapsed().as_nanos());
    }
    Ok(())
}

struct Floor {
    program: CString,
    workspace: CString,
    broker: CString,
    root: CString,
    maps: [String; 2],
}

impl Floor {
    fn new(program: &Path, directory: &Path) -> Result<Self> {
        let make = |name: &str| -> Result<CString> {
            let path = directory.join(name);
            DirBuilder::new().recursive(true).mode(0o700).create(&path)?;
            Ok(CString::new(path.to_str().ok_or("a path in UTF-8")?)?)
        };
        Ok(Self {
            program: CString::new(program.to_str().ok_or("a path in UTF-8")?)?,
            workspace: make("workspace")?,
            broker: make("broker")?,
            root: make("root")?,
            maps: [format!("{0} {0} 1", getuid()), format!("{0} {0} 1", getgid())],
        })
    }

    fn start(&self) -> Result<()> {
        let (mut reader, writer) = std::io::pipe()?;
        match sys::clone3(NAMESPACES, None)? {
            Cloned::Child => {
                let failed = self.enter(writer.as_raw_fd());
                eprintln!("turnjail-floor: {failed:?}");
                sys::exit_now(9)
            }
            Cloned::Parent(pidfd) => {
                drop(writer);
                let mut bytes = [0; 8];
                let length = reader.read(&mut bytes)?;
                drop(reader);
                sys::reap(pidfd.as_fd())?;
                if bytes[..length] == *b"hi\n" {
                    Ok(())
                } else {
                    Err("the program did not answer".into())
                }
            }
        }
    }

    /// The steps of the child; comes back only when one fails.
    fn enter(&self, output: i32) -> Result<()> {
        write("/proc/self/setgroups", "deny")?;
        write("/proc/self/uid_map", &self.maps[0])?;
        write("/proc/self/gid_map", &self.maps[1])?;
        let (none, tmpfs) = (None::<&CStr>, Some(c"tmpfs"));
        mount(none, c"/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
        mount(tmpfs, self.root.as_c_str(), tmpfs, MsFlags::empty(), Some(c"size=1m"))?;
        chdir(self.root.as_c_str())?;
        for name in ["bin", "workspace", "tmp", "broker"] {
            create_dir_all(name)?;
        }
        File::create("bin/program")?;
        let bind = |from: &CStr, to: &CStr| mount(Some(from), to, none, MsFlags::MS_BIND, none);
        bind(&self.program, c"bin/program")?;
        bind(&self.workspace, c"workspace")?;
        bind(&self.broker, c"broker")?;
        let tight = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
        let read_only = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY | tight;
        mount(none, c"broker", none, read_only, none)?;
        mount(tmpfs, c"tmp", tmpfs, MsFlags::MS_NOEXEC | tight, Some(c"size=64m"))?;
        pivot_root(c".", c".")?;
        umount2(c".", MntFlags::MNT_DETACH)?;
        chdir(c"/")?;
        sys::duplicate_to(output, 1, 0)?;
        let (name, word, null) = (c"program".as_ptr(), c"noop".as_ptr(), std::ptr::null());
        Err(sys::execute(c"/bin/program", &[name, word, null], &[null]).into())
    }
}
