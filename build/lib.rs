//! Builds turnjail's static programs (the worker, the warden, the tests' probe) from build scripts.
//!
//! They run where there is no dynamic linker and no libc: in a jail, or from a sealed memfd. So they
//! are linked statically and at a fixed address, for the musl target where it is installed (it starts
//! ten times faster in a virtual machine), else for the gnu target with `crt-static`.
//!
//! A program is built by a cargo of its own, in its own target directory: the outer cargo holds the
//! lock of the usual one, and its profile, flags and wrappers are not those of a static program.
#![forbid(unsafe_code)]

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Chooses the C library of the static programs: `musl` or `gnu`. Unset: musl where it is installed.
pub const TARGET_VARIABLE: &str = "TURNJAIL_STATIC_TARGET";

/// Builds `package`'s binary of the same name and returns its path, below `OUT_DIR`.
///
/// `sources` are directories, relative to the workspace root, whose change asks for a new build.
///
/// # Panics
/// When the build fails or is not called from a build script: that is how a build script reports.
pub fn build(package: &str, sources: &[&str]) -> PathBuf {
    let root = workspace_root();
    watch(&root, sources);
    let out = PathBuf::from(variable("OUT_DIR"));
    let target = target();
    let target_dir = out.join("static");
    let mut cargo = Command::new(variable("CARGO"));
    clean_environment(&mut cargo);
    cargo
        .current_dir(&root)
        .env("CARGO_ENCODED_RUSTFLAGS", flags(&root))
        .args(["build", "--locked", "--quiet", "--profile", "static", "--package", package])
        .args(["--target", &target, "--target-dir"])
        .arg(&target_dir);
    let status = cargo.status().unwrap_or_else(|e| panic!("cannot start cargo: {e}"));
    assert!(status.success(), "building {package} for {target} failed; the messages are above");
    let program = target_dir.join(&target).join("static").join(package);
    assert!(program.is_file(), "{} was not built", program.display());
    program
}

/// The first directory above the calling package that holds the workspace's lock file.
fn workspace_root() -> PathBuf {
    let package = PathBuf::from(variable("CARGO_MANIFEST_DIR"));
    package
        .ancestors()
        .find(|dir| dir.join("Cargo.lock").is_file())
        .unwrap_or_else(|| panic!("no Cargo.lock above {}", package.display()))
        .to_owned()
}

fn watch(root: &Path, sources: &[&str]) {
    for source in sources.iter().chain(&["Cargo.toml", "Cargo.lock"]) {
        println!("cargo::rerun-if-changed={}", root.join(source).display());
    }
    println!("cargo::rerun-if-env-changed={TARGET_VARIABLE}");
}

/// The target triple of the static programs, for the architecture that is being built for.
fn target() -> String {
    let arch = variable("CARGO_CFG_TARGET_ARCH");
    let musl = format!("{arch}-unknown-linux-musl");
    let gnu = format!("{arch}-unknown-linux-gnu");
    match env::var(TARGET_VARIABLE).as_deref() {
        Ok("musl") => musl,
        Ok("gnu") => gnu,
        Ok(other) if !other.is_empty() => {
            panic!("{TARGET_VARIABLE} is {other:?}; it may be musl or gnu")
        }
        _ if installed(&musl) => musl,
        _ => gnu,
    }
}

/// Whether the standard library for `target` is there.
fn installed(target: &str) -> bool {
    Command::new(variable("RUSTC"))
        .args(["--print", "target-libdir", "--target", target])
        .output()
        .ok()
        .filter(|output| output.status.success())
        .and_then(|output| String::from_utf8(output.stdout).ok())
        .is_some_and(|dir| Path::new(dir.trim()).is_dir())
}

/// Static and at a fixed address; paths of this machine stay out of the program, so that the same
/// source gives the same bytes elsewhere.
fn flags(root: &Path) -> String {
    let mut flags = vec![
        "-Ctarget-feature=+crt-static".to_owned(),
        "-Crelocation-model=static".to_owned(),
        format!("--remap-path-prefix={}=/turnjail", root.display()),
    ];
    let home = env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| env::var_os("HOME").map(|home| Path::new(&home).join(".cargo")));
    if let Some(home) = home {
        flags.push(format!("--remap-path-prefix={}=/cargo", home.display()));
    }
    flags.join("\x1f")
}

/// What the outer cargo set for its own build must not reach the inner one: inherited flags have
/// produced a dynamic worker.
fn clean_environment(cargo: &mut Command) {
    for (name, _) in env::vars_os() {
        let Some(text) = name.to_str() else { continue };
        let kept = ["CARGO_HOME", "CARGO_NET_OFFLINE", "CARGO_HTTP_PROXY", "CARGO_MAKEFLAGS"];
        let outer = text.starts_with("CARGO") && !kept.contains(&text)
            || text.starts_with("RUSTC")
            || ["RUSTFLAGS", "TARGET", "HOST", "OUT_DIR", "PROFILE", "OPT_LEVEL", "DEBUG"]
                .contains(&text)
            || text.starts_with("DEP_");
        if outer {
            cargo.env_remove(name);
        }
    }
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("{name} is not set: this runs in a build script"))
}
