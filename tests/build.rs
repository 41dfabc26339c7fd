//! Builds the static probe that the tests put in the worker's place.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let probe = turnjail_build::build("turnjail-probe", &["tests/probe"]);
    println!("cargo::rustc-env=TURNJAIL_PROBE={}", probe.display());
}
