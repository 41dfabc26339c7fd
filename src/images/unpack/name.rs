//! Names of entries, checked before anything is made of them.

use std::fmt;

use crate::ImageLimits;

/// The most bytes of one part of a name (NAME_MAX).
const PART_BYTES: usize = 255;

/// A name below the root: parts without `.` and `..`, joined by single slashes. Empty is the root itself.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Name(Vec<u8>);

impl Name {
    /// Checks an entry's name. A leading `./` and a slash at the end are how archivers write them.
    pub fn parse(raw: &[u8], limits: &ImageLimits) -> Result<Self, String> {
        if raw.is_empty() {
            return Err("its name is empty".to_owned());
        }
        if raw.starts_with(b"/") {
            return Err("its name is absolute".to_owned());
        }
        if raw.contains(&0) {
            return Err("its name holds a NUL byte".to_owned());
        }
        if raw.len() > limits.name_bytes {
            return Err(format!("its name has more than {} bytes", limits.name_bytes));
        }
        let mut name = Vec::with_capacity(raw.len());
        let mut depth = 0;
        for part in raw.split(|&byte| byte == b'/') {
            match part {
                b"" | b"." => continue,
                b".." => return Err("its name leads upwards".to_owned()),
                part if part.len() > PART_BYTES => {
                    return Err(format!("a part of its name has more than {PART_BYTES} bytes"));
                }
                _ => {}
            }
            depth += 1;
            if !name.is_empty() {
                name.push(b'/');
            }
            name.extend_from_slice(part);
        }
        if depth > limits.depth {
            return Err(format!("its name has more than {} levels", limits.depth));
        }
        Ok(Self(name))
    }

    /// The root itself.
    pub fn root() -> Self {
        Self(Vec::new())
    }

    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The parts, from the root on.
    pub fn parts(&self) -> impl Iterator<Item = &[u8]> {
        self.0.split(|&byte| byte == b'/').filter(|part| !part.is_empty())
    }

    /// Where it stands and what it is called there.
    pub fn split(&self) -> (&[u8], &[u8]) {
        match self.0.iter().rposition(|&byte| byte == b'/') {
            Some(slash) => (&self.0[..slash], &self.0[slash + 1..]),
            None => (b"", &self.0),
        }
    }

    /// As [`split`](Self::split) with the directory as a name.
    pub fn parent(&self) -> Self {
        Self(self.split().0.to_vec())
    }

    /// The name of `part` in this directory.
    pub fn join(&self, part: &[u8]) -> Self {
        let mut name = Vec::with_capacity(self.0.len() + 1 + part.len());
        name.extend_from_slice(&self.0);
        if !name.is_empty() {
            name.push(b'/');
        }
        name.extend_from_slice(part);
        Self(name)
    }
}

/// Readable and on one line, whatever bytes it holds.
impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", shown(&self.0))
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Bytes of an archive for a message: escaped, quoted and cut.
pub(crate) fn shown(bytes: &[u8]) -> String {
    const SHOWN: usize = 200;
    let cut = if bytes.len() > SHOWN { "..." } else { "" };
    format!("\"{}{cut}\"", bytes[..bytes.len().min(SHOWN)].escape_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(raw: &[u8]) -> Result<Name, String> {
        Name::parse(raw, &ImageLimits::default())
    }

    #[test]
    fn ways_of_writing_a_name_are_one_name() {
        for raw in [&b"a/b"[..], b"./a/b", b"a//b/", b"a/./b", b"././a/b/."] {
            assert_eq!(parse(raw).expect("valid").bytes(), b"a/b", "{}", shown(raw));
        }
        assert!(parse(b"./").expect("the root").is_root());
        assert_eq!(parse(b"..a/...").expect("valid").bytes(), b"..a/...");
        assert_eq!(parse(b"a/b/c").expect("valid").split(), (&b"a/b"[..], &b"c"[..]));
    }

    #[test]
    fn names_that_lead_elsewhere_or_break_limits_are_refused() {
        for raw in [&b""[..], b"/a", b"//a", b"..", b"a/..", b"a/../b", b"../a", b"a\0b"] {
            assert!(parse(raw).is_err(), "{}", shown(raw));
        }
        assert!(parse("a/".repeat(64).as_bytes()).is_ok());
        assert!(parse("a/".repeat(65).as_bytes()).is_err());
        assert!(parse("a".repeat(255).as_bytes()).is_ok());
        assert!(parse("a".repeat(256).as_bytes()).is_err());
        assert!(parse("abc/".repeat(1025).as_bytes()).is_err());
    }

    #[test]
    fn a_name_in_a_message_has_no_control_characters() {
        let name = parse(b"a\x1b[2J\n").expect("valid bytes").to_string();
        assert!(!name.chars().any(char::is_control), "{name}");
        assert!(shown(&[b'x'; 1000]).len() < 300);
    }
}
