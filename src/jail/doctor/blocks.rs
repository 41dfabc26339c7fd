//! Each building block of a jail, tried on its own by the warden's program.

use turnjail_warden::trial::{Block, Outcome};
use turnjail_warden::wire::Failure;

use super::{Check, State};
use crate::causes::evidence::Evidence;
use crate::causes::{advise, table};
use crate::{StartError, process, stage};

/// Blocks without which a jail is made all the same, since another wall stands there.
const SPARE: [Block; 2] = [Block::Proc, Block::NamespaceLimits];

/// Blocks in place of which there is an older way.
const NEWER: [Block; 3] = [Block::Trees, Block::TreeFlags, Block::Attach];

/// A line for each block that is not to be had, and one for all that are.
pub(super) async fn checks(here: &Evidence) -> Vec<Check> {
    let name = "building blocks";
    let tried = tokio::task::spawn_blocking(process::try_blocks).await;
    let outcomes = match tried {
        Ok(Ok(outcomes)) => outcomes,
        Ok(Err(error)) => return vec![Check::failed(name, &error)],
        Err(_) => return vec![Check::failed(name, &StartError::WardenKilled)],
    };
    let works = outcomes.iter().filter(|(_, outcome)| *outcome == Outcome::Works);
    let works: Vec<&str> = works.map(|(block, _)| block.name()).collect();
    let mut checks: Vec<Check> =
        outcomes.iter().filter_map(|(block, outcome)| check(*block, *outcome, here)).collect();
    if !works.is_empty() {
        checks.insert(0, Check::ok(name, format!("tried and working: {}", works.join(", "))));
    }
    checks
}

/// Whether a check of this name is of a block.
fn is_block(name: &str) -> bool {
    Block::ALL.iter().any(|block| block.name() == name)
}

/// What a failed check of a block comes to where a jail was made all the same; none where that has to stay
/// as it is.
pub(super) fn excused(check: &Check, here: &Evidence) -> Option<Check> {
    let newer = NEWER.iter().find(|block| block.name() == check.name);
    match newer {
        Some(block) => Some(Check::of(block.name(), advise(&table::MOUNT_CALLS, here, &[]))),
        None if is_block(check.name) => Some(Check {
            state: State::Degraded,
            consequence: Some("nothing: an older way was taken instead".to_owned()),
            ..check.clone()
        }),
        None => None,
    }
}

fn check(block: Block, outcome: Outcome, here: &Evidence) -> Option<Check> {
    match outcome {
        Outcome::Works | Outcome::NotTried => None,
        Outcome::Killed(signal) => {
            let mut check = Check::of(block.name(), advise(&table::WARDEN_KILLED, here, &[]));
            check.evidence = format!("ended by signal {signal}: {}", check.evidence);
            Some(check)
        }
        Outcome::Fails(failure) => Some(failed(block, failure, here)),
    }
}

fn failed(block: Block, failure: Failure, here: &Evidence) -> Check {
    let error = StartError::step(failure, None);
    match stage::advice(failure, here) {
        Some(advice) if SPARE.contains(&block) => {
            Check { evidence: error.to_string(), ..Check::of(block.name(), advice) }
        }
        _ => Check::failed(block.name(), &error),
    }
}
