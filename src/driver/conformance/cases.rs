//! The demands.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use turnjail_protocol::json::{self, Value};
use turnjail_protocol::limits::{REPLY_UNITS, SANDBOX_PROTOCOL, TURN_BYTES};

use super::model::Answer;
use super::place::{
    PROMPT, Place, Started, answered, cancelled_while_it_asks, demand, model, names, run, says,
    told, turn, until_it_asks, within,
};
use super::{Case, Fault, Setting};
use crate::{ContainerDriver, ContainerSpec, DriverError, ExitReason, ImageProtocol, Outcome};

type Driver = Arc<dyn ContainerDriver>;

/// Lists functions as cases.
macro_rules! cases {
    ($($case:ident),* $(,)?) => {
        /// Every demand, in an order in which the simple ones come first.
        pub fn cases() -> Vec<Case> {
            vec![$(Case {
                name: stringify!($case),
                check: |driver, setting| Box::pin($case(driver, setting)),
            }),*]
        }
    };
}

cases![
    the_image_is_verified_and_its_protocol_told,
    a_turn_is_answered_with_a_receipt,
    nothing_is_left_beside_the_workspace,
    a_bad_specification_is_refused_and_nothing_started,
    an_unknown_image_is_refused_and_nothing_started,
    the_workspace_is_kept_between_turns,
    the_channel_directory_is_the_channels_own,
    a_workers_failure_is_told_with_its_code,
    a_refused_model_call_is_the_workers_failure,
    the_largest_turn_arrives_whole,
    the_longest_reply_comes_back_whole,
    runs_at_once_do_not_mix,
    a_run_cancelled_before_it_starts_starts_nothing,
    a_cancelled_run_ends_promptly_and_leaves_no_worker,
    a_dropped_run_leaves_no_worker,
    directories_are_usable_again_after_a_cancelled_run,
];

async fn the_image_is_verified_and_its_protocol_told(
    driver: &Driver,
    setting: &Setting,
) -> Result<(), Fault> {
    driver
        .verify(&setting.image)
        .await
        .map_err(|error| Fault::new(format!("verify refuses the worker's image: {error}")))?;
    match driver.image_protocol(&setting.image).await {
        Ok(ImageProtocol::Version(SANDBOX_PROTOCOL) | ImageProtocol::Unknown) => Ok(()),
        other => Err(Fault::new(format!(
            "image_protocol must tell {SANDBOX_PROTOCOL}, or that it cannot tell, but told {other:?}"
        ))),
    }
}

async fn a_turn_is_answered_with_a_receipt(
    driver: &Driver,
    setting: &Setting,
) -> Result<(), Fault> {
    let place = Place::new(setting)?;
    let spec = place.spec()?;
    let model = model(&spec, vec![says("Hello, Ann.")])?;
    let started = Started::default();
    let cancel = CancellationToken::new();
    let json = turn("Hello?").to_json();
    let ran = driver.run(&spec, json.as_bytes(), &cancel, &started);
    let outcome = within(PROMPT * 12, "run", ran)
        .await?
        .map_err(|error| Fault::new(format!("an ordinary turn failed: {error}")))?;
    let (reply, receipt) = (&outcome.reply, &outcome.receipt);
    demand(reply.ok && reply.text == "Hello, Ann.", || format!("the reply is {reply:?}"))?;
    demand(started.count() == 1, || format!("started was told {} times", started.count()))?;
    demand(receipt.driver == driver.name(), || format!("the receipt names {}", receipt.driver))?;
    demand(receipt.image == spec.image, || format!("the receipt is of {}", receipt.image))?;
    demand(receipt.exit == ExitReason::Ok, || format!("the receipt says {}", receipt.exit))?;
    demand(receipt.timing.start_us + receipt.timing.run_us > 0, || {
        "the receipt tells no times".to_owned()
    })?;
    let calls = model.seen().calls;
    demand(calls.len() == 1 && said(&calls[0]).contains("Hello?"), || {
        format!("the model was asked {} times, not once for the message", calls.len())
    })
}

