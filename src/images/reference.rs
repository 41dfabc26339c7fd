//! References: how an image is named, by docker's rules.

use std::fmt;
use std::str::FromStr;

use crate::{Digest, ImageError};

/// The registry that a name without one belongs to.
const DEFAULT_DOMAIN: &str = "docker.io";
/// Its old name.
const LEGACY_DOMAIN: &str = "index.docker.io";
/// Where a name of one part stands in the default registry.
const OFFICIAL: &str = "library/";
const DEFAULT_TAG: &str = "latest";
/// The most bytes of registry and path together, and of a tag (distribution/reference).
const NAME_BYTES: usize = 255;
const TAG_BYTES: usize = 128;

/// A reference to an image: `name[:tag][@sha256:...]`.
///
/// Docker's rules: a name without a registry belongs to `docker.io`, one without a path to its
/// `library`; without tag and digest, the tag is `latest`. So `busybox` and
/// `docker.io/library/busybox:latest` are the same.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reference {
    domain: String,
    path: String,
    tag: Option<String>,
    digest: Option<Digest>,
}

impl Reference {
    /// The registry's host name and port, `docker.io` where none was said.
    pub fn domain(&self) -> &str {
        &self.domain
    }

    /// The repository within the registry, such as `library/busybox`.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The tag; none where only a digest was said.
    pub fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    /// The digest.
    pub fn digest(&self) -> Option<&Digest> {
        self.digest.as_ref()
    }

    /// The whole reference with nothing left out: `docker.io/library/busybox:latest`.
    pub fn canonical(&self) -> String {
        format!("{}{}", self.repository(), self.suffix())
    }

    /// Registry and path: `docker.io/library/busybox`.
    pub fn repository(&self) -> String {
        format!("{}/{}", self.domain, self.path)
    }

    /// Registry and path as people write them: `busybox`.
    pub fn familiar_repository(&self) -> String {
        match (&*self.domain, self.path.strip_prefix(OFFICIAL)) {
            (DEFAULT_DOMAIN, Some(name)) if !name.contains('/') => name.to_owned(),
            (DEFAULT_DOMAIN, _) => self.path.clone(),
            _ => self.repository(),
        }
    }

    /// The name that an image gets by it: the tag alone where there is one, else the digest.
    pub(crate) fn named(&self) -> Self {
        let digest = self.digest.clone().filter(|_| self.tag.is_none());
        Self { digest, ..self.clone() }
    }

    fn suffix(&self) -> String {
        let tag = self.tag.as_ref().map(|tag| format!(":{tag}"));
        let digest = self.digest.as_ref().map(|digest| format!("@{digest}"));
        format!("{}{}", tag.unwrap_or_default(), digest.unwrap_or_default())
    }
}

/// The reference as people write it, with its tag: `busybox:latest`.
impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.familiar_repository(), self.suffix())
    }
}

impl FromStr for Reference {
    type Err = ImageError;

    fn from_str(text: &str) -> Result<Self, ImageError> {
        parse(text).map_err(|what| ImageError::Reference { text: text.to_owned(), what })
    }
}

fn parse(text: &str) -> Result<Reference, String> {
    if text.is_empty() {
        return Err("is empty".to_owned());
    }
    if text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err("is a bare digest; write name@sha256:...".to_owned());
    }
    let (rest, digest) = match text.split_once('@') {
        None => (text, None),
        Some((rest, digest)) => (rest, Some(digest.parse()?)),
    };
    // A colon before the last slash belongs to a registry's port.
    let (name, tag) = match rest.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => (name, Some(tag)),
        _ => (rest, None),
    };
    let (domain, path) = split(name);
    check_domain(&domain)?;
    check_path(&path)?;
    if domain.len() + 1 + path.len() > NAME_BYTES {
        return Err(format!("has a name of more than {NAME_BYTES} bytes"));
    }
    tag.map_or(Ok(()), check_tag)?;
    let tag = tag.map(str::to_owned).or_else(|| digest.is_none().then(|| DEFAULT_TAG.to_owned()));
    Ok(Reference { domain, path, tag, digest })
}

/// The first part is a registry where it cannot be anything else.
fn split(name: &str) -> (String, String) {
    let (domain, path) = match name.split_once('/') {
        Some((first, rest))
            if first.contains(['.', ':'])
                || first == "localhost"
                || first.bytes().any(|byte| byte.is_ascii_uppercase()) =>
        {
            (first, rest)
        }
        _ => (DEFAULT_DOMAIN, name),
    };
    let domain = if domain == LEGACY_DOMAIN { DEFAULT_DOMAIN } else { domain };
    if domain == DEFAULT_DOMAIN && !path.contains('/') {
        return (domain.to_owned(), format!("{OFFICIAL}{path}"));
    }
    (domain.to_owned(), path.to_owned())
}

fn check_domain(domain: &str) -> Result<(), String> {
    let (host, port) = match domain.rsplit_once(':') {
        Some((host, port)) if !domain.ends_with(']') => (host, Some(port)),
        _ => (domain, None),
    };
    let label = |label: &str| {
        let inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        !label.is_empty()
            && label.bytes().all(inner)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let host_fits = match address {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => host.split('.').all(label),
    };
    let port_fits = port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port > 0));
    if host_fits && port_fits {
        return Ok(());
    }
    Err(format!("has the registry {domain:?}, which is no host name with an optional port"))
}

