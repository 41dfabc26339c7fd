//! The network namespace that a warden makes for its next jail.

use std::cell::RefCell;
use std::fs;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use turnjail_jail::client::{Client, ClientOptions};
use turnjail_jail::run;
use turnjail_tests::jails::Bench;
use turnjail_warden::wire::Way;

use crate::lifecycle::{parent, processes, sleeper, wait_until};

/// A jail is cloned in the namespace that the warden has made ahead; the warden does not stay in it and keeps
/// nothing of it, and the next jail has another.
pub fn made_ahead() {
    let bench = Bench::new();
    let options = ClientOptions { pool: 0, way: Way::Direct };
    let client = bench.runtime().block_on(Client::start_with(options)).expect("a warden");
    let cancel = CancellationToken::new();
    let jails = [sleeper(&bench), sleeper(&bench), sleeper(&bench)];
    let seen = RefCell::new(Vec::new());
    let sleep = async |index: usize| {
        let (spec, _) = &jails[index];
        run(&client, spec, b"", &cancel, || {}).await.expect("a jail")
    };
    let watch = async {
        let mut ahead = None;
        let mut warden = String::new();
        for (_, word) in &jails {
            while processes(word).is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            let jail = processes(word)[0];
            let own = network(&jail.to_string());
            if let Some(ahead) = ahead {
                assert_eq!(own, ahead, "it is not in the one that was made ahead");
            }
            warden = parent(jail).to_string();
            wait_until("the warden does not stay in it", || network(&warden) != own);
            ahead = Some(made_by(&warden).await);
            seen.borrow_mut().push(own);
        }
        assert_eq!(held(&warden).len(), 1, "the warden holds none but its own");
        seen.borrow_mut().extend(ahead);
        cancel.cancel();
    };
    // Each starts once the one before it has been looked at.
    let after = async |count: usize| {
        while seen.borrow().len() < count {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        sleep(count).await
    };
    bench.runtime().block_on(async { tokio::join!(sleep(0), after(1), after(2), watch) });
    let mut all = seen.into_inner();
    all.push(network("self"));
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 5, "three jails, the next one's, the host's: {all:?}");
}

/// The network namespace of a process.
fn network(pid: &str) -> String {
    let link = fs::read_link(format!("/proc/{pid}/ns/net")).expect("a namespace");
    link.to_string_lossy().into_owned()
}

/// The network namespaces that a process has open.
fn held(pid: &str) -> Vec<String> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).expect("descriptors").flatten();
    let links = entries.filter_map(|entry| fs::read_link(entry.path()).ok());
    let links = links.map(|link| link.to_string_lossy().into_owned());
    links.filter(|link| link.starts_with("net:")).collect()
}

/// The one that a warden has made for the next jail: it is in it, and has its own open to come back to.
async fn made_by(warden: &str) -> String {
    for _ in 0..2000 {
        let (now, own) = (network(warden), held(warden));
        if now != network("self") && !own.is_empty() && !own.contains(&now) {
            return now;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("the warden makes none");
}
