//! One turn per workspace: lines of turns, first come, first served.
//!
//! A [`Place`] in a line is either at its head (its turn may run) or waiting. Dropping it leaves the
//! line, wherever it stands, and moves the next one up. A waiting place is an entry in a list and
//! nothing more.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// The lines of all workspaces. A line exists only while somebody stands in it.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    lines: HashMap<String, Line>,
    next_id: u64,
}

#[derive(Debug)]
struct Line {
    running: u64,
    waiting: VecDeque<Waiter>,
}

#[derive(Debug)]
struct Waiter {
    id: u64,
    wake: oneshot::Sender<()>,
}

/// As many turns wait as may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Full;

impl Queues {
    /// Joins the end of the workspace's line, unless `max_waiting` turns wait there already.
    pub fn join(self: &Arc<Self>, workspace: &str, max_waiting: usize) -> Result<Place, Full> {
        let mut state = self.lock();
        state.next_id += 1;
        let id = state.next_id;
        let place =
            |wake| Place { queues: self.clone(), workspace: workspace.to_owned(), id, wake };
        let Some(line) = state.lines.get_mut(workspace) else {
            let line = Line { running: id, waiting: VecDeque::new() };
            state.lines.insert(workspace.to_owned(), line);
            return Ok(place(None));
        };
        if line.waiting.len() >= max_waiting {
            return Err(Full);
        }
        let (wake, woken) = oneshot::channel();
        line.waiting.push_back(Waiter { id, wake });
        Ok(place(Some(woken)))
    }

    /// How many places are held, running and waiting.
    pub fn counts(&self) -> (usize, usize) {
        let state = self.lock();
        (state.lines.len(), state.lines.values().map(|line| line.waiting.len()).sum())
    }

    fn leave(&self, workspace: &str, id: u64) {
        let mut state = self.lock();
        let Some(line) = state.lines.get_mut(workspace) else { return };
        if line.running != id {
            line.waiting.retain(|waiter| waiter.id != id);
            return;
        }
        match line.waiting.pop_front() {
            Some(next) => {
                line.running = next.id;
                // Nobody listens when that place is being dropped at this moment: it leaves as the
                // head of the line then, and the one behind it moves up.
                let _ = next.wake.send(());
            }
            None => {
                state.lines.remove(workspace);
            }
        }
    }

    /// Every change is completed before the lock is let go, so a panic elsewhere breaks nothing.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place in a workspace's line; dropping it leaves the line.
#[derive(Debug)]
pub(crate) struct Place {
    queues: Arc<Queues>,
    workspace: String,
    id: u64,
    wake: Option<oneshot::Receiver<()>>,
}

impl Place {
    /// Returns when this place is at the head of its line. Cancel safe.
    pub async fn reach_head(&mut self) {
        if let Some(wake) = &mut self.wake {
            // The sender goes away only by sending or with this place.
            let _ = wake.await;
            self.wake = None;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.queues.leave(&self.workspace, self.id);
    }
}
