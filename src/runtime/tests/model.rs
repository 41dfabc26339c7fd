//! Random schedules of calls, stops, drops, endings and time, against a small model of the queue.
//!
//! Time stands still but for what a schedule lets pass, so that the model can say exactly what must
//! have happened: who ran, in which order, told what, and how each turn ended.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use turnjail_runtime::{PendingTurn, SandboxRuntime, TurnError, TurnResult, WorkspaceMode};

use crate::common::{Place, Scripted, Verdict, in_space, paused, request, start, tests};

tests![random_schedules_go_as_the_model_says];

/// Schedules of each run; each has up to [`STEPS`] steps.
const SCHEDULES: u32 = 2_000;
const STEPS: usize = 40;
const CHANNELS: u8 = 6;
const MAX_WAITING: usize = 2;
/// Time passes in steps of 100 ms, so that turns begin and time out at multiples of it and waiting ones
/// give up half way between: no two things that touch happen at once.
const TICK: u64 = 100;
const TURN_TIMEOUT: u64 = 1_000;
const MAX_WAIT: u64 = 750;

#[derive(Debug, Clone)]
enum Step {
    /// A message, in a channel and perhaps a space.
    Call(u8, Option<u8>),
    /// A message, and a stop before its task could run at all.
    CallAndStop(u8, Option<u8>),
    /// A message whose future is dropped before its task could run at all.
    CallAndDrop(u8, Option<u8>),
    /// The channel's worker ends.
    Finish(u8, Verdict),
    Stop(u8),
    Drop(u8),
    StartFresh(u8),
    /// Time passes, in ticks.
    Wait(u8),
}

fn step() -> impl Strategy<Value = Step> {
    let channel = || 0..CHANNELS;
    let space = || prop_oneof![1 => Just(None), 3 => Just(Some(0_u8)), 1 => Just(Some(1))];
    let verdict = prop_oneof![
        4 => Just(Verdict::Ok),
        1 => Just(Verdict::NotOk),
        1 => Just(Verdict::Fail),
        1 => Just(Verdict::Start),
        1 => Just(Verdict::Panic),
        1 => Just(Verdict::Cleanup),
    ];
    prop_oneof![
        10 => (channel(), space()).prop_map(|(channel, space)| Step::Call(channel, space)),
        1 => (channel(), space()).prop_map(|(channel, space)| Step::CallAndStop(channel, space)),
        1 => (channel(), space()).prop_map(|(channel, space)| Step::CallAndDrop(channel, space)),
        7 => (channel(), verdict).prop_map(|(channel, verdict)| Step::Finish(channel, verdict)),
        2 => channel().prop_map(Step::Stop),
        2 => channel().prop_map(Step::Drop),
        2 => channel().prop_map(Step::StartFresh),
        2 => (1_u8..12).prop_map(Step::Wait),
    ]
}

fn random_schedules_go_as_the_model_says() {
    let config = Config {
        cases: SCHEDULES,
        failure_persistence: None,
        max_shrink_iters: 500,
        ..Config::default()
    };
    let place = Place::new();
    TestRunner::new(config)
        .run(&prop::collection::vec(step(), 1..STEPS), |steps| {
            paused(play(&place, &steps));
            Ok(())
        })
        .unwrap_or_else(|failure| panic!("{failure}"));
}

fn channel_name(channel: u8) -> String {
    format!("chat:{channel}")
}

// ---- the model ----

/// How a turn must end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Answered { ok: bool },
    Failed(&'static str),
    Stopped { waiting: bool },
}

#[derive(Debug)]
struct ModelTurn {
    id: usize,
    channel: u8,
    reset: Option<u64>,
    /// When it arrived or, once it runs, when it began to.
    since: u64,
}

/// A workspace: a guild's, or a channel's own.
type Key = Result<u8, u8>;

#[derive(Debug, Default)]
struct Line {
    running: Option<ModelTurn>,
    waiting: VecDeque<ModelTurn>,
}

#[derive(Debug, Default)]
struct Model {
    now: u64,
    lines: BTreeMap<Key, Line>,
    fresh: HashMap<u8, u64>,
    requests: u64,
    /// Runs by workspace, in order: the turn, and whether it was told to reset.
    runs: BTreeMap<Key, Vec<(usize, bool)>>,
    ends: HashMap<usize, End>,
}

impl Model {
    fn find(&self, channel: u8) -> Option<(Key, bool)> {
        self.lines.iter().find_map(|(key, line)| {
            if line.running.as_ref().is_some_and(|turn| turn.channel == channel) {
                return Some((*key, true));
            }
            let waits = line.waiting.iter().any(|turn| turn.channel == channel);
            waits.then_some((*key, false))
        })
    }

    fn busy(&self) -> Vec<String> {
        let mut busy: Vec<String> = self
            .lines
            .values()
            .flat_map(|line| line.running.iter().chain(&line.waiting))
            .map(|turn| channel_name(turn.channel))
            .collect();
        busy.sort();
        busy
    }

