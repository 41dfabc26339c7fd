//! The credentials of one turn, kept to look for them in what goes back to the guest.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use futures_util::future::join_all;
use serde_json::Value;
use tokio::sync::OnceCell;

use crate::credential::{CredentialError, CredentialRequest, SHORTEST_CHECKED, Secret, Slot};
use crate::reflect::{self, Pattern};

/// Every credential this turn has or could have used. Wiped with the turn.
#[derive(Default)]
pub(crate) struct TurnSecrets {
    known: Mutex<Known>,
    complete: OnceCell<()>,
}

#[derive(Default)]
struct Known {
    patterns: Vec<Pattern>,
    /// The slots that have given one already, by their place in memory, where they stay.
    asked: HashSet<usize>,
}

impl TurnSecrets {
    /// Asks for a credential that is about to be used, and remembers it.
    pub async fn ask(
        &self,
        slot: &Slot,
        request: CredentialRequest<'_>,
    ) -> Result<Secret, CredentialError> {
        let secret = slot.get(request).await?;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.asked.insert(address(slot));
        let is_new = !known.patterns.iter().any(|pattern| pattern.is_for(&secret));
        if is_new && secret.expose().len() >= SHORTEST_CHECKED {
            known.patterns.push(Pattern::new(&secret));
        }
        Ok(secret)
    }

    /// Asks, once a turn, the sources that were not asked yet for what they would give this speaker: an
    /// answer may hold a credential that the turn has not used. A source that gives none has none to leak.
    pub async fn complete(&self, slots: &[&Slot], request: CredentialRequest<'_>) {
        let ask_rest = async || {
            let rest: Vec<&Slot> = {
                let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
                slots.iter().filter(|slot| !known.asked.contains(&address(slot))).copied().collect()
            };
            // All at once, for one of them may be a program that takes its time.
            join_all(rest.into_iter().map(|slot| self.ask(slot, request))).await;
        };
        self.complete.get_or_init(ask_rest).await;
    }

    /// Whether JSON on its way to the guest holds one of them.
    pub fn are_in(&self, answer: &Value) -> bool {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        reflect::holds_any(answer, &known.patterns)
    }
}

fn address(slot: &Slot) -> usize {
    std::ptr::from_ref(slot).addr()
}
