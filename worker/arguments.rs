//! The command line: places for offline tests, and the version.

use std::fmt;

use turnjail_protocol::{BROKER_SOCKET, CHANNEL_PATH, WORKSPACE_PATH};

/// What the command line asks for.
#[derive(Debug, PartialEq, Eq)]
pub enum Command<'a> {
    /// Answer the turn on standard input.
    Turn(Places<'a>),
    /// Print version and protocol.
    Version,
}

/// Where the worker finds things. Only the command line can replace them, nothing in a turn.
#[derive(Debug, PartialEq, Eq)]
pub struct Places<'a> {
    /// The workspace: memory, files, and the history unless the turn says that the channel has it.
    pub workspace: &'a [u8],
    /// The channel's own state.
    pub channel: &'a [u8],
    /// The broker's socket.
    pub broker: &'a [u8],
}

/// An argument that is not known, or lacks its value.
#[derive(Debug, PartialEq, Eq)]
pub struct Usage;

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "usage: turnjail-worker [--workspace DIR] [--channel DIR] [--broker SOCKET] < turn\n       \
             turnjail-worker --version\n",
        )
    }
}

/// Reads the arguments that follow the program's name.
pub fn parse<'a>(arguments: &[&'a [u8]]) -> Result<Command<'a>, Usage> {
    if *arguments == [b"--version"] {
        return Ok(Command::Version);
    }
    let mut places = Places {
        workspace: WORKSPACE_PATH.as_bytes(),
        channel: CHANNEL_PATH.as_bytes(),
        broker: BROKER_SOCKET.as_bytes(),
    };
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let place = match *argument {
            b"--workspace" => &mut places.workspace,
            b"--channel" => &mut places.channel,
            b"--broker" => &mut places.broker,
            _ => return Err(Usage),
        };
        *place = rest.next().ok_or(Usage)?;
    }
    Ok(Command::Turn(places))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_arguments_the_mounted_paths_count() {
        let Ok(Command::Turn(places)) = parse(&[]) else { panic!("no turn") };
        assert_eq!(places.workspace, b"/workspace");
        assert_eq!(places.channel, b"/channel");
        assert_eq!(places.broker, b"/broker/broker.sock");
    }

    #[test]
    fn each_place_can_be_replaced() {
        let arguments: [&[u8]; 4] = [b"--broker", b"/tmp/\xff.sock", b"--workspace", b"w"];
        let Ok(Command::Turn(places)) = parse(&arguments) else { panic!("no turn") };
        assert_eq!((places.broker, places.workspace), (&b"/tmp/\xff.sock"[..], &b"w"[..]));
        assert_eq!(places.channel, b"/channel");
    }

    #[test]
    fn the_version_stands_alone() {
        assert_eq!(parse(&[b"--version"]), Ok(Command::Version));
        assert_eq!(parse(&[b"--version", b"--workspace"]), Err(Usage));
    }

    #[test]
    fn unknown_and_unfinished_arguments_are_refused() {
        for arguments in [&[&b"turn.json"[..]][..], &[b"--broker"], &[b""], &[b"--workspace=x"]] {
            assert_eq!(parse(arguments), Err(Usage));
        }
    }
}
