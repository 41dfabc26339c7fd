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

/// The beginning of a request.
#[derive(Debug)]
pub(crate) struct Start {
    /// All that has been read: the head, and perhaps some of the body behind it.
    pub bytes: Bytes,
    /// The target exactly as it came. The HTTP library's own has lost a fragment.
    pub target: String,
}

/// Reads until the end of the head.
pub(crate) async fn read(stream: &mut (impl AsyncRead + Unpin)) -> Result<Start, HeadFault> {
    let mut start = BytesMut::with_capacity(1024);
    let mut searched = 0;
    loop {
        let got = stream.read_buf(&mut start).await.map_err(|_| HeadFault::Gone)?;
        if got == 0 {
            return Err(HeadFault::Gone);
        }
        if let Some(end) = find_end(&start, searched)? {
            let target = check(&start[..end])?;
            return Ok(Start { bytes: start.freeze(), target });
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

/// Checks the lines before the empty one and returns the target.
fn check(head: &[u8]) -> Result<String, HeadFault> {
    let mut lines = split_lines(head);
    let target = check_request_line(lines.next().unwrap_or_default())?;
    let mut count = 0;
    let mut lengths = 0;
    for line in lines {
        count += 1;
        lengths += usize::from(check_header_line(line)?);
    }
    if count > MAX_HEADER_LINES || lengths > 1 {
        return Err(HeadFault::Malformed);
    }
    Ok(target)
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
fn check_request_line(line: &[u8]) -> Result<String, HeadFault> {
    let line = std::str::from_utf8(line).map_err(|_| HeadFault::Malformed)?;
    let parts: Vec<&str> = line.split(' ').collect();
    let [method, target, "HTTP/1.1"] = parts[..] else { return Err(HeadFault::Malformed) };
    let is_method = !method.is_empty() && method.bytes().all(|byte| byte.is_ascii_alphabetic());
    let is_target = !target.is_empty() && target.bytes().all(|byte| byte.is_ascii_graphic());
    if is_method && is_target { Ok(target.to_owned()) } else { Err(HeadFault::Malformed) }
}

/// A name of token characters right before the colon; a length of digits alone. Tells whether it is one.
fn check_header_line(line: &[u8]) -> Result<bool, HeadFault> {
    let colon = line.iter().position(|byte| *byte == b':').ok_or(HeadFault::Malformed)?;
    let (name, value) = (&line[..colon], trim_blanks(&line[colon + 1..]));
    // Control characters: among them every line feed and carriage return that is not a line's end.
    if value.iter().any(|byte| (*byte < b' ' && *byte != b'\t') || *byte == 0x7f) {
        return Err(HeadFault::Malformed);
    }
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

/// Takes spaces and tabs off both ends, and nothing else: a line feed there would begin another header for
/// the next reader.
fn trim_blanks(value: &[u8]) -> &[u8] {
    let is_text = |byte: &u8| !matches!(byte, b' ' | b'\t');
    let start = value.iter().position(is_text).unwrap_or(value.len());
    let end = value.iter().rposition(is_text).map_or(start, |last| last + 1);
    &value[start..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read_bytes(mut bytes: &[u8]) -> Result<Start, HeadFault> {
        read(&mut bytes).await
    }

    #[tokio::test]
    async fn a_head_may_come_in_any_pieces() {
        let head = b"POST /model#x HTTP/1.1\r\nhost: broker\r\nContent-Length: 2\r\n\r\n{}";
        for size in 1..head.len() {
            let mut pieces = tokio_util::io::StreamReader::new(futures_util::stream::iter(
                head.chunks(size).map(Ok::<_, std::io::Error>).collect::<Vec<_>>(),
            ));
            let start = read(&mut pieces).await.unwrap();
            assert_eq!(start.target, "/model#x");
            assert!(head.starts_with(&start.bytes) && start.bytes.len() >= head.len() - 2);
        }
    }

    #[tokio::test]
    async fn an_end_before_the_head_is_whole_is_a_client_gone() {
        for bytes in [&b""[..], b"POST", b"POST /model HTTP/1.1\r\n\r"] {
            assert_eq!(read_bytes(bytes).await.unwrap_err(), HeadFault::Gone);
        }
    }

    #[tokio::test]
    async fn the_head_is_bounded_in_bytes_and_lines() {
        let head = |lines: usize, width: usize| {
            let line = format!("a: {}\r\n", "x".repeat(width));
            format!("POST / HTTP/1.1\r\n{}\r\n", line.repeat(lines))
        };
        assert!(read_bytes(head(32, 10).as_bytes()).await.is_ok());
        assert_eq!(read_bytes(head(33, 10).as_bytes()).await.unwrap_err(), HeadFault::Malformed);
        let room = MAX_HEAD_BYTES - head(1, 0).len();
        assert!(read_bytes(head(1, room).as_bytes()).await.is_ok());
        assert_eq!(
            read_bytes(head(1, room + 1).as_bytes()).await.unwrap_err(),
            HeadFault::Malformed
        );
    }
}
