//! The credentials of one turn, kept to look for them in what goes back to the guest.

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::join_all;
use serde_json::Value;
use tokio::sync::OnceCell;

use crate::credential::{CredentialRequest, SHORTEST_CHECKED, Secret, Slot};
use crate::reflect::{self, Pattern};

/// Patterns that are kept between turns, which mostly use the same few credentials.
const CACHED: usize = 64;

/// Patterns made for earlier turns.
#[derive(Default)]
pub(crate) struct PatternCache(Mutex<Vec<Arc<Pattern>>>);

impl PatternCache {
    fn pattern(&self, secret: &Secret) -> Arc<Pattern> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pattern) = known.iter().find(|pattern| pattern.is_for(secret)) {
            return Arc::clone(pattern);
        }
        let pattern = Arc::new(Pattern::new(secret));
        if known.len() >= CACHED {
            known.remove(0);
        }
        known.push(Arc::clone(&pattern));
        pattern
    }
}

/// Every credential this turn has or could have used.
#[derive(Default)]
pub(crate) struct TurnSecrets {
    patterns: Mutex<Vec<Arc<Pattern>>>,
    complete: OnceCell<()>,
}

impl TurnSecrets {
    /// Adds a credential that is about to be used.
    pub fn add(&self, secret: &Secret, cache: &PatternCache) {
        if secret.expose().len() < SHORTEST_CHECKED {
            return;
        }
        let mut patterns = self.patterns.lock().unwrap_or_else(PoisonError::into_inner);
        if !patterns.iter().any(|pattern| pattern.is_for(secret)) {
            patterns.push(cache.pattern(secret));
        }
    }

    /// Asks, once a turn, every source for what it would give this speaker: a tool's answer may hold a
    /// credential that the turn has not used yet. A source that gives none has none to leak.
    pub async fn complete(
        &self,
        slots: &[&Slot],
        request: CredentialRequest<'_>,
        cache: &PatternCache,
    ) {
        let ask_all = async || {
            // All at once, for one of them may be a program that takes its time.
            let asked = join_all(slots.iter().map(|slot| slot.get(request))).await;
            asked.iter().flatten().for_each(|secret| self.add(secret, cache));
        };
        self.complete.get_or_init(ask_all).await;
    }

    /// Whether JSON on its way to the guest holds one of them.
    pub fn are_in(&self, answer: &Value) -> bool {
        reflect::holds_any(answer, &self.known())
    }

    fn known(&self) -> Vec<Arc<Pattern>> {
        self.patterns.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
