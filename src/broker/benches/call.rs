//! What the broker adds to a model call: the call through its socket, one connection each as a worker makes
//! them, against the same call straight to the same upstream on loopback over a kept connection.

#[path = "../tests/support/mod.rs"]
mod support;

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use criterion::{Criterion, criterion_group, criterion_main};
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::json;
use support::bench::{Turn, hello, settings};
use support::{Reply, Upstream, exchange, post};
use turnjail_broker::{Broker, Credential};

fn compare(criterion: &mut Criterion) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let answer =
        json!({ "choices": [{ "message": { "role": "assistant", "content": "x".repeat(2000) } }] });
    let upstream = runtime.block_on(Upstream::always(Reply::json(200, &answer)));
    let body = hello().to_string();
    let mut group = criterion.benchmark_group("model-call");

    let client = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
    let url = upstream.url("/v1/chat/completions");
    group.bench_function("straight", |bencher| {
        bencher.iter(|| {
            runtime.block_on(async {
                let request =
                    Request::post(&url).body(Full::new(Bytes::from(body.clone()))).unwrap();
                client
                    .request(request)
                    .await
                    .unwrap()
                    .into_body()
                    .collect()
                    .await
                    .unwrap()
                    .to_bytes()
            })
        });
    });

    let key: PathBuf = std::env::temp_dir().join(format!("turnjail-bench-{}", std::process::id()));
    std::fs::write(&key, "sk-benchmark-0123456789abcdef").unwrap();
    let mut wanted = settings(&upstream);
    wanted.max_calls = 1000;
    wanted.credential = Credential::File(key.clone());
    let broker = runtime.block_on(Broker::start(wanted)).unwrap();
    let mut turn = runtime.block_on(Turn::open(&broker));
    let calls = AtomicUsize::new(0);
    let request = post("/model", body.as_bytes());
    group.bench_function("through-the-broker", |bencher| {
        bencher.iter(|| {
            // A turn makes a thousand calls at most, so every thousandth opens the next.
            if calls.fetch_add(1, Ordering::Relaxed) % 1000 == 999 {
                turn = runtime.block_on(Turn::open(&broker));
            }
            let answered = runtime.block_on(exchange(&turn.socket, &request)).unwrap();
            assert_eq!(answered.status, 200);
        });
    });
    group.finish();
    let _ = std::fs::remove_file(key);
}

criterion_group!(benches, compare);
criterion_main!(benches);
