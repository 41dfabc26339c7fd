//! `turnjail turn`: one message by the configuration.

use std::io::{IsTerminal, Read};
use std::process::ExitCode;

use serde_json::json;
use turnjail_protocol::limits::TEXT_UNITS;
use turnjail_runtime::{Event, Speaker, TurnRequest, TurnResult, event_channel};

use super::arguments::{Common, TurnArguments};
use super::output::{print_json, print_reply};
use super::signals::Interrupts;
use super::{progress, receipt, session};
use crate::config::Config;
use crate::error::{CliError, Exit};
use crate::host;

/// No message of that many code units has more bytes; one more tells that there is too much.
const STDIN_BYTES: u64 = 3 * TEXT_UNITS as u64 + 2;

/// Answers one message on standard output.
pub fn run(common: &Common, arguments: &TurnArguments) -> Result<ExitCode, CliError> {
    host::refuse_root("turn")?;
    let config = common.load()?;
    let request = request(arguments)?;
    session::log(config.settings.log);
    session::check_config(&config)?;
    let (result, events) =
        session::block_on(answer(&config, request, arguments.fresh, common.json))?;
    print(&result, &events, common.json)
}

/// The request as typed. The text may come from standard input.
fn request(arguments: &TurnArguments) -> Result<TurnRequest, CliError> {
    let id = arguments.speaker.clone().unwrap_or_else(host::user_name);
    let name = arguments.speaker_name.clone().unwrap_or_else(|| id.clone());
    let principal = || format!("cli:{}", nix::unistd::getuid());
    let principal_id = arguments.principal.clone().unwrap_or_else(principal);
    let text = match arguments.text.as_str() {
        "-" => read_text(std::io::stdin().lock())?,
        text => text.to_owned(),
    };
    Ok(TurnRequest {
        channel: arguments.channel.clone(),
        space: arguments.space.clone(),
        speaker: Speaker { id, name, principal_id },
        text,
    })
}

/// A message from a stream, without the newline that ends it; never more than a message can have.
fn read_text(stream: impl Read) -> Result<String, CliError> {
    let mut bytes = Vec::new();
    stream.take(STDIN_BYTES + 1).read_to_end(&mut bytes).map_err(|error| {
        CliError::usage(
            format_args!("standard input cannot be read: {error}"),
            "pipe a message into the command, or give it as TEXT",
        )
    })?;
    if bytes.len() as u64 > STDIN_BYTES {
        return Err(CliError::usage(
            format_args!("standard input has more than the {TEXT_UNITS} characters of a message"),
            "send less",
        ));
    }
    let mut text = String::from_utf8(bytes).map_err(|_| {
        CliError::usage("standard input is not UTF-8", "send text, converted with iconv if need be")
    })?;
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    Ok(text)
}

async fn answer(
    config: &Config,
    request: TurnRequest,
    fresh: bool,
    json: bool,
) -> Result<(TurnResult, Vec<Event>), CliError> {
    let mut interrupts = Interrupts::listen()?;
    let runtime = interrupts.guard(Box::pin(session::start(&config.settings))).await?;
    if fresh {
        runtime.start_fresh(&request.channel);
    }
    let shown = !json && std::io::stderr().is_terminal();
    let (events, receiver) = event_channel();
    let watching = tokio::spawn(progress::watch(receiver, shown));
    let result = session::answer(&runtime, request, events, &mut interrupts).await;
    // The senders are gone with the turn, so it ends by itself.
    let events = watching.await.unwrap_or_default();
    runtime.dispose().await;
    result.map(|result| (result, events))
}

fn print(result: &TurnResult, events: &[Event], json: bool) -> Result<ExitCode, CliError> {
    let reply = &result.reply;
    if json {
        let receipt = receipt::as_json(&result.receipt);
        print_json(&json!({
            "ok": reply.ok,
            "text": reply.text,
            "receipt": receipt,
            "events": events,
        }))?;
    } else {
        print_reply(&reply.text)?;
    }
    Ok(if reply.ok { ExitCode::SUCCESS } else { ExitCode::from(Exit::Failed.code()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newline_that_ends_a_message_is_no_part_of_it() {
        for (given, text) in [
            ("hi\n", "hi"),
            ("hi\r\n", "hi"),
            ("hi\n\n", "hi\n"),
            ("hi", "hi"),
            ("\n", ""),
            ("", ""),
        ] {
            assert_eq!(read_text(given.as_bytes()).unwrap(), text);
        }
    }

    #[test]
    fn hostile_input_is_refused_without_reading_it_whole() {
        let endless = std::io::repeat(b'a');
        assert_eq!(read_text(endless).unwrap_err().exit, Exit::Usage);
        assert_eq!(read_text(&b"\xff\xfe"[..]).unwrap_err().exit, Exit::Usage);
    }

    #[test]
    fn the_longest_message_fits() {
        let text = "€".repeat(TEXT_UNITS);
        assert_eq!(read_text(format!("{text}\r\n").as_bytes()).unwrap(), text);
    }
}
