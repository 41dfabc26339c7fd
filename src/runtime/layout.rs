//! Names of directories and runs. Channel keys are hashed and never used as paths.

use std::fmt::Write;

use sha2::{Digest, Sha256};

use crate::options::WorkspaceMode;

/// The directories of one turn, as names directly under the workspace root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnDirectories {
    /// Seen at `/workspace`; what turns must not run alongside.
    pub workspace: String,
    /// Seen at `/channel`, for shared workspaces.
    pub state: Option<String>,
}

/// The directory names of a turn: the guild's shared workspace and the channel's own state for
/// [`WorkspaceMode::Server`] and a known space, the channel's own workspace otherwise.
///
/// `channel` is `surface:id`; both it and `space` are taken as valid.
pub fn turn_directories(
    mode: WorkspaceMode,
    channel: &str,
    space: Option<&str>,
) -> TurnDirectories {
    match (mode, space) {
        (WorkspaceMode::Server, Some(space)) => TurnDirectories {
            workspace: guild_workspace(surface(channel), space),
            state: Some(channel_state(channel)),
        },
        _ => TurnDirectories { workspace: channel_workspace(channel), state: None },
    }
}

/// The name of a channel's own workspace.
pub fn channel_workspace(channel: &str) -> String {
    hex(&Sha256::digest(channel))
}

/// The name of the workspace that every channel of a guild shares.
pub fn guild_workspace(surface: &str, space: &str) -> String {
    let mut hash = Sha256::new();
    hash.update(surface);
    hash.update([0]);
    hash.update(space);
    format!("guild-{}", hex(&hash.finalize()))
}

/// The name of a channel's state beside a shared workspace.
pub fn channel_state(channel: &str) -> String {
    format!("state-{}", hex(&Sha256::digest(channel)))
}

/// Whether a name is one that this module makes.
pub(crate) fn is_directory_name(name: &str) -> bool {
    let hash = name.strip_prefix("guild-").or_else(|| name.strip_prefix("state-")).unwrap_or(name);
    hash.len() == 64 && hash.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// The part of a channel before its first colon.
pub(crate) fn surface(channel: &str) -> &str {
    channel.split_once(':').map_or(channel, |(surface, _)| surface)
}

/// The name of a turn's run: the channel's hash, so that a person can find it, and the turn's id, so
/// that no two are equal.
pub(crate) fn run_name(channel_hash: &str, turn_id: &str) -> String {
    format!("roundtable-sandbox-{}-{}", &channel_hash[..16], &turn_id[..8])
}

/// Lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_this_module_are_told_from_others() {
        let channel = "discord:1234";
        for name in [channel_workspace(channel), channel_state(channel), guild_workspace("d", "g")]
        {
            assert!(is_directory_name(&name), "{name}");
        }
        for other in ["", ".turnjail-locks", "guild-", &"A".repeat(64), "../x"] {
            assert!(!is_directory_name(other), "{other}");
        }
    }

    // Computed with sha256sum: printf 'discord:1234', printf 'discord\0guild'.
    const CHANNEL: &str = "a4b66462abf4c526b0c8fd77e789ce0dc4bd978b406262eeb8459bdc38551208";
    const GUILD: &str = "a552e8158e75db42a2e899414ce70c488fce09953c82545be1c3643737c22e24";

    #[test]
    fn a_channel_has_its_own_workspace() {
        let own = TurnDirectories { workspace: CHANNEL.to_owned(), state: None };
        for (mode, space) in [
            (WorkspaceMode::Channel, None),
            (WorkspaceMode::Channel, Some("guild")),
            (WorkspaceMode::Server, None),
        ] {
            assert_eq!(turn_directories(mode, "discord:1234", space), own);
        }
    }

    #[test]
    fn channels_of_one_guild_share_a_workspace_and_keep_their_state_apart() {
        let one = turn_directories(WorkspaceMode::Server, "discord:1234", Some("guild"));
        assert_eq!(one.workspace, format!("guild-{GUILD}"));
        assert_eq!(one.state, Some(format!("state-{CHANNEL}")));
        let two = turn_directories(WorkspaceMode::Server, "discord:5:6", Some("guild"));
        assert_eq!(one.workspace, two.workspace);
        assert_ne!(one.state, two.state);
        let elsewhere = turn_directories(WorkspaceMode::Server, "matrix:1234", Some("guild"));
        assert_ne!(one.workspace, elsewhere.workspace);
    }

    #[test]
    fn runs_are_named_by_channel_and_turn() {
        let name = run_name(&channel_workspace("discord:1234"), "0123456789abcdef");
        assert_eq!(name, format!("roundtable-sandbox-{}-01234567", &CHANNEL[..16]));
    }
}
