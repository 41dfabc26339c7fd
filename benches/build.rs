//! Builds the static floor, which is also a no-op for contenders to start, and the no-op of the system's
//! C library.

use std::env;
use std::path::PathBuf;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let floor = turnjail_build::build("turnjail-floor", &["benches/floor", "src/jail/warden"]);
    println!("cargo::rustc-env=TURNJAIL_FLOOR={}", floor.display());
    println!("cargo::rustc-env=TURNJAIL_NOOP={}", noop().display());
}

/// The no-op by the system's compiler and static C library; an empty file where there is none.
fn noop() -> PathBuf {
    println!("cargo::rerun-if-changed=floor/noop.c");
    let program = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it")).join("noop");
    let built = Command::new(env::var_os("CC").unwrap_or_else(|| "cc".into()))
        .args(["-O2", "-static", "-o"])
        .arg(&program)
        .arg("floor/noop.c")
        .status();
    if !built.is_ok_and(|status| status.success()) {
        println!(
            "cargo::warning=no static C library: the floor is measured with a no-op of musl alone"
        );
        std::fs::write(&program, "").expect("an empty file");
    }
    program
}