    fn load(&self) -> (usize, usize) {
        let running = self.lines.values().filter(|line| line.running.is_some()).count();
        (running, self.lines.values().map(|line| line.waiting.len()).sum())
    }

    /// A call whose task runs at once (`prompt`), or was ended before it could.
    fn call(&mut self, id: usize, channel: u8, space: Option<u8>, prompt: bool) {
        if self.find(channel).is_some() {
            self.ends.insert(id, End::Failed("channel-busy"));
            return;
        }
        let key = space.ok_or(channel).map_or_else(Err, Ok);
        let reset = self.fresh.get(&channel).copied();
        let turn = ModelTurn { id, channel, reset, since: self.now };
        let line = self.lines.entry(key).or_default();
        if line.running.is_some() && line.waiting.len() >= MAX_WAITING {
            self.ends.insert(id, End::Failed("queue-full"));
        } else if !prompt {
            self.ends.insert(id, End::Stopped { waiting: true });
        } else if line.running.is_some() {
            line.waiting.push_back(turn);
        } else {
            self.run(key, turn);
        }
    }

    fn run(&mut self, key: Key, turn: ModelTurn) {
        self.runs.entry(key).or_default().push((turn.id, turn.reset.is_some()));
        let now = self.now;
        self.lines.entry(key).or_default().running = Some(ModelTurn { since: now, ..turn });
    }

    /// Ends the running turn of a workspace; the next one runs.
    fn end_running(&mut self, key: Key, end: End) {
        let line = self.lines.get_mut(&key).unwrap();
        let turn = line.running.take().unwrap();
        let next = line.waiting.pop_front();
        let fulfilled = end == End::Answered { ok: true }
            && turn.reset.is_some()
            && self.fresh.get(&turn.channel).copied() == turn.reset;
        if fulfilled {
            self.fresh.remove(&turn.channel);
        }
        self.ends.insert(turn.id, end);
        if let Some(next) = next {
            self.run(key, next);
        }
    }

    fn end_waiting(&mut self, key: Key, end: End, which: impl Fn(&ModelTurn) -> bool) {
        let line = self.lines.get_mut(&key).unwrap();
        let place = line.waiting.iter().position(which).unwrap();
        let turn = line.waiting.remove(place).unwrap();
        self.ends.insert(turn.id, end);
    }

    fn stop(&mut self, channel: u8) -> bool {
        match self.find(channel) {
            None => return false,
            Some((key, true)) => self.end_running(key, End::Stopped { waiting: false }),
            Some((key, false)) => {
                let end = End::Stopped { waiting: true };
                self.end_waiting(key, end, |turn| turn.channel == channel);
            }
        }
        true
    }

    fn finish(&mut self, channel: u8, verdict: Verdict) -> Option<usize> {
        let (key, true) = self.find(channel)? else { return None };
        let id = self.lines[&key].running.as_ref().unwrap().id;
        self.end_running(
            key,
            match verdict {
                Verdict::Ok => End::Answered { ok: true },
                Verdict::NotOk => End::Answered { ok: false },
                Verdict::Fail => End::Failed("worker_failed"),
                Verdict::Memory => End::Failed("memory"),
                Verdict::Start => End::Failed("userns-disabled"),
                Verdict::Panic => End::Failed("host"),
                Verdict::Cleanup => End::Failed("cleanup"),
            },
        );
        Some(id)
    }

    fn start_fresh(&mut self, channel: u8) {
        self.requests += 1;
        self.fresh.insert(channel, self.requests);
    }

    /// Half a tick passes.
    fn pass(&mut self, milliseconds: u64) {
        self.now += milliseconds;
        let keys: Vec<Key> = self.lines.keys().copied().collect();
        for key in keys {
            let now = self.now;
            let over = |turn: &ModelTurn, limit| now >= turn.since + limit;
            while self.lines[&key].waiting.iter().any(|turn| over(turn, MAX_WAIT)) {
                let end = End::Failed("waited-too-long");
                self.end_waiting(key, end, |turn| over(turn, MAX_WAIT));
            }
            if self.lines[&key].running.as_ref().is_some_and(|turn| over(turn, TURN_TIMEOUT)) {
                self.end_running(key, End::Failed("timeout"));
            }
        }
    }
}

// ---- the real thing beside it ----

struct Stage {
    runtime: SandboxRuntime,
    driver: Arc<Scripted>,
    model: Model,
    /// Calls whose answer is still awaited.
    pending: BTreeMap<usize, (u8, PendingTurn)>,
    next: usize,
}

async fn play(place: &Place, steps: &[Step]) {
    let driver = Scripted::new();
    let options = place
        .options()
        .workspace(WorkspaceMode::Server)
        .max_waiting(MAX_WAITING)
        .turn_timeout(Duration::from_millis(TURN_TIMEOUT))
        .max_wait(Duration::from_millis(MAX_WAIT));
    let runtime = start(options, &driver).await;
    let mut stage =
        Stage { runtime, driver, model: Model::default(), pending: BTreeMap::new(), next: 0 };
    for step in steps {
        stage.step(step).await;
        stage.compare(step);
    }
    stage.end(place).await;
}

