//! The head of a request, read strictly before any library parses it. Libraries forgive what senders get
//! wrong, and two readers that forgive differently can be played against each other; a worker that means
//! well has nothing to be forgiven.

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

/// The request line and all header lines.
pub(crate) const MAX_HEAD_BYTES: usize = 16 * 1024;
/// Header lines.
pub(crate) const MAX_HEADER_LINES: usize = 32;

/// The whole answer to a head that is refused here.
pub(crate) const BAD_REQUEST: &[u8] = b"HTTP/1.1 400 Bad Request\r\n\
    content-type: text/plain; charset=utf-8\r\n\
    content-length: 11\r\n\
    connection: close\r\n\r\nbad request";

/// Why there is no head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeadFault {
    /// The client has gone.
    Gone,
    /// What it sent is not to be read further.
    Malformed,
}

/// Reads until the end of the head; what is returned may have some of the body behind it.
pub(crate) async fn read(stream: &mut (impl AsyncRead + Unpin)) -> Result<Bytes, HeadFault> {
    let mut start = BytesMut::with_capacity(1024);
    let mut searched = 0;
    loop {
        let got = stream.read_buf(&mut start).await.map_err(|_| HeadFault::Gone)?;
        if got == 0 {
            return Err(HeadFault::Gone);
        }
        // A bare line feed is refused at once instead of waiting for an end that will not come.
        if let Some(end) = find_end(&start, searched)? {
            check(&start[..end])?;
            return Ok(start.freeze());
        }
        if start.len() >= MAX_HEAD_BYTES {
            return Err(HeadFault::Malformed);
        }
        searched = start.len().saturating_sub(3);
    }
}

/// The place of the empty line that ends the head.
fn find_end(start: &[u8], from: usize) -> Result<Option<usize>, HeadFault> {
    match memchr::memmem::find(&start[from..], b"\r\n\r\n") {
        Some(place) if from + place + 4 <= MAX_HEAD_BYTES => Ok(Some(from + place)),
        Some(_) => Err(HeadFault::Malformed),
        None => Ok(None),
    }
}

/// Checks the lines before the empty one.
fn check(head: &[u8]) -> Result<(), HeadFault> {
    let mut lines = 0;
    let mut lengths = 0;
    for (number, line) in split_lines(head).enumerate() {
        if line.iter().any(|byte| (*byte < b' ' && *byte != b'\t') || *byte == 0x7f) {
            return Err(HeadFault::Malformed);
        }
        if number == 0 {
            check_request_line(line)?;
            continue;
        }
        lines += 1;
        lengths += usize::from(check_header_line(line)?);
    }
    if lines > MAX_HEADER_LINES || lengths > 1 {
        return Err(HeadFault::Malformed);
    }
    Ok(())
}

fn split_lines(head: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(head);
    std::iter::from_fn(move || {
        let text = rest?;
        let end = memchr::memmem::find(text, b"\r\n");
        rest = end.map(|end| &text[end + 2..]);
        Some(&text[..end.unwrap_or(text.len())])
    })
}

/// Exactly one space between exactly three parts, the last of them `HTTP/1.1`.
fn check_request_line(line: &[u8]) -> Result<(), HeadFault> {
    let parts: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    match parts[..] {
        [method, target, b"HTTP/1.1"]
            if !method.is_empty()
                && method.iter().all(u8::is_ascii_alphabetic)
                && !target.is_empty()
                && target.is_ascii()
                && !target.contains(&b'\t') =>
        {
            Ok(())
        }
        _ => Err(HeadFault::Malformed),
    }
}

/// A name of token characters right before the colon; a length of digits alone. Tells whether it is one.
fn check_header_line(line: &[u8]) -> Result<bool, HeadFault> {
    let colon = line.iter().position(|byte| *byte == b':').ok_or(HeadFault::Malformed)?;
    let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
    let token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    if name.is_empty() || !name.iter().all(token) {
        return Err(HeadFault::Malformed);
    }
    let is_length = name.eq_ignore_ascii_case(b"content-length");
    if is_length && (value.is_empty() || value.len() > 18 || !value.iter().all(u8::is_ascii_digit))
    {
        return Err(HeadFault::Malformed);
    }
    Ok(is_length)
}
