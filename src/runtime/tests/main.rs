//! Tests of the runtime with a scripted driver: everything but what happens inside a sealed place.
//!
//! A harness of its own, because the runtime refuses to run as root: started as root, the whole
//! program drops to an ordinary user before anything else.
#![allow(clippy::unnecessary_debug_formatting, reason = "paths in messages of failed tests")]

mod audit;
mod cancel;
mod common;
mod crash;
mod crowd;
mod fresh;
mod model;
mod queue;
mod setup;
mod skills;
mod turns;

use libtest_mimic::{Arguments, Trial};

fn main() {
    common::drop_root();
    common::silence_panics_on_purpose();
    if crash::is_child() {
        crash::child();
    }
    let arguments = Arguments::from_args();
    let tests = [
        setup::tests(),
        turns::tests(),
        queue::tests(),
        audit::tests(),
        fresh::tests(),
        cancel::tests(),
        skills::tests(),
        crash::tests(),
        crowd::tests(),
        model::tests(),
    ];
    let trials = tests.into_iter().flatten().map(|(name, test)| {
        Trial::test(name, move || {
            test();
            Ok(())
        })
    });
    libtest_mimic::run(&arguments, trials.collect()).exit();
}
