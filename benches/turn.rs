//! A whole turn with a model that answers at once, against the bare floor of a jail; then turns at once.
//!
//! `cargo bench -p turnjail-bench --bench turn`. The workspaces lie below the system's temporary
//! directory, or below `TURNJAIL_BENCH_DIR`: on tmpfs nothing is added by the disk.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use turnjail_bench::contenders::{Floor, Noop, Place};
use turnjail_bench::{Contender, Scratch, report, side_by_side, upstream};
use turnjail_broker::{BrokerSettings, Credential};
use turnjail_jail::{JailDriver, JailOptions};
use turnjail_runtime::{SandboxOptions, SandboxRuntime, Speaker, TurnRequest};

const TURNS: usize = 500;
const AT_ONCE: usize = 64;
const BURST: usize = 1_024;

fn main() {
    let scratch = Scratch::new();
    let place = Place::new(scratch.path(), Noop::Musl);
    let mut contenders: Vec<Box<dyn Contender>> =
        vec![Box::new(Floor::new(&place)), Box::new(Turns::new(&scratch))];
    report("A whole turn", &side_by_side(&mut contenders, TURNS));
    burst(&Turns::new(&scratch), contenders[0].as_mut());
}

struct Turns {
    runtime: Runtime,
    sandbox: Arc<SandboxRuntime>,
}

impl Turns {
    fn new(scratch: &Scratch) -> Self {
        let runtime = Runtime::new().expect("a runtime");
        let mut broker = BrokerSettings::new("model", upstream::start(), Credential::None);
        broker.allow_http = true;
        let path = |name: &str| scratch.private(name);
        let options =
            SandboxOptions::new("turnjail-worker", path("turns"), path("workspaces"), broker);
        let sandbox = runtime.block_on(async {
            let driver = JailDriver::start(JailOptions::new(path("store"))).await.expect("jails");
            SandboxRuntime::new(options, Arc::new(driver)).await.expect("a runtime")
        });
        Self { runtime, sandbox: Arc::new(sandbox) }
    }
}

fn request(channel: usize) -> TurnRequest {
    let speaker =
        Speaker { id: "a".to_owned(), name: "A".to_owned(), principal_id: "bench:a".to_owned() };
    let channel = format!("bench:{channel}");
    TurnRequest { channel, space: None, speaker, text: "Hello!".to_owned() }
}

impl Contender for Turns {
    fn name(&self) -> &'static str {
        "a whole turn"
    }

    fn start(&mut self) -> Duration {
        self.sandbox.start_fresh("bench:0");
        let start = Instant::now();
        let result = self.runtime.block_on(self.sandbox.run_turn(request(0)));
        let time = start.elapsed();
        assert!(result.expect("a reply").reply.ok);
        time
    }
}

/// Turns a second with many channels at once, against floors a second one after the other.
fn burst(turns: &Turns, floor: &mut dyn Contender) {
    let floors = 500_u32;
    let floor_time: Duration = (0..floors).map(|_| floor.start()).sum();
    let floor_rate = f64::from(floors) / floor_time.as_secs_f64();
    let began = Instant::now();
    turns.runtime.block_on(async {
        let workers = (0..AT_ONCE).map(|channel| {
            let sandbox = Arc::clone(&turns.sandbox);
            tokio::spawn(async move {
                for _ in 0..BURST / AT_ONCE {
                    let result = sandbox.run_turn(request(channel)).await;
                    assert!(result.expect("a reply").reply.ok);
                }
            })
        });
        for worker in workers.collect::<Vec<_>>() {
            worker.await.expect("no panic");
        }
    });
    let rate = BURST as f64 / began.elapsed().as_secs_f64();
    println!(
        "{AT_ONCE} channels at once: {rate:.0} turns a second, {:.2} of {floor_rate:.0} floors a second \
         one after the other",
        rate / floor_rate
    );
}
