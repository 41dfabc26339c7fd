//! The ways in which a test's jails come about: prepared before their plans are known, or directly.

use std::cell::Cell;

use turnjail_jail::client::ClientOptions;
use turnjail_warden::wire::Way;

/// Carries the way to a process of the same test.
const VARIABLE: &str = "TURNJAIL_TEST_WAY";

thread_local! {
    static WAY: Cell<Way> = const { Cell::new(Way::Any) };
}

/// Does something with every jail of this thread's [`Bench`](crate::jails::Bench)es made in one way.
pub(crate) fn by<T>(way: Way, act: impl FnOnce() -> T) -> T {
    WAY.set(way);
    let done = act();
    WAY.set(Way::Any);
    done
}

/// The way of this thread's jails. Where the plan cannot be prepared for, it is the direct one.
pub fn way() -> Way {
    match std::env::var(VARIABLE).as_deref() {
        Ok("direct") => Way::Direct,
        Ok("prepared") => Way::Prepared,
        _ => WAY.get(),
    }
}

/// What a process of the same test is to find in its environment.
pub fn environment() -> (&'static str, &'static str) {
    environment_of(way())
}

/// What a process is to find in its environment whose jails come about in this way.
pub fn environment_of(way: Way) -> (&'static str, &'static str) {
    let word = match way {
        Way::Any => "any",
        Way::Direct => "direct",
        Way::Prepared => "prepared",
    };
    (VARIABLE, word)
}

/// Options for a warden of this thread.
pub fn options() -> ClientOptions {
    let way = way();
    let pool = if way == Way::Direct { 0 } else { ClientOptions::default().pool };
    ClientOptions { pool, way }
}
