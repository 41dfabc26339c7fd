//! Fixed names: paths in the jail, image labels, the dummy credential, fixed texts.

/// The label that tells an image's protocol version. Its key is a setting; this is the default.
pub const PROTOCOL_LABEL: &str = "roundtable.sandbox.protocol";
/// The label that asks for an isolation profile. It may only tighten.
pub const PROFILE_LABEL: &str = "roundtable.sandbox.profile";

/// The label by which an image asks for `RLIMIT_DATA`, with the value `true`.
pub const DATA_LIMIT_LABEL: &str = "roundtable.sandbox.data-limit";

/// The workspace in the jail.
pub const WORKSPACE_PATH: &str = "/workspace";
/// The channel's own state in the jail, where the workspace is shared.
pub const CHANNEL_PATH: &str = "/channel";
/// The directory of the broker's socket in the jail.
pub const BROKER_DIR: &str = "/broker";
/// The directories that a jail mounts over. An image must have them, since its root is read-only.
pub const MOUNT_POINTS: [&str; 6] =
    [BROKER_DIR, CHANNEL_PATH, "/dev", "/proc", "/tmp", WORKSPACE_PATH];
/// The broker's socket in the jail.
pub const BROKER_SOCKET: &str = "/broker/broker.sock";

/// What the worker sends as bearer; the broker puts the real credential in its place.
pub const DUMMY_CREDENTIAL: &str = "sandbox-dummy-key";

/// What the model reads when a call was refused or failed.
pub const TOOL_REFUSED: &str = "Tool call refused or failed.";
/// The reply's text when the turn failed in the worker.
pub const WORKER_FAILED: &str = "The sandbox worker failed.";
/// The reply's text when the model never stopped calling tools.
pub const CALL_LIMIT_REACHED: &str = "The sandbox turn reached its model-call limit.";

/// The protocol version in a label's value; none if it is no positive decimal integer, which makes
/// the image *unlabelled*: an older worker.
pub fn parse_protocol(label: &str) -> Option<u32> {
    // `parse` alone would take a sign.
    let digits = !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_digit());
    label.parse().ok().filter(|version| digits && *version > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_protocol_is_a_positive_decimal_integer() {
        assert_eq!(parse_protocol("1"), Some(1));
        assert_eq!(parse_protocol("2"), Some(2));
        for label in ["", "0", "-1", "+2", "2.0", " 2", "two", "0x2", "99999999999"] {
            assert_eq!(parse_protocol(label), None, "{label:?}");
        }
    }
}
