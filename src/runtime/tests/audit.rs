//! The record of every turn.

use std::sync::{Arc, Mutex};

use serde_json::Value;
use turnjail_driver::ExitReason;
use turnjail_runtime::{AuditLog, AuditRecord, AuditSink, channel_workspace};

use crate::common::{Place, Scripted, eventually, paused, request, start, tests, threaded};

tests![every_turn_is_audited_without_contents, a_panic_of_the_audit_sink_costs_no_turn,];

struct Panics;

impl AuditSink for Panics {
    fn record(&self, _: &AuditRecord) {
        panic!("a defect of the sink, on purpose");
    }
}

#[derive(Default)]
struct Kept(Mutex<Vec<AuditRecord>>);

impl AuditSink for Kept {
    fn record(&self, record: &AuditRecord) {
        self.0.lock().unwrap().push(record.clone());
    }
}

fn every_turn_is_audited_without_contents() {
    let (place, driver) = (Place::new(), Scripted::new());
    let kept = Arc::new(Kept::default());
    threaded(async {
        let runtime = start(place.options().audit(kept.clone()), &driver).await;
        runtime.start_fresh("chat:1");
        runtime.run_turn(request("chat:1", "auto:Ok")).await.unwrap();
        runtime.run_turn(request("chat:1", "auto:NotOk")).await.unwrap();
        runtime.run_turn(request("chat:1", "auto:Fail")).await.unwrap_err();
        let turn = runtime.run_turn(request("chat:1", "hang"));
        eventually("it runs", || driver.running() == 1).await;
        drop(turn);
        eventually("it is over", || runtime.busy().is_empty()).await;
        runtime.run_turn(request("bad", "")).await.unwrap_err();
    });
    let records = kept.0.lock().unwrap();
    let outcomes: Vec<&str> = records.iter().map(|record| record.outcome).collect();
    assert_eq!(outcomes, ["ok", "not-ok", "worker_failed", "stopped"], "refused ones are none");
    let exits: Vec<_> = records.iter().map(|record| record.run.as_ref().unwrap().exit).collect();
    assert_eq!(
        exits,
        [ExitReason::Ok, ExitReason::Ok, ExitReason::WorkerFailed, ExitReason::Cancelled]
    );
    let first = &records[0];
    assert!(first.reset && !records[1].reset);
    assert_eq!(first.channel, channel_workspace("chat:1"));
    assert_eq!(first.principal, "principal:ann");
    assert_eq!((first.message_bytes, first.reply_bytes), (7, 11));

    let file = place.path().join("audit.jsonl");
    let log = AuditLog::open(&file).unwrap();
    records.iter().for_each(|record| log.record(record));
    let lines = std::fs::read_to_string(&file).unwrap();
    assert_eq!(lines.lines().count(), 4);
    for line in lines.lines() {
        let record: Value = serde_json::from_str(line).unwrap();
        assert!(record["time"].as_str().unwrap().ends_with('Z'), "{line}");
        assert!(!line.contains("auto:") && !line.contains("re:"), "no contents: {line}");
    }
}

fn a_panic_of_the_audit_sink_costs_no_turn() {
    let (place, driver) = (Place::new(), Scripted::new());
    paused(async {
        let runtime = start(place.options().audit(Arc::new(Panics)), &driver).await;
        for _ in 0..2 {
            runtime.run_turn(request("chat:1", "auto:Ok")).await.unwrap();
        }
        assert!(runtime.busy().is_empty());
    });
}
