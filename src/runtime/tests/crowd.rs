//! Many channels at once.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;
use turnjail_driver::{
    ContainerDriver, ContainerSpec, DriverError, ExitReason, Outcome, Progress, Receipt, Timing,
    Usage,
};
use turnjail_protocol::{Reply, Turn};
use turnjail_runtime::{SandboxRuntime, WorkspaceMode, guild_workspace};

use crate::common::{Place, in_space, tests, threaded};

tests![two_hundred_channels_in_twenty_guilds_with_random_failures];

const GUILDS: usize = 20;
const CHANNELS: usize = 200;
const ROUNDS: usize = 5;

/// A worker that counts in its workspace without any care: read, wait, write. Two of them at once in
/// one workspace would lose a count.
#[derive(Default)]
struct Counting {
    chance: AtomicU64,
}

impl Counting {
    /// A different number each time, the same in every test run.
    fn chance(&self, below: u64) -> u64 {
        let seed = self.chance.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed);
        let mixed = (seed ^ (seed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        (mixed ^ (mixed >> 27)) % below
    }
}

fn count(file: &Path) -> u64 {
    std::fs::read_to_string(file).map_or(0, |text| text.trim().parse().unwrap())
}

#[async_trait]
impl ContainerDriver for Counting {
    fn name(&self) -> &'static str {
        "counting"
    }

    async fn run(
        &self,
        spec: &ContainerSpec,
        turn: &[u8],
        cancel: &CancellationToken,
        _progress: &dyn Progress,
    ) -> Result<Outcome, DriverError> {
        let turn = Turn::parse(turn).unwrap();
        let file = spec.workspace_dir.join("count");
        let before = count(&file);
        tokio::time::sleep(Duration::from_micros(self.chance(500))).await;
        std::fs::write(&file, (before + 1).to_string()).unwrap();
        let own = spec.channel_dir.as_ref().unwrap().join("count");
        std::fs::write(&own, (count(&own) + 1).to_string()).unwrap();
        match self.chance(5) {
            0 => {
                return Err(DriverError::Start {
                    code: "exec",
                    cause: "no".to_owned(),
                    remedy: None,
                });
            }
            1 => panic!("on purpose"),
            2 => {
                cancel.cancelled().await;
                return Err(DriverError::Cancelled);
            }
            _ => {}
        }
        Ok(Outcome {
            reply: Reply { ok: true, text: turn.text },
            receipt: Receipt {
                driver: "counting",
                image: spec.image.clone(),
                image_digest: None,
                profile: None,
                loopback: None,
                walls: Vec::new(),
                limits: Vec::new(),
                exit: ExitReason::Ok,
                timing: Timing::default(),
                usage: Usage::default(),
            },
        })
    }
}

fn two_hundred_channels_in_twenty_guilds_with_random_failures() {
    let place = Place::new();
    let mut totals: HashMap<&'static str, usize> = HashMap::new();
    threaded(async {
        let options = place
            .options()
            .workspace(WorkspaceMode::Server)
            .max_waiting(100)
            .max_wait(Duration::from_secs(60))
            .turn_timeout(Duration::from_secs(60));
        let runtime = SandboxRuntime::new(options, Arc::new(Counting::default())).await.unwrap();
        let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        let before = descriptors();
        for round in 0..ROUNDS {
            let turns: Vec<_> = (0..CHANNELS)
                .map(|channel| {
                    let text = format!("{round}/{channel}");
                    let guild = format!("guild-{}", channel % GUILDS);
                    let turn = in_space(&guild, &format!("chat:{channel}"), &text);
                    (text, tokio::spawn(runtime.run_turn(turn)))
                })
                .collect();
            // Those that wait to be ended are ended, again and again while there are any.
            let stopper = tokio::spawn({
                let runtime = runtime.clone();
                async move {
                    loop {
                        tokio::time::sleep(Duration::from_millis(5)).await;
                        runtime.busy().iter().filter(|c| c.len() % 2 == 0).for_each(|channel| {
                            runtime.stop(channel);
                        });
                        for channel in runtime.busy() {
                            runtime.stop(&channel);
                            tokio::time::sleep(Duration::from_millis(1)).await;
                        }
                    }
                }
            });
            for (text, turn) in turns {
                let outcome = match turn.await.unwrap() {
                    Ok(result) => {
                        assert_eq!(result.reply.text, text, "everybody gets their own answer");
                        "ok"
                    }
                    Err(error) => error.code(),
                };
                *totals.entry(outcome).or_default() += 1;
            }
            stopper.abort();
            assert!(runtime.busy().is_empty());
            assert_eq!((runtime.load().running, runtime.load().waiting), (0, 0));
            assert_eq!(place.run_directories(), [""; 0]);
        }
        runtime.dispose().await;
        // Other tests run beside this one, so only a leak that grows with the turns shows.
        assert!(descriptors() < before + 200, "{before} before, {} after", descriptors());
    });
    let known = ["ok", "exec", "host", "stopped"];
    assert!(totals.keys().all(|outcome| known.contains(outcome)), "{totals:?}");
    assert_eq!(totals.values().sum::<usize>(), CHANNELS * ROUNDS);
    // No count was lost: a guild's count is that of its channels together.
    let by_guild = |guild: usize| {
        let name = guild_workspace("chat", &format!("guild-{guild}"));
        count(&place.workspace_root().join(name).join("count"))
    };
    let states: u64 = place
        .workspaces()
        .iter()
        .filter(|name| name.starts_with("state-"))
        .map(|name| count(&place.workspace_root().join(name).join("count")))
        .sum();
    let guilds: u64 = (0..GUILDS).map(by_guild).sum();
    assert_eq!(guilds, states);
    assert!(guilds > 0 && guilds <= (CHANNELS * ROUNDS) as u64);
}
