//! The sealed worker: reads a turn on standard input, talks to the model and to allow-listed tools
//! through the broker's socket, and writes one reply to standard output.
//!
//! It has no shell, no network client and no credentials, runs nothing, and is one thread. It is
//! made for a jail in which every system call that it does not need kills it: all it makes are in
//! `sys`, and [`SYSTEM_CALLS`] lists them.
#![deny(unsafe_code)]

mod agent;
mod answer;
mod arguments;
pub mod clock;
mod conversation;
mod errand;
mod files;
mod history;
mod memory;
mod store;
mod sys;
mod tools;
mod transport;

use turnjail_protocol::errand::Errand;
use turnjail_protocol::limits::{EXIT_FAILED, EXIT_USAGE, TURN_BYTES};
use turnjail_protocol::{Reply, SANDBOX_PROTOCOL, Turn, WORKER_FAILED, WorkerCode};

use arguments::{Command, Places};
pub use sys::SYSTEM_CALLS;

/// Runs the worker with the arguments that follow the program's name, and returns its exit code: 0
/// with a reply on standard output, [`EXIT_FAILED`] with the fixed reply there and a code on standard
/// error, [`EXIT_USAGE`] for arguments that it does not know.
pub fn run(arguments: &[&[u8]]) -> i32 {
    if sys::forbid_dumps().is_err() {
        return fail(WorkerCode::Io);
    }
    // A panic's message may hold content, and aborting takes signals that a jail does not let pass.
    std::panic::set_hook(Box::new(|_| std::process::exit(fail(WorkerCode::Internal))));
    match arguments::parse(arguments) {
        Ok(Command::Turn(places)) => answer_turn(&places),
        Ok(Command::Version) => {
            let version = env!("CARGO_PKG_VERSION");
            print(&format!("turnjail-worker {version}, protocol {SANDBOX_PROTOCOL}\n"))
        }
        Err(usage) => {
            let _ = sys::write_all(sys::stderr(), usage.to_string().as_bytes());
            EXIT_USAGE
        }
    }
}

/// Writes the line that goes with [`EXIT_OUT_OF_MEMORY`](turnjail_protocol::limits::EXIT_OUT_OF_MEMORY)
/// without asking for memory.
pub fn report_out_of_memory() {
    let _ = sys::write_all(sys::stderr(), b"{\"error\":\"out_of_memory\"}\n");
}

fn answer_turn(places: &Places<'_>) -> i32 {
    match read_input().and_then(|input| answer(&input, places)) {
        Ok(reply) => print(&reply.to_json()),
        Err(code) => fail(code),
    }
}

fn read_input() -> Result<Vec<u8>, WorkerCode> {
    sys::read_to_end(sys::stdin(), TURN_BYTES).map_err(|error| match error {
        sys::ReadError::TooLarge => WorkerCode::InvalidTurn,
        sys::ReadError::Errno(_) => WorkerCode::Io,
    })
}

/// A turn, or an errand of the host in its place.
fn answer(input: &[u8], places: &Places<'_>) -> Result<Reply, WorkerCode> {
    match Turn::parse(input) {
        Ok(turn) => agent::run(&turn, places),
        Err(_) => match Errand::parse(input) {
            Some(errand) => errand::run(errand, places),
            None => Err(WorkerCode::InvalidTurn),
        },
    }
}

fn print(text: &str) -> i32 {
    match sys::write_all(sys::stdout(), text.as_bytes()) {
        Ok(()) => 0,
        Err(_) => fail(WorkerCode::Io),
    }
}

fn fail(code: WorkerCode) -> i32 {
    let reply = Reply { ok: false, text: WORKER_FAILED.into() };
    // The exit code tells the host anyway when nobody reads these any more.
    let _ = sys::write_all(sys::stderr(), code.to_line().as_bytes());
    let _ = sys::write_all(sys::stdout(), reply.to_json().as_bytes());
    EXIT_FAILED
}
