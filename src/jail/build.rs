//! Builds the static warden that the library embeds, so that an embedder installs no further file.

use std::path::PathBuf;
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let warden = turnjail_build::build("turnjail-warden", &["src/jail/warden"]);
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("OUT_DIR"));
    fs::copy(warden, out.join("warden")).expect("the warden that was just built");
}
