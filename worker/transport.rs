//! One request to the broker: HTTP/1.1 over its Unix socket, one connection each.

use std::os::fd::AsFd;

use turnjail_protocol::DUMMY_CREDENTIAL;
use turnjail_protocol::limits::BROKER_ANSWER_BYTES;

use crate::sys::{self, Errno};

/// The head of an answer: bytes.
const HEAD_BYTES: usize = 16 * 1024;
/// The lines of a head.
const HEAD_LINES: usize = 32;
/// A body in chunks, with what stands around the chunks: bytes.
const CHUNKED_BYTES: usize = 2 * BROKER_ANSWER_BYTES;

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallError {
    /// The broker cannot be reached, or went away before the answer was whole.
    Unreachable,
    /// The broker refused: a status other than 200.
    Refused,
    /// What came is no HTTP, or too large.
    Invalid,
}

impl From<Errno> for CallError {
    fn from(_: Errno) -> Self {
        Self::Unreachable
    }
}

/// A request whose head is written and whose body of the announced length is to be appended.
pub struct Request(Vec<u8>);

impl Request {
    /// A request to `route`, such as `/model`, with a body of `length` bytes of JSON.
    pub fn new(route: &str, length: usize) -> Self {
        let head = format!(
            "POST {route} HTTP/1.1\r\nhost: broker\r\ncontent-type: application/json\r\n\
             content-length: {length}\r\nauthorization: Bearer {DUMMY_CREDENTIAL}\r\n\r\n"
        );
        let mut bytes = head.into_bytes();
        bytes.reserve_exact(length);
        Self(bytes)
    }

    /// A request with this body.
    pub fn with_body(route: &str, body: &[u8]) -> Self {
        let mut request = Self::new(route, body.len());
        request.body().extend_from_slice(body);
        request
    }

    /// Where the body is appended.
    pub fn body(&mut self) -> &mut Vec<u8> {
        &mut self.0
    }

    /// Sends the request to the broker at `socket` and returns the body of its answer, which has at
    /// most [`BROKER_ANSWER_BYTES`].
    pub fn send(self, socket: &[u8]) -> Result<Vec<u8>, CallError> {
        let connection = sys::connect(socket)?;
        let sent = sys::send_all(connection.as_fd(), &self.0);
        drop(self);
        // A broker may refuse before it has read everything: its answer counts, not the broken pipe.
        let mut answer = Answer { received: Vec::new(), connection: &connection };
        let body = answer.read();
        match (sent, body) {
            (Err(_), Err(CallError::Invalid)) => Err(CallError::Unreachable),
            (_, body) => body,
        }
    }
}

/// How the length of a body is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Framing {
    Length(usize),
    Chunked,
    UntilClosed,
}

struct Answer<'a> {
    received: Vec<u8>,
    connection: &'a std::os::fd::OwnedFd,
}

