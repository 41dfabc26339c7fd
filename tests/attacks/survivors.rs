//! A24: what would go on after its program, and what must go on although a thread of the host does not.

use std::os::unix::net::UnixListener;
use std::pin::Pin;
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;
use turnjail_driver::ExitReason;
use turnjail_jail::client::Client;
use turnjail_jail::{Ended, Profile, StartError, run};
use turnjail_tests::acts::call;
use turnjail_tests::jails::Bench;
use turnjail_tests::{Test, unique_word, ways};
use turnjail_warden::seccomp::numbers;

use crate::support::{PROFILES, Process, within};

pub const TESTS: &[Test] = &[
    Test::new("a24_no_survivor_of_any_kind", kinds),
    Test::new("a24_a_jail_outlives_the_threads_that_asked_for_it", threads),
];

/// What a survivor does: stopped by itself, deaf with all streams open, waiting for a broker that never
/// answers, waiting for a file that never comes.
fn survivors(broker: &str, workspace: &str) -> Vec<(&'static str, Vec<Value>)> {
    let pause = json!(["sleep", 60_000]);
    vec![
        (
            "stopped",
            vec![
                call(numbers::GETPID, json!([])),
                call(numbers::KILL, json!([{"of": 0}, Signal::SIGSTOP as i32])),
                pause.clone(),
            ],
        ),
        ("deaf", vec![json!(["ignore"]), pause.clone()]),
        ("in its broker", vec![json!(["ignore"]), json!(["talk", broker, "GET"]), pause.clone()]),
        ("in a FIFO", vec![json!(["ignore"]), json!(["wait", format!("{workspace}/fifo")]), pause]),
    ]
}

fn kinds() {
    let bench = Bench::new();
    // It accepts nothing: whoever connects waits in its queue.
    let socket = bench.path("run").join("broker.sock");
    let _broker = UnixListener::bind(&socket).expect("a listener");
    let fifo = bench.path("workspace").join("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).expect("a FIFO");
    let outside = survivors(&socket.to_string_lossy(), &bench.path("workspace").to_string_lossy());
    let inside = survivors("/broker/broker.sock", "/workspace");
    for ((what, outside), (_, inside)) in outside.into_iter().zip(inside) {
        let acts = |acts: Vec<Value>, word: &str| {
            [json!(["survivor", acts]), json!(["sleep", 100]), json!(["print", word])]
        };
        let control = unique_word(format_args!("outside-{what}"));
        let mut command = Command::new(bench.path("root").join("worker"));
        command.args(acts(outside, &control).map(|act| act.to_string()));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        assert!(command.status().expect("the control").success());
        let left = Process::find_by(&control, |_| true);
        let left = left.unwrap_or_else(|| panic!("{what}: the control leaves none either"));
        kill(Pid::from_raw(left.pid()), Signal::SIGKILL).expect("it is there");
        let word = unique_word(format_args!("inside-{what}"));
        let report = bench.acts(Profile::General, &acts(inside.clone(), &word));
        assert_eq!(report.reason, Some(ExitReason::Ok), "{what}: {report:?}");
        assert_eq!(report.value(0), 0, "{what}: {report:?}");
        assert!(Process::find_by(&word, |_| true).is_none(), "{what}: it survived");
        let sealed = bench.acts(Profile::Sealed, &acts(inside, &word));
        assert!(sealed.filtered_at(0), "{what}: {sealed:?}");
    }
    assert_eq!(bench.acts(Profile::General, &[json!(["exit", 0])]).reason, Some(ExitReason::Ok));
}

type Running<'a> = Pin<Box<dyn Future<Output = Result<Ended, StartError>> + Send + 'a>>;

/// The kernel's signal for the death of a parent comes with the end of the thread that forked, which is
/// the control; neither the warden nor a jail hangs on a thread.
fn threads() {
    let control = std::thread::spawn(|| {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "sleep", "60"]).stdin(Stdio::null());
        let child = command.spawn().expect("setpriv of util-linux");
        // It asks for the signal itself, before it becomes another program.
        let name = format!("/proc/{}/comm", child.id());
        let is = || std::fs::read_to_string(&name).is_ok_and(|name| name.trim() == "sleep");
        within("it has asked for the signal", || is().then_some(()));
        child
    });
    let mut control = control.join().expect("a thread that ends");
    within("the control ends with its thread", || control.try_wait().expect("a child"));
    let bench = Bench::new();
    let runtime = Runtime::new().expect("a runtime");
    let options = ways::options();
    let client = std::thread::scope(|scope| {
        let warden = scope.spawn(|| runtime.block_on(Client::start_with(options)));
        warden.join().expect("a thread that ends").expect("a warden")
    });
    for &profile in PROFILES {
        let word = unique_word(format_args!("threads-{profile}"));
        let mut spec = bench.spec_for(profile, &[bench.sleep()]);
        spec.command.push(json!(["print", word]).to_string());
        let never = CancellationToken::new();
        let running: Running = std::thread::scope(|scope| {
            let asks = scope.spawn(|| {
                let mut running: Running = Box::pin(run(&client, &spec, b"", &never, || {}));
                let there = async {
                    while Process::find_by(&word, |line| line.starts_with(b"/worker\0")).is_none() {
                        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
                    }
                };
                runtime.block_on(async {
                    tokio::select! {
                        ended = &mut running => panic!("it does not wait: {ended:?}"),
                        () = there => {}
                    }
                });
                running
            });
            asks.join().expect("a thread that ends")
        });
        // As long as it takes for a signal to come that is on its way.
        std::thread::sleep(std::time::Duration::from_millis(200));
        assert!(Process::find_by(&word, |_| true).is_some(), "{profile}: it died with a thread");
        never.cancel();
        let ended = runtime.block_on(running).expect("a jail");
        assert_eq!(ended.reason, ExitReason::Cancelled, "{profile}: {}", ended.cause());
        assert!(Process::find_by(&word, |_| true).is_none(), "{profile}: it survived");
    }
    assert!(client.alive());
}