impl Stage {
    async fn step(&mut self, step: &Step) {
        match *step {
            Step::Call(channel, space) => {
                let (id, turn) = self.call(channel, space);
                self.model.call(id, channel, space, true);
                self.pending.insert(id, (channel, turn));
            }
            Step::CallAndStop(channel, space) => {
                let before = self.model.find(channel).is_some();
                let (id, turn) = self.call(channel, space);
                self.model.call(id, channel, space, false);
                let refused = matches!(self.model.ends[&id], End::Failed(_));
                if !(before || refused) {
                    assert!(self.runtime.stop(&channel_name(channel)));
                }
                self.pending.insert(id, (channel, turn));
            }
            Step::CallAndDrop(channel, space) => {
                let (id, turn) = self.call(channel, space);
                self.model.call(id, channel, space, false);
                drop(turn);
            }
            Step::Finish(channel, verdict) => {
                if let Some(id) = self.model.finish(channel, verdict) {
                    assert!(self.driver.finish(&id.to_string(), verdict), "{id} runs");
                }
            }
            Step::Stop(channel) => {
                let stopped = self.runtime.stop(&channel_name(channel));
                assert_eq!(stopped, self.model.stop(channel));
            }
            Step::Drop(channel) => {
                // Only the future of the turn that is active: a refused one has none to drop.
                let active = self.pending.iter().rev().find_map(|(id, (of, _))| {
                    (*of == channel && !self.model.ends.contains_key(id)).then_some(*id)
                });
                if let Some(id) = active {
                    self.pending.remove(&id);
                    assert!(self.model.stop(channel));
                }
            }
            Step::StartFresh(channel) => {
                self.runtime.start_fresh(&channel_name(channel));
                self.model.start_fresh(channel);
            }
            Step::Wait(ticks) => {
                for _ in 0..2 * u64::from(ticks) {
                    tokio::time::advance(Duration::from_millis(TICK / 2)).await;
                    settle().await;
                    self.model.pass(TICK / 2);
                }
            }
        }
        settle().await;
    }

    fn call(&mut self, channel: u8, space: Option<u8>) -> (usize, PendingTurn) {
        let id = self.next;
        self.next += 1;
        let (name, text) = (channel_name(channel), id.to_string());
        let turn = match space {
            Some(space) => in_space(&space.to_string(), &name, &text),
            None => request(&name, &text),
        };
        (id, self.runtime.run_turn(turn))
    }

    /// Everything that can be seen is as the model has it.
    fn compare(&mut self, step: &Step) {
        let mut busy = self.runtime.busy();
        busy.sort();
        assert_eq!(busy, self.model.busy(), "after {step:?}");
        let load = self.runtime.load();
        assert_eq!((load.running, load.waiting), self.model.load(), "after {step:?}");
        assert_eq!(self.driver.running(), self.model.load().0, "after {step:?}");
        let ended: Vec<usize> =
            self.pending.keys().filter(|id| self.model.ends.contains_key(id)).copied().collect();
        for id in ended {
            let (_, turn) = self.pending.remove(&id).unwrap();
            let answer = futures_util::FutureExt::now_or_never(turn);
            let answer = answer.unwrap_or_else(|| panic!("turn {id} is over after {step:?}"));
            assert_eq!(seen(answer), self.model.ends[&id], "turn {id} after {step:?}");
        }
    }

    async fn end(mut self, place: &Place) {
        self.runtime.dispose().await;
        for (id, (_, turn)) in std::mem::take(&mut self.pending) {
            assert_eq!(turn.await.unwrap_err().code(), "shutting-down", "turn {id}");
        }
        assert_eq!((self.runtime.load().running, self.runtime.load().waiting), (0, 0));
        assert_eq!(place.run_directories(), [""; 0]);
        self.driver.assert_orderly();
        let mut runs: BTreeMap<String, Vec<(usize, bool)>> = BTreeMap::new();
        for run in self.driver.runs() {
            let workspace = run.spec.workspace_dir.file_name().unwrap().to_str().unwrap();
            let entry = (run.turn.text.parse().unwrap(), run.turn.reset);
            runs.entry(workspace.to_owned()).or_default().push(entry);
        }
        let expected: BTreeMap<String, Vec<(usize, bool)>> =
            self.model.runs.into_iter().map(|(key, runs)| (directory(key), runs)).collect();
        assert_eq!(runs, expected);
    }
}

fn directory(key: Key) -> String {
    match key {
        Ok(space) => turnjail_runtime::guild_workspace("chat", &space.to_string()),
        Err(channel) => turnjail_runtime::channel_workspace(&channel_name(channel)),
    }
}

fn seen(answer: Result<TurnResult, TurnError>) -> End {
    match answer {
        Ok(result) => End::Answered { ok: result.reply.ok },
        Err(TurnError::Stopped { waiting }) => End::Stopped { waiting },
        Err(error) => End::Failed(error.code()),
    }
}

/// Lets every task go as far as it gets without time passing.
async fn settle() {
    for _ in 0..24 {
        tokio::task::yield_now().await;
    }
}