impl Answer<'_> {
    fn read(&mut self) -> Result<Vec<u8>, CallError> {
        let (status, framing) = self.read_head()?;
        if status != 200 {
            return Err(CallError::Refused);
        }
        match framing {
            Framing::Length(length) => self.read_length(length)?,
            Framing::UntilClosed => self.read_until_closed()?,
            Framing::Chunked => return self.read_chunks(),
        }
        Ok(std::mem::take(&mut self.received))
    }

    /// False at the end.
    fn receive(&mut self) -> Result<bool, CallError> {
        Ok(sys::read_some(self.connection.as_fd(), &mut self.received)? > 0)
    }

    /// Reads up to the end of the head, skipping interim answers, and leaves what follows it.
    fn read_head(&mut self) -> Result<(u16, Framing), CallError> {
        loop {
            if let Some((length, status, framing)) = parse_head(&self.received)? {
                self.received.drain(..length);
                if !(100..200).contains(&status) {
                    return Ok((status, framing));
                }
            } else if self.received.len() > HEAD_BYTES {
                return Err(CallError::Invalid);
            } else if !self.receive()? {
                return Err(CallError::Unreachable);
            }
        }
    }

    fn read_length(&mut self, length: usize) -> Result<(), CallError> {
        if length > BROKER_ANSWER_BYTES {
            return Err(CallError::Invalid);
        }
        self.received.reserve_exact(length.saturating_sub(self.received.len()));
        while self.received.len() < length {
            if !self.receive()? {
                return Err(CallError::Unreachable);
            }
        }
        self.received.truncate(length);
        Ok(())
    }

    fn read_until_closed(&mut self) -> Result<(), CallError> {
        loop {
            if self.received.len() > BROKER_ANSWER_BYTES {
                return Err(CallError::Invalid);
            }
            if !self.receive()? {
                return Ok(());
            }
        }
    }

    fn read_chunks(&mut self) -> Result<Vec<u8>, CallError> {
        let mut body = Vec::new();
        let mut at = 0;
        loop {
            match httparse::parse_chunk_size(&self.received[at..]) {
                Ok(httparse::Status::Complete((_, 0))) => return Ok(body),
                Ok(httparse::Status::Complete((head, size))) => {
                    let size = usize::try_from(size).map_err(|_| CallError::Invalid)?;
                    if size > BROKER_ANSWER_BYTES - body.len() {
                        return Err(CallError::Invalid);
                    }
                    let (start, end) = (at + head, at + head + size);
                    while self.received.len() < end + 2 {
                        self.receive_chunked()?;
                    }
                    if &self.received[end..end + 2] != b"\r\n" {
                        return Err(CallError::Invalid);
                    }
                    body.extend_from_slice(&self.received[start..end]);
                    at = end + 2;
                }
                Ok(httparse::Status::Partial) => self.receive_chunked()?,
                Err(_) => return Err(CallError::Invalid),
            }
        }
    }

    fn receive_chunked(&mut self) -> Result<(), CallError> {
        if self.received.len() > CHUNKED_BYTES {
            return Err(CallError::Invalid);
        }
        if self.receive()? { Ok(()) } else { Err(CallError::Unreachable) }
    }
}

/// The head's length, status and framing; none while it is not whole.
fn parse_head(bytes: &[u8]) -> Result<Option<(usize, u16, Framing)>, CallError> {
    let mut lines = [httparse::EMPTY_HEADER; HEAD_LINES];
    let mut head = httparse::Response::new(&mut lines);
    match head.parse(bytes).map_err(|_| CallError::Invalid)? {
        httparse::Status::Partial => Ok(None),
        httparse::Status::Complete(length) if length > HEAD_BYTES => Err(CallError::Invalid),
        httparse::Status::Complete(length) => {
            let status = head.code.ok_or(CallError::Invalid)?;
            Ok(Some((length, status, framing(head.headers)?)))
        }
    }
}

fn framing(headers: &[httparse::Header<'_>]) -> Result<Framing, CallError> {
    let mut lengths = values(headers, "content-length");
    let mut codings = values(headers, "transfer-encoding");
    match (lengths.next(), codings.next()) {
        (None, None) => Ok(Framing::UntilClosed),
        (Some(length), None) if lengths.all(|other| other == length) => {
            let digits = length.iter().all(u8::is_ascii_digit);
            let length = std::str::from_utf8(length).ok().and_then(|text| text.parse().ok());
            length.filter(|_| digits).map(Framing::Length).ok_or(CallError::Invalid)
        }
        (None, Some(coding))
            if coding.eq_ignore_ascii_case(b"chunked") && codings.next().is_none() =>
        {
            Ok(Framing::Chunked)
        }
        _ => Err(CallError::Invalid),
    }
}

fn values<'h>(headers: &'h [httparse::Header<'_>], name: &str) -> impl Iterator<Item = &'h [u8]> {
    headers.iter().filter(move |header| header.name.eq_ignore_ascii_case(name)).map(|h| h.value)
}
