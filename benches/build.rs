//! Builds the static floor, which is also the program that every contender starts.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let floor = turnjail_build::build("turnjail-floor", &["benches/floor", "src/jail/warden"]);
    println!("cargo::rustc-env=TURNJAIL_FLOOR={}", floor.display());
}