async fn nothing_is_left_beside_the_workspace(
    driver: &Driver,
    setting: &Setting,
) -> Result<(), Fault> {
    let place = Place::new(setting)?;
    let spec = place.spec()?;
    let model = model(&spec, vec![says("Done.")])?;
    answered(driver, &spec, &turn("Do.")).await?;
    let left = names(&spec.run_dir)?;
    demand(left == ["broker.sock"], || format!("the run directory holds {left:?}"))?;
    demand(model.seen().open == 0, || "a call to the broker is still open".to_owned())?;
    let kept = names(&spec.workspace_dir)?;
    demand(kept.iter().any(|name| name == "history.json"), || {
        format!("the workspace holds {kept:?} and no history")
    })
}

async fn a_bad_specification_is_refused_and_nothing_started(
    driver: &Driver,
    setting: &Setting,
) -> Result<(), Fault> {
    let place = Place::new(setting)?;
    let good = place.spec()?;
    let model = model(&good, vec![says("It ran.")])?;
    let inside = good.workspace_dir.join("inside");
    for (what, bad) in [
        ("a name in capitals", ContainerSpec { name: "Sandbox".to_owned(), ..good.clone() }),
        ("an image that is an option", ContainerSpec { image: "--rm".to_owned(), ..good.clone() }),
        ("user 0", ContainerSpec { uid: 0, ..good.clone() }),
        ("group 0", ContainerSpec { gid: 0, ..good.clone() }),
        ("a relative directory", ContainerSpec { run_dir: "run".into(), ..good.clone() }),
        ("the root directory", ContainerSpec { workspace_dir: "/".into(), ..good.clone() }),
        ("nested directories", ContainerSpec { channel_dir: Some(inside), ..good.clone() }),
    ] {
        let started = Started::default();
        let cancel = CancellationToken::new();
        let json = turn("").to_json();
        let refused = driver.run(&bad, json.as_bytes(), &cancel, &started);
        let result = within(PROMPT, what, refused).await?;
        demand(matches!(result, Err(DriverError::Spec(_))), || {
            format!("{what} must be refused as a specification, but: {}", told(&result))
        })?;
        demand(started.count() == 0, || format!("with {what} a worker was started"))?;
    }
    demand(model.seen().calls.is_empty(), || "a worker ran".to_owned())
}

async fn an_unknown_image_is_refused_and_nothing_started(
    driver: &Driver,
    setting: &Setting,
) -> Result<(), Fault> {
    let place = Place::new(setting)?;
    let image = "turnjail-conformance-absent:1".to_owned();
    let spec = ContainerSpec { image, ..place.spec()? };
    let model = model(&spec, vec![says("It ran.")])?;
    let result = run(driver, &spec, &turn("").to_json()).await?;
    demand(matches!(result, Err(DriverError::Image { .. } | DriverError::Start { .. })), || {
        format!("an absent image must be refused as such, but: {}", told(&result))
    })?;
    demand(model.seen().calls.is_empty(), || "a worker ran".to_owned())
}

async fn the_workspace_is_kept_between_turns(
    driver: &Driver,
    setting: &Setting,
) -> Result<(), Fault> {
    let place = Place::new(setting)?;
    let first = place.spec()?;
    let _model = model(&first, vec![says("Noted.")])?;
    answered(driver, &first, &turn("My cat is Minka.")).await?;
    let again = ContainerSpec { workspace_dir: first.workspace_dir.clone(), ..place.spec()? };
    demand(asked_with(driver, &again, "And now?").await?.contains("Minka"), || {
        "the second turn of a workspace does not know the first".to_owned()
    })?;
    let elsewhere = place.spec()?;
    demand(!asked_with(driver, &elsewhere, "And here?").await?.contains("Minka"), || {
        "a turn in another workspace knows of this one".to_owned()
    })
}

