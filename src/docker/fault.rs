//! Errors of the driver: one sentence naming the object, and the remedy.

use turnjail_driver::DriverError;

/// The engine or its client could not do what was asked.
pub(crate) fn start(code: &'static str, cause: impl Into<String>, remedy: &str) -> DriverError {
    DriverError::Start { code, cause: cause.into(), remedy: Some(remedy.to_owned()) }
}

/// What turnjail refuses although the engine would do it.
pub(crate) fn policy(cause: impl Into<String>, remedy: &str) -> DriverError {
    start("docker-policy", cause, remedy)
}

pub(crate) fn image(cause: impl Into<String>, remedy: &str) -> DriverError {
    DriverError::Image { cause: cause.into(), remedy: remedy.to_owned() }
}

/// What clients say when the engine cannot be reached, in words of our own: on these streams may stand
/// what a worker wrote, too, and no guest's text belongs into an error.
pub(crate) fn known(stderr: &[u8]) -> Option<DriverError> {
    let said = String::from_utf8_lossy(stderr);
    let says = |words: &str| said.contains(words);
    if says("permission denied while trying to connect") {
        return Some(start(
            "docker-permission",
            "this user may not use the Docker engine's socket",
            "add the user to the socket's group (which amounts to root), or set driver = \"jail\"",
        ));
    }
    if says("Cannot connect to the Docker daemon") || says("error during connect") {
        return Some(start(
            "docker-unreachable",
            "the Docker engine does not answer",
            "start it (systemctl start docker), or set docker.host to its socket",
        ));
    }
    None
}

/// The first line that a client wrote, for errors of calls that no container's output is part of.
pub(crate) fn first_line(stderr: &[u8]) -> String {
    const LONGEST: usize = 300;
    let text = String::from_utf8_lossy(stderr);
    let line =
        text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("it said nothing");
    line.chars().filter(|c| !c.is_control()).take(LONGEST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_clients_say_of_an_unreachable_engine_is_known() {
        for (said, code) in [
            (
                "Cannot connect to the Docker daemon at unix:///x. Is the docker daemon running?",
                "docker-unreachable",
            ),
            (
                "permission denied while trying to connect to the Docker daemon socket at unix:///x",
                "docker-permission",
            ),
            ("Got permission denied while trying to connect to the Docker", "docker-permission"),
        ] {
            assert_eq!(known(said.as_bytes()).expect(said).code(), code);
        }
        assert!(known(b"No such image: x").is_none());
    }

    #[test]
    fn an_engines_words_stay_one_short_line() {
        let said = format!("\n  Error: \u{1b}[31m{}\nmore", "x".repeat(1000));
        let line = first_line(said.as_bytes());
        assert!(line.starts_with("Error: [31mxx") && line.len() == 300, "{line}");
        assert_eq!(first_line(b""), "it said nothing");
    }
}
