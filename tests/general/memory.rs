//! R15: a limit of memory and what real runtimes do with addresses, whole turns of them.

use serde_json::json;
use tokio_util::sync::CancellationToken;
use turnjail_driver::{ContainerDriver as _, DriverError, ExitReason, Outcome};
use turnjail_jail::{ImageSettings, JailDriver, JailOptions};
use turnjail_tests::general::General;
use turnjail_tests::jails::Bench;

use crate::store::{spec, worker};

/// Half of what the trial asks for, so that it takes half as long.
const LIMIT: u32 = 512;

/// Reserves as much as a memory of WebAssembly can ever have (4 GiB, and as much again for guards),
/// instantiates a module that adds, and uses a little of it.
const ADDS: &str = r"
const code = [0,97,115,109,1,0,0,0,1,7,1,96,2,127,127,1,127,3,2,1,0,7,7,1,3,97,100,100,0,0,10,9,1,7,0,32,0,32,1,106,11];
const memories = [1, 2, 3].map(() => new WebAssembly.Memory({ initial: 1, maximum: 65536 }));
for (const memory of memories) memory.grow(256);
const { instance } = await WebAssembly.instantiate(new Uint8Array(code));
console.log(JSON.stringify({ ok: true, text: String(instance.exports.add(40, 2)) }));
";

/// Writes to three times what it may have.
const TOUCHES: &str = r"
const all = [];
for (let have = 0; have < 1536; have += 32) all.push(Buffer.alloc(32 << 20, 1));
console.log(JSON.stringify({ ok: true, text: `all ${all.length}` }));
";

fn run(
    bench: &Bench,
    image: General,
    script: &str,
    memory_mb: u32,
    data_limit: bool,
) -> Result<Outcome, DriverError> {
    let (store, reference) = worker(image, "memory.mjs", script);
    let mut options = JailOptions::new(store);
    let settings = ImageSettings { data_limit: Some(data_limit), ..ImageSettings::default() };
    options.images.set(&reference, settings);
    let mut spec = spec(bench, &reference);
    spec.limits.memory_mb = memory_mb;
    spec.limits.time_ms = 60_000;
    let turn = json!({
        "text": "hello", "speaker": {"id": "ann", "name": "Ann"}, "model": "m", "prompt": "p",
        "timeZone": "UTC", "tools": [], "mcp": [],
    });
    let (turn, never) = (turn.to_string().into_bytes(), CancellationToken::new());
    bench.runtime().block_on(async {
        let driver = JailDriver::start(options).await?;
        driver.verify(&reference).await?;
        driver.run(&spec, &turn, &never, &()).await
    })
}

fn limits(image: General) {
    let bench = Bench::new();
    let name = image.name();
    for data_limit in [false, true] {
        // JavaScriptCore keeps its heap in private memory that it only reserves, which RLIMIT_DATA counts.
        if data_limit && image == General::Bun {
            continue;
        }
        let added = run(&bench, image, ADDS, LIMIT, data_limit);
        let added = added.unwrap_or_else(|error| panic!("{name}, {data_limit}: {error:?}"));
        assert_eq!(added.reply.text, "42", "{name}");
    }
    let control = run(&bench, image, TOUCHES, 8192, false);
    let control = control.unwrap_or_else(|error| panic!("{name} cannot have it: {error:?}"));
    assert_eq!(control.reply.text, "all 48", "{name}");
    let error = run(&bench, image, TOUCHES, LIMIT, false).expect_err("three times its limit");
    let DriverError::Worker { reason, receipt, .. } = error else { panic!("{name}: {error:?}") };
    assert_eq!(reason, ExitReason::Memory, "{name}: {receipt:?}");
    // Which guard it was is in the record.
    let line = receipt.limits.iter().find(|limit| limit.name == "memory").expect("a line");
    let by = line.by.as_deref().unwrap_or_default();
    assert_eq!(line.asked, format!("{LIMIT} MiB"));
    assert!(by.contains("a watch of processes") || by.contains("memory.max (cgroup)"), "{by}");
    assert!(!by.contains("RLIMIT_AS"), "{name}: addresses count: {by}");
}

pub fn node() {
    limits(General::Node);
}

pub fn bun() {
    limits(General::Bun);
}
