//! The broker against servers that others wrote: MCP servers from their own ecosystems, and a mock of the
//! model's endpoint. Each is started here, and skipped by name where it is not installed.

mod facts;
mod mcp_http;
mod mcp_stdio;
mod mock_openai;
#[path = "../support/mod.rs"]
mod support;

use std::net::TcpListener;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use facts::Fact;
use libtest_mimic::Arguments;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(2);
    let trials = [mcp_stdio::trials(), mcp_http::trials(), mock_openai::trials()].concat();
    let trials = trials.into_iter().map(|(fact, name, check)| fact.trial(name, check)).collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// A test: what it needs, what must be true, how that is checked.
type Case = (Fact, &'static str, fn());

/// Runs an asynchronous check.
fn run<F: Future<Output = ()>>(check: F) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(check);
}

/// A server of somebody else's, killed when dropped.
struct Peer {
    child: Child,
    pub port: u16,
}

impl Peer {
    /// Starts a server on a free port and waits until it takes connections.
    async fn start(command: impl FnOnce(u16) -> Command) -> Self {
        let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
        Self::start_on(port, command).await
    }

    async fn start_on(port: u16, command: impl FnOnce(u16) -> Command) -> Self {
        let mut command = command(port);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let peer = Self { child: command.spawn().unwrap(), port };
        for _ in 0..600 {
            if tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_ok() {
                return peer;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("the server does not come up");
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