async fn the_channel_directory_is_the_channels_own(
    driver: &Driver,
    setting: &Setting,
) -> Result<(), Fault> {
    let place = Place::new(setting)?;
    let shared = place.directory()?;
    let (one, two) = (place.directory()?, place.directory()?);
    let spec = |channel: &std::path::PathBuf| {
        let channel_dir = Some(channel.clone());
        Ok(ContainerSpec { workspace_dir: shared.clone(), channel_dir, ..place.spec()? })
    };
    let of_channel = |text: &str| turnjail_protocol::Turn { channel_history: true, ..turn(text) };
    let first = spec(&one)?;
    let _model = model(&first, vec![says("Noted.")])?;
    answered(driver, &first, &of_channel("My cat is Minka.")).await?;
    for (channel, knows) in [(&one, true), (&two, false)] {
        let next = spec(channel)?;
        let model = model(&next, vec![says("Yes.")])?;
        answered(driver, &next, &of_channel("And now?")).await?;
        let asked = model.seen().calls.iter().map(said).collect::<String>();
        demand(asked.contains("Minka") == knows, || {
            let whose = if knows { "its own" } else { "another channel's" };
            format!("a turn {} {whose} history", if knows { "does not know" } else { "knows" })
        })?;
    }
    let histories =
        [names(&one)?, names(&two)?, names(&shared)?].map(|names| names.contains(&HISTORY.into()));
    demand(histories == [true, true, false], || {
        format!("a history is in the channels' directories and the workspace: {histories:?}")
    })
}

async fn a_workers_failure_is_told_with_its_code(
    driver: &Driver,
    setting: &Setting,
) -> Result<(), Fault> {
    let place = Place::new(setting)?;
    let spec = place.spec()?;
    let _model = model(&spec, vec![])?;
    failed_with(run(driver, &spec, "{}").await?, "invalid_turn", driver)
}

async fn a_refused_model_call_is_the_workers_failure(
    driver: &Driver,
    setting: &Setting,
) -> Result<(), Fault> {
    let place = Place::new(setting)?;
    let spec = place.spec()?;
    let _model = model(&spec, vec![Answer::Refuses])?;
    failed_with(run(driver, &spec, &turn("Hello?").to_json()).await?, "model_refused", driver)
}

async fn the_largest_turn_arrives_whole(driver: &Driver, setting: &Setting) -> Result<(), Fault> {
    let place = Place::new(setting)?;
    let spec = place.spec()?;
    let model = model(&spec, vec![says("Read.")])?;
    // Workers pass over fields that they do not know. What is past a pipe's room must be written while
    // the worker reads, and the message stands behind it.
    let (open, rest) = ("{\"padding\":\"", &turn("Hello?").to_json()[1..]);
    let padding = "x".repeat(TURN_BYTES - open.len() - "\",".len() - rest.len());
    let json = format!("{open}{padding}\",{rest}");
    demand(json.len() == TURN_BYTES, || "the suite made a turn of another size".to_owned())?;
    let result = run(driver, &spec, &json).await?;
    demand(result.is_ok(), || format!("a turn of {TURN_BYTES} bytes: {}", told(&result)))?;
    demand(said(&model.seen().calls[0]).contains("Hello?"), || "its message is lost".to_owned())
}

async fn the_longest_reply_comes_back_whole(
    driver: &Driver,
    setting: &Setting,
) -> Result<(), Fault> {
    let place = Place::new(setting)?;
    let spec = place.spec()?;
    let longest = "\u{1}".repeat(REPLY_UNITS - 2);
    let longest = format!("a{longest}z");
    let _model = model(&spec, vec![says(&longest)])?;
    let reply = answered(driver, &spec, &turn("Tell all.")).await?.reply;
    demand(reply.text == longest, || {
        format!("of a reply of {} bytes {} came back", longest.len(), reply.text.len())
    })
}

async fn runs_at_once_do_not_mix(driver: &Driver, setting: &Setting) -> Result<(), Fault> {
    const AT_ONCE: usize = 8;
    let place = Arc::new(Place::new(setting)?);
    let mut runs = tokio::task::JoinSet::new();
    for index in 0..AT_ONCE {
        let (driver, spec) = (driver.clone(), place.spec()?);
        runs.spawn(async move {
            let (asked, told) = (format!("question {index}."), format!("answer {index}."));
            let model = model(&spec, vec![says(&told)])?;
            let reply = answered(&driver, &spec, &turn(&asked)).await?.reply;
            let calls = model.seen().calls;
            demand(
                reply.text == told && calls.len() == 1 && said(&calls[0]).contains(&asked),
                || format!("run {index} got {:?} to its question", reply.text),
            )
        });
    }
    while let Some(finished) = runs.join_next().await {
        finished.map_err(|_| Fault::new("a run panicked"))??;
    }
    Ok(())
}

