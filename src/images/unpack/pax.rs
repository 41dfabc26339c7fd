//! Extended headers (pax), read strictly: what two readers could understand differently is refused.

use std::collections::HashSet;

/// What an extended header says about the next entry.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Pax {
    pub path: Option<Vec<u8>>,
    pub link: Option<Vec<u8>>,
    pub size: Option<u64>,
    /// Seconds since 1970; the fraction is dropped.
    pub modified: Option<i64>,
    /// Extended attributes, access control lists and flags that are not kept.
    pub attributes: u64,
}

/// Keys that change nothing here: owners are flattened, and other times are not kept.
const IGNORED: [&str; 8] =
    ["atime", "ctime", "uid", "gid", "uname", "gname", "comment", "LIBARCHIVE.creationtime"];
/// Attributes that are not kept.
const DROPPED: [&str; 4] = ["SCHILY.xattr.", "SCHILY.acl.", "LIBARCHIVE.xattr.", "RHT.security."];
/// Facts of the file system that the archive was made from.
const FACTS: [&str; 6] = [
    "SCHILY.dev",
    "SCHILY.ino",
    "SCHILY.nlink",
    "SCHILY.fflags",
    "SCHILY.devmajor",
    "SCHILY.devminor",
];

impl Pax {
    /// Reads the records `<length> <key>=<value>\n`.
    pub fn parse(mut bytes: &[u8]) -> Result<Self, String> {
        let mut pax = Self::default();
        let mut seen = HashSet::new();
        while !bytes.is_empty() {
            let (key, value, rest) = record(bytes).ok_or("its extended header is malformed")?;
            let key = std::str::from_utf8(key).map_err(|_| "its extended header has an odd key")?;
            if !seen.insert(key) {
                return Err(format!("its extended header says {} twice", key.escape_debug()));
            }
            pax.take(key, value)?;
            bytes = rest;
        }
        Ok(pax)
    }

    fn take(&mut self, key: &str, value: &[u8]) -> Result<(), String> {
        let malformed = || format!("its extended header has a malformed {}", key.escape_debug());
        match key {
            "path" => self.path = Some(value.to_vec()),
            "linkpath" => self.link = Some(value.to_vec()),
            "size" => self.size = Some(decimal(value).ok_or_else(malformed)?),
            "mtime" => self.modified = Some(seconds(value).ok_or_else(malformed)?),
            "hdrcharset" if matches!(value, b"BINARY" | b"ISO-IR 10646 2000 UTF-8") => {}
            "SCHILY.realsize" => return Err("it is sparse".to_owned()),
            key if key.starts_with("GNU.sparse.") => return Err("it is sparse".to_owned()),
            key if IGNORED.contains(&key) || FACTS.contains(&key) => {}
            key if DROPPED.iter().any(|prefix| key.starts_with(prefix)) => self.attributes += 1,
            key => {
                let key: String = key.chars().take(64).collect();
                return Err(format!(
                    "its extended header has the unknown key {}",
                    key.escape_debug()
                ));
            }
        }
        Ok(())
    }
}

/// Key, value and what follows.
fn record(bytes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let space = bytes.iter().take(20).position(|&byte| byte == b' ')?;
    let length = usize::try_from(decimal(&bytes[..space])?).ok()?;
    let (record, rest) = bytes.split_at_checked(length)?;
    let content = record.get(space + 1..)?.strip_suffix(b"\n")?;
    let equals = content.iter().position(|&byte| byte == b'=')?;
    (equals > 0).then_some((&content[..equals], &content[equals + 1..], rest))
}

fn decimal(bytes: &[u8]) -> Option<u64> {
    let digits = !bytes.is_empty() && bytes.iter().all(u8::is_ascii_digit);
    digits.then(|| std::str::from_utf8(bytes).ok()?.parse().ok()).flatten()
}

/// `[-]<seconds>[.<fraction>]`
fn seconds(bytes: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(bytes).ok()?;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = whole.strip_prefix('-').unwrap_or(whole);
    let number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    (number(digits) && (fraction.is_empty() || number(fraction))).then(|| whole.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(key: &str, value: &str) -> Vec<u8> {
        let rest = format!(" {key}={value}\n");
        let mut length = rest.len() + 1;
        while length.to_string().len() + rest.len() != length {
            length = length.to_string().len() + rest.len();
        }
        format!("{length}{rest}").into_bytes()
    }

    #[test]
    fn what_archivers_write_is_understood() {
        let all = [
            line("path", "a\nb=c"),
            line("linkpath", "x"),
            line("size", "123"),
            line("mtime", "1700000000.5"),
            line("uid", "70000"),
            line("SCHILY.xattr.security.capability", "\u{1}x"),
            line("LIBARCHIVE.xattr.user.x", "eA"),
        ]
        .concat();
        let pax = Pax::parse(&all).expect("valid");
        assert_eq!(pax.path.as_deref(), Some(&b"a\nb=c"[..]));
        assert_eq!((pax.size, pax.modified, pax.attributes), (Some(123), Some(1_700_000_000), 2));
        assert_eq!(Pax::parse(&line("mtime", "-1.9")).expect("valid").modified, Some(-1));
    }

    #[test]
    fn what_could_be_understood_differently_is_refused() {
        for (bytes, reason) in [
            (line("GNU.sparse.major", "1"), "sparse"),
            (line("GNU.sparse.realsize", "9223372036854775807"), "sparse"),
            (line("VENDOR.thing", "1"), "unknown"),
            (line("size", "+1"), "size"),
            (line("size", "0x1"), "size"),
            (line("size", "99999999999999999999"), "size"),
            (line("mtime", "now"), "mtime"),
            (line("hdrcharset", "EBCDIC"), "unknown"),
            ([line("path", "a"), line("path", "b")].concat(), "twice"),
            (b"11 path=a\n".to_vec(), "malformed"),
            (b"8 path=a\n".to_vec(), "malformed"),
            (b"-1 path=a\n".to_vec(), "malformed"),
            (b"0 path=a\n".to_vec(), "malformed"),
            (b"99999999999999999999999 path=a\n".to_vec(), "malformed"),
            (b"5 =a\n".to_vec(), "malformed"),
            (b"\0\0\0".to_vec(), "malformed"),
        ] {
            let error = Pax::parse(&bytes).expect_err("refused");
            assert!(error.contains(reason), "{}: {error}", bytes.escape_ascii());
        }
    }
}