fn check_path(path: &str) -> Result<(), String> {
    if path.is_empty() {
        return Err("has no name".to_owned());
    }
    if path.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return Err("has upper case letters in its name".to_owned());
    }
    match path.split('/').find(|part| !path_part(part)) {
        None => Ok(()),
        Some(part) => Err(format!(
            "has the part {part:?} in its name: lower case letters and digits are allowed, and between \
             them one full stop, one or two underscores, or hyphens"
        )),
    }
}

/// `[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*`
fn path_part(part: &str) -> bool {
    let word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let ends = |byte: Option<u8>| byte.is_some_and(word);
    let separators = part.split(|character: char| u8::try_from(character).is_ok_and(word));
    let fits = |separator: &str| {
        matches!(separator, "" | "." | "_" | "__") || separator.bytes().all(|byte| byte == b'-')
    };
    ends(part.bytes().next()) && ends(part.bytes().last()) && separators.into_iter().all(fits)
}

fn check_tag(tag: &str) -> Result<(), String> {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let starts = tag.bytes().next().is_some_and(word);
    let rest = tag.bytes().all(|byte| word(byte) || byte == b'.' || byte == b'-');
    if starts && rest && tag.len() <= TAG_BYTES {
        return Ok(());
    }
    Err(format!(
        "has the tag {:?}: letters, digits, _ . and - are allowed, at most {TAG_BYTES}, not starting with . or -",
        tag.chars().take(TAG_BYTES).collect::<String>()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEX: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    #[test]
    fn what_is_left_out_is_filled_in_as_docker_does() {
        for (text, canonical, familiar) in [
            ("busybox", "docker.io/library/busybox:latest", "busybox:latest"),
            ("busybox:1.36", "docker.io/library/busybox:1.36", "busybox:1.36"),
            (
                "index.docker.io/library/busybox",
                "docker.io/library/busybox:latest",
                "busybox:latest",
            ),
            ("docker.io/busybox", "docker.io/library/busybox:latest", "busybox:latest"),
            ("me/tool", "docker.io/me/tool:latest", "me/tool:latest"),
            ("localhost/tool", "localhost/tool:latest", "localhost/tool:latest"),
            ("localhost:5000/tool:2", "localhost:5000/tool:2", "localhost:5000/tool:2"),
            (
                "r.example.org/a/b__c-d.e",
                "r.example.org/a/b__c-d.e:latest",
                "r.example.org/a/b__c-d.e:latest",
            ),
            ("[::1]:5000/tool", "[::1]:5000/tool:latest", "[::1]:5000/tool:latest"),
            ("Upper/tool", "Upper/tool:latest", "Upper/tool:latest"),
        ] {
            let reference: Reference = text.parse().unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!(reference.canonical(), canonical, "{text}");
            assert_eq!(reference.to_string(), familiar, "{text}");
            assert_eq!(canonical.parse::<Reference>().ok().as_ref(), Some(&reference), "{text}");
        }
    }

    #[test]
    fn a_digest_takes_the_place_of_the_default_tag() {
        let by_digest: Reference = format!("busybox@sha256:{HEX}").parse().expect("valid");
        assert_eq!(by_digest.tag(), None);
        assert_eq!(by_digest.digest().map(ToString::to_string), Some(format!("sha256:{HEX}")));
        let both: Reference = format!("busybox:1@sha256:{HEX}").parse().expect("valid");
        assert_eq!(both.tag(), Some("1"));
        assert_eq!(both.canonical(), format!("docker.io/library/busybox:1@sha256:{HEX}"));
    }

    #[test]
    fn what_is_no_reference_is_refused_with_the_reason() {
        for (text, reason) in [
            ("", "empty"),
            (HEX, "bare digest"),
            ("Busybox", "upper case"),
            ("a//b", "\"\""),
            ("a/.b", "\".b\""),
            ("a___b", "a___b"),
            ("a._b", "a._b"),
            ("a/../b", "\"..\""),
            ("a:", "tag"),
            ("a:-x", "tag"),
            ("a:b c", "tag"),
            ("-a.b/c", "registry"),
            ("a.b:0/c", "registry"),
            ("a.b:99999/c", "registry"),
            ("a@sha256:12", "sha256"),
            ("a@sha512:12", "sha512"),
            ("a@", "digest"),
            ("a\n", "a\\n"),
            ("ünï", "ünï"),
        ] {
            let error = text.parse::<Reference>().expect_err(text);
            assert_eq!(error.code(), "image-reference", "{text}");
            assert!(error.to_string().contains(reason), "{text}: {error}");
        }
        assert!("a/".repeat(130).parse::<Reference>().is_err());
        assert!(format!("a{}", "b".repeat(255)).parse::<Reference>().is_err());
        assert!(format!("a:{}", "b".repeat(129)).parse::<Reference>().is_err());
    }
}