async fn a_run_cancelled_before_it_starts_starts_nothing(
    driver: &Driver,
    setting: &Setting,
) -> Result<(), Fault> {
    let place = Place::new(setting)?;
    let spec = place.spec()?;
    let model = model(&spec, vec![says("Too late.")])?;
    let cancel = CancellationToken::new();
    cancel.cancel();
    let json = turn("Hello?").to_json();
    let result = within(PROMPT, "run", driver.run(&spec, json.as_bytes(), &cancel, &())).await?;
    demand(matches!(result, Err(DriverError::Cancelled)), || {
        format!("a run cancelled beforehand: {}", told(&result))
    })?;
    demand(model.seen().calls.is_empty(), || "its worker ran".to_owned())
}

async fn a_cancelled_run_ends_promptly_and_leaves_no_worker(
    driver: &Driver,
    setting: &Setting,
) -> Result<(), Fault> {
    let place = Place::new(setting)?;
    let spec = place.spec()?;
    let model = model(&spec, vec![Answer::Hangs])?;
    let (result, took) = cancelled_while_it_asks(driver, &spec, &model).await?;
    demand(matches!(result, Err(DriverError::Cancelled)), || {
        format!("a run that was cancelled: {}", told(&result))
    })?;
    demand(took < PROMPT, || format!("a cancelled run took {took:?} to end"))?;
    // The connection closes with the worker's last descriptor.
    within(PROMPT, "the worker's end after its run", model.until(|seen| seen.open == 0)).await
}

async fn a_dropped_run_leaves_no_worker(driver: &Driver, setting: &Setting) -> Result<(), Fault> {
    let place = Place::new(setting)?;
    let spec = place.spec()?;
    let model = model(&spec, vec![Answer::Hangs])?;
    let cancel = CancellationToken::new();
    let json = turn("Hello?").to_json();
    until_it_asks(driver.run(&spec, json.as_bytes(), &cancel, &()), &model).await?;
    within(PROMPT, "the worker's end after its run was dropped", model.until(|seen| seen.open == 0))
        .await
}

async fn directories_are_usable_again_after_a_cancelled_run(
    driver: &Driver,
    setting: &Setting,
) -> Result<(), Fault> {
    let place = Place::new(setting)?;
    let spec = place.spec()?;
    let model = model(&spec, vec![Answer::Hangs, says("Again.")])?;
    let (_cancelled, _) = cancelled_while_it_asks(driver, &spec, &model).await?;
    // The same name too: whatever bore it is gone.
    let reply = answered(driver, &spec, &turn("Hello again?")).await?.reply;
    demand(reply.text == "Again.", || format!("the next run's reply is {reply:?}"))
}

const HISTORY: &str = "history.json";

/// The messages of a model call as text.
fn said(call: &Value) -> String {
    json::stringify(&call["messages"])
}

/// Has a turn answered and tells what the model was asked.
async fn asked_with(driver: &Driver, spec: &ContainerSpec, text: &str) -> Result<String, Fault> {
    let model = model(spec, vec![says("Yes.")])?;
    answered(driver, spec, &turn(text)).await?;
    Ok(model.seen().calls.iter().map(said).collect())
}

fn failed_with(
    result: Result<Outcome, DriverError>,
    expected: &str,
    driver: &Driver,
) -> Result<(), Fault> {
    let Err(DriverError::Worker { reason, worker_code, receipt, .. }) = &result else {
        return Err(Fault::new(format!("a worker that fails: {}", told(&result))));
    };
    demand(*reason == ExitReason::WorkerFailed, || format!("its reason is {reason}"))?;
    demand(worker_code.as_deref() == Some(expected), || {
        format!("its code is {worker_code:?} and not {expected}")
    })?;
    demand(receipt.exit == ExitReason::WorkerFailed && receipt.driver == driver.name(), || {
        format!("its receipt says {} by {}", receipt.exit, receipt.driver)
    })
}
