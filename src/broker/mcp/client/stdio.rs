//! A server that is a child process, one message a line.

use std::collections::BTreeMap;
use std::io;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use rmcp::RoleClient;
use rmcp::transport::Transport;
use tokio::io::AsyncWriteExt;
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::Mutex;
use tokio_util::codec::{FramedRead, LinesCodec};

use super::{Incoming, MAX_MESSAGE, Outgoing, wire};
use crate::process::{self, Running};

/// What a server gets to end by itself once its input is closed.
const FAREWELL: Duration = Duration::from_secs(2);

/// A running child and its two streams. Dropping it kills the child's whole process group.
pub(super) struct ChildTransport {
    input: Arc<Mutex<Option<ChildStdin>>>,
    output: FramedRead<ChildStdout, LinesCodec>,
    running: Running,
}

impl ChildTransport {
    /// Starts a server. What it writes to standard error goes nowhere: it may be anything.
    pub fn start(argv: &[String], env: &BTreeMap<String, String>) -> io::Result<Self> {
        let mut command = process::command(argv, env);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut running = Running::start(&mut command)?;
        let (Some(input), Some(output), _) = running.streams() else {
            return Err(io::Error::other("no streams to the program"));
        };
        Ok(Self {
            input: Arc::new(Mutex::new(Some(input))),
            output: FramedRead::new(output, LinesCodec::new_with_max_length(MAX_MESSAGE)),
            running,
        })
    }
}

impl Transport<RoleClient> for ChildTransport {
    type Error = io::Error;

    fn send(&mut self, message: Outgoing) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let input = Arc::clone(&self.input);
        async move {
            let mut line = wire::write(&message)?;
            line.push('\n');
            let mut input = input.lock().await;
            let Some(stream) = &mut *input else {
                return Err(io::Error::from(io::ErrorKind::BrokenPipe));
            };
            stream.write_all(line.as_bytes()).await?;
            stream.flush().await
        }
    }

    async fn receive(&mut self) -> Option<Incoming> {
        loop {
            let Ok(line) = self.output.next().await? else {
                // A line over the limit, or no text: what follows could be the rest of it.
                self.running.kill();
                return None;
            };
            if let Some(message) = wire::read(&line) {
                return Some(message);
            }
            tracing::debug!(bytes = line.len(), "an MCP server printed a line that is no message");
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        *self.input.lock().await = None;
        let _ = tokio::time::timeout(FAREWELL, self.running.ended()).await;
        self.running.kill();
        Ok(())
    }
}
