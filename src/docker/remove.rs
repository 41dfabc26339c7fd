//! Removing a container by its name, until it is sure that there is none.

use std::time::Duration;

use turnjail_driver::DriverError;

use crate::client::Client;
use crate::fault::first_line;

/// How long one attempt may take.
const ATTEMPT: Duration = Duration::from_secs(5);
const ATTEMPTS: u32 = 3;
/// How long an engine is left alone with a removal that it is already doing.
const PAUSE: Duration = Duration::from_millis(200);
/// When to look again after a run that was interrupted: a client that was killed may have asked for a
/// container that the engine makes only then.
const LATER: Duration = Duration::from_millis(100);

/// What an attempt came to.
#[derive(Debug, PartialEq, Eq)]
enum Attempt {
    Gone,
    InProgress,
    Failed(String),
}

/// Removes the container with this name, running or not; absent is success.
pub(crate) async fn remove(client: &Client, name: &str) -> Result<(), DriverError> {
    let mut last = String::new();
    for attempt in 0..ATTEMPTS {
        if attempt > 0 {
            tokio::time::sleep(PAUSE).await;
        }
        match one(client, name).await {
            Attempt::Gone => return Ok(()),
            Attempt::InProgress => "its removal is in progress".clone_into(&mut last),
            Attempt::Failed(why) => last = why,
        }
    }
    Err(DriverError::Cleanup {
        cause: format!("container {name} may still run: {last}"),
        remedy: format!("run {} rm --force {name}", client.shown()),
    })
}

/// The same for a run that was cancelled or failed.
pub(crate) async fn remove_twice(client: &Client, name: &str) -> Result<(), DriverError> {
    // The second attempt has the last word.
    let _ = remove(client, name).await;
    tokio::time::sleep(LATER).await;
    remove(client, name).await
}

async fn one(client: &Client, name: &str) -> Attempt {
    // Podman asks the worker first, and gives it ten seconds, unless it is told not to.
    let arguments: &[&str] = if client.is_docker() {
        &["rm", "--force", name]
    } else {
        &["rm", "--force", "--time", "0", name]
    };
    match client.ask_within(arguments, ATTEMPT).await {
        Err(error) => Attempt::Failed(error.to_string()),
        Ok(answer) => judge(answer.ok(), &answer.stderr),
    }
}

/// Clients differ in how they end for a container that is absent, not in what they say.
fn judge(ok: bool, stderr: &[u8]) -> Attempt {
    let said = String::from_utf8_lossy(stderr).to_lowercase();
    // Docker; podman.
    if said.contains("no such container") || said.contains("no container with name or id") {
        return Attempt::Gone;
    }
    if said.contains("removal of container") && said.contains("is already in progress") {
        return Attempt::InProgress;
    }
    if ok { Attempt::Gone } else { Attempt::Failed(first_line(stderr)) }
}

/// Removes the container when a run is dropped, in a thread of its own: the caller's runtime may be
/// about to end.
#[derive(Debug)]
pub(crate) struct RemoveOnDrop {
    owed: Option<(Client, String)>,
}

impl RemoveOnDrop {
    pub fn new(client: &Client, name: &str) -> Self {
        Self { owed: Some((client.clone(), name.to_owned())) }
    }

    /// It is removed, or somebody else has been told that it could not be.
    pub fn done(&mut self) {
        self.owed = None;
    }
}

impl Drop for RemoveOnDrop {
    fn drop(&mut self) {
        let Some((client, name)) = self.owed.take() else { return };
        let work = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let removed = match runtime {
                Ok(runtime) => runtime.block_on(remove_twice(&client, &name)),
                Err(error) => Err(client.unable(&error)),
            };
            if let Err(error) = removed {
                tracing::error!(%error, "a dropped run left its container");
            }
        };
        if let Err(error) = std::thread::Builder::new().name("docker-rm".into()).spawn(work) {
            tracing::error!(%error, "no thread could be started to remove a container");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_is_success_however_it_is_said() {
        for (ok, said) in [
            (true, ""),
            (true, "Error: No such container: x"),
            (false, "Error: No such container: x"),
            (false, "Error response from daemon: No such container: x"),
            (false, "Error: no container with name or ID \"x\" found: no such container"),
        ] {
            assert_eq!(judge(ok, said.as_bytes()), Attempt::Gone, "{said}");
        }
    }

    #[test]
    fn a_removal_in_progress_is_waited_for_and_others_are_failures() {
        let said = "Error response from daemon: removal of container x is already in progress";
        assert_eq!(judge(false, said.as_bytes()), Attempt::InProgress);
        assert_eq!(judge(false, b"no leave\n"), Attempt::Failed("no leave".to_owned()));
    }
}
