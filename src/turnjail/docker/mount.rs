//! `--mount` and `--tmpfs`: which of a turn's directories a bind is, and that it is as a jail has it.

use std::path::PathBuf;

use turnjail_protocol::{BROKER_DIR, CHANNEL_PATH, WORKSPACE_PATH};

use super::size;

/// The size of a jail's /tmp.
const TMP_BYTES: u64 = 64 << 20;

/// The directories of a turn that were mounted.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Mounts {
    /// At /broker.
    pub run: Option<PathBuf>,
    /// At /workspace.
    pub workspace: Option<PathBuf>,
    /// At /channel.
    pub channel: Option<PathBuf>,
}

impl Mounts {
    /// Takes the value of a `--mount`; the reason why not otherwise.
    pub fn add(&mut self, value: &str) -> Result<(), String> {
        let mut kind = "volume";
        let (mut source, mut target, mut readonly) = (None, None, false);
        for field in value.split(',') {
            let (key, word) = field.split_once('=').unwrap_or((field, "true"));
            match key.to_ascii_lowercase().as_str() {
                "type" => kind = word,
                "source" | "src" => source = Some(PathBuf::from(word)),
                "target" | "destination" | "dst" => target = Some(word),
                "readonly" | "ro" => {
                    readonly = match word {
                        "true" | "1" => true,
                        "false" | "0" => false,
                        _ => return Err(format!("readonly is true or false, not {word:?}")),
                    }
                }
                "bind-propagation" if ["private", "rprivate"].contains(&word) => {}
                "bind-propagation" => {
                    return Err(format!("mounts of a jail are private, not {word}"));
                }
                _ => return Err(format!("unexpected key '{key}' in '{field}'")),
            }
        }
        if kind != "bind" {
            return Err(format!("a jail has binds of directories only, no {kind}"));
        }
        let (Some(source), Some(target)) = (source, target) else {
            return Err("a bind has a source and a target".to_owned());
        };
        let (slot, wants_readonly) = match target.trim_end_matches('/') {
            BROKER_DIR => (&mut self.run, true),
            WORKSPACE_PATH => (&mut self.workspace, false),
            CHANNEL_PATH => (&mut self.channel, false),
            _ => {
                return Err(format!(
                    "a jail has {BROKER_DIR}, {WORKSPACE_PATH} and {CHANNEL_PATH}, not {target}"
                ));
            }
        };
        if readonly != wants_readonly {
            let is = if wants_readonly { "read-only" } else { "writable" };
            return Err(format!("{target} of a jail is {is}"));
        }
        if slot.replace(source).is_some() {
            return Err(format!("Duplicate mount point: {target}"));
        }
        Ok(())
    }
}

/// Checks that the value of a `--tmpfs` asks for the /tmp that a jail has.
pub fn check_tmpfs(value: &str) -> Result<(), String> {
    let (path, options) = value.split_once(':').unwrap_or((value, ""));
    if path.trim_end_matches('/') != "/tmp" {
        return Err(format!("a jail has a tmpfs at /tmp only, not at {path}"));
    }
    for option in options.split(',').filter(|option| !option.is_empty()) {
        let is_so = match option.split_once('=') {
            None => ["rw", "noexec", "nosuid", "nodev"].contains(&option),
            Some(("size", amount)) => size::bytes(amount) == Some(TMP_BYTES),
            Some(("mode", mode)) => mode.trim_start_matches('0') == "1777",
            Some(_) => false,
        };
        if !is_so {
            return Err(format!(
                "/tmp of a jail is rw,noexec,nosuid,nodev,size=64m,mode=1777, not {option}"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(values: &[&str]) -> Result<Mounts, String> {
        let mut mounts = Mounts::default();
        values.iter().try_for_each(|value| mounts.add(value)).map(|()| mounts)
    }

    #[test]
    fn the_three_directories_are_told_apart() {
        let mounts = add(&[
            "type=bind,src=/r,dst=/broker,readonly,bind-propagation=rprivate",
            "type=bind,source=/w=1,target=/workspace/",
            "destination=/channel,type=bind,src=/c,ro=false",
        ]);
        let path = |text| Some(PathBuf::from(text));
        let (run, workspace, channel) = (path("/r"), path("/w=1"), path("/c"));
        assert_eq!(mounts, Ok(Mounts { run, workspace, channel }));
    }

    #[test]
    fn everything_else_is_refused_with_the_reason() {
        for (value, says) in [
            ("type=bind,src=/r,dst=/broker", "read-only"),
            ("type=bind,src=/r,dst=/broker,readonly=false", "read-only"),
            ("type=bind,src=/w,dst=/workspace,readonly", "writable"),
            ("type=bind,src=/,dst=/host", "not /host"),
            ("type=bind,src=/w,dst=/workspace/../host", "not /workspace/../host"),
            ("type=bind,src=/w,dst=/workspace,bind-propagation=rshared", "private"),
            ("type=bind,src=/w,dst=/workspace,bind-nonrecursive=true", "unexpected key"),
            ("type=volume,src=v,dst=/workspace", "no volume"),
            ("src=/w,dst=/workspace", "no volume"),
            ("type=bind,dst=/workspace", "source"),
            ("", "unexpected key"),
        ] {
            let error = add(&[value]).expect_err(value);
            assert!(error.contains(says), "{value}: {error}");
        }
        let twice = "type=bind,src=/w,dst=/workspace";
        assert!(add(&[twice, twice]).is_err());
    }

    #[test]
    fn only_the_tmpfs_that_a_jail_has_is_taken() {
        for value in
            ["/tmp", "/tmp:rw,noexec,nosuid,nodev,size=64m,mode=1777", "/tmp/:size=67108864"]
        {
            assert_eq!(check_tmpfs(value), Ok(()), "{value}");
        }
        for value in
            ["/run", "/tmp:exec", "/tmp:size=65m", "/tmp:size=", "/tmp:mode=777", "/tmp:uid=0"]
        {
            assert!(check_tmpfs(value).is_err(), "{value}");
        }
    }
}
