//! The TypeScript worker that turnjail's own follows, under Bun in a general jail, does every recorded
//! turn as its vectors say: what was recorded outside a jail holds inside one.
//!
//! Of the deliberate differences between the two workers (docs of the protocol) these touch what is
//! compared, and are left out of the comparison:
//!
//! - A lone surrogate: the TypeScript worker writes it as an escape, turnjail reads it as U+FFFD. Both
//!   sides are read as turnjail reads them.
//! - Standard error: turnjail's worker says in one line why a turn failed, the TypeScript worker nothing.
//! - Headers: turnjail's worker sends four and no others; Bun's HTTP client adds its own.
//!
//! The rest (durable writes, links that are not followed, nesting, the order of keys like integers, the
//! fields of protocol 2) shows in no vector of this worker.

use std::path::PathBuf;

use serde_json::Value;
use turnjail_images::{Image, ImageConfig, ImageStore};
use turnjail_jail::{Isolation, JailOptions, JailSpec, Status};
use turnjail_tests::general::{self, General};
use turnjail_tests::jails::Bench;
use turnjail_tests::script::Broker;
use turnjail_tests::{compare, vectors};

use crate::{seeds, store};

/// The files of the image: the published ones, and the two modules that are not published.
fn files() -> Vec<(String, String)> {
    let published = seeds::worker().expect("the published files").into_iter();
    let ours = [
        ("src/protocol.ts", include_str!("typescript/protocol.ts")),
        ("worker/transport.ts", include_str!("typescript/transport.ts")),
    ];
    let ours = ours.map(|(path, text)| (path, text.to_owned()));
    published.chain(ours).map(|(path, text)| (format!("/app/{path}"), text)).collect()
}

/// An image of the store, as the worker's own container file describes it, by store and reference.
pub fn image() -> (PathBuf, String) {
    let config = ImageConfig {
        entrypoint: ["bun", "/app/worker/main.ts"].map(str::to_owned).to_vec(),
        working_dir: "/app".to_owned(),
        ..ImageConfig::default()
    };
    general::imported(&General::Bun.root_with(&files()), config)
}

fn check(vector: &Value, image: &Image) -> Result<(), String> {
    let bench = Bench::new();
    let turn = store::spec(&bench, &image.reference);
    let spec = JailSpec::for_turn(&turn, image, Isolation::GENERAL, true);
    let workspace = bench.path("workspace");
    vectors::lay_out(vector, &workspace).map_err(|e| e.to_string())?;
    let broker = Broker::listen(&bench.path("run").join("broker.sock"), vectors::answers(vector));
    let ended = bench.run(&spec, &vectors::stdin(vector)).map_err(|e| e.to_string());
    let calls = broker.stop();
    let ended = ended?;
    let Status::Code(code) = ended.exit.status else { return Err(format!("{ended:?}")) };
    compare::reply(vector, &ended.stdout, Some(code))?;
    compare::calls(vector, &calls)?;
    compare::workspace(vector, &workspace)
}

pub fn every_vector() {
    let (store, reference) = image();
    let store = ImageStore::open(&store).expect("a store");
    let image = store.resolve(&reference).expect("the image");
    let vectors = vectors::worker();
    let count = vectors.len();
    let failed: Vec<_> = vectors
        .into_iter()
        .filter_map(|(name, vector)| Some(format!("{name}: {}", check(&vector, &image).err()?)))
        .collect();
    assert!(failed.is_empty(), "{} of {count} turns differ:\n{}", failed.len(), failed.join("\n"));
}

/// The driver runs it as any worker, and its reply is a turn's.
pub fn a_turn() {
    let bench = Bench::new();
    let (images, reference) = image();
    let outcome = store::run(&bench, JailOptions::new(images), &reference);
    let outcome = outcome.unwrap_or_else(|error| panic!("{error:?}"));
    assert_eq!((outcome.reply.ok, &*outcome.reply.text), (true, "hi"));
    assert_eq!(outcome.receipt.profile, Some("general"));
    let history = std::fs::read_to_string(bench.path("workspace").join("history.json"));
    assert!(history.expect("a history").contains("hello"));
}
