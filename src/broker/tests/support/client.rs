//! A client of a broker's socket that sends exactly the bytes it is told to.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

/// An answer as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answered {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Answered {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| &**value)
    }

    /// Reads a whole response; `None` when it is none.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
        let head = std::str::from_utf8(&bytes[..end]).ok()?;
        let mut lines = head.split("\r\n");
        let status = lines.next()?.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
        let headers = lines
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        Some(Self { status, headers, body: bytes[end + 4..].to_vec() })
    }
}

/// A request with a body and the headers a worker sends.
pub fn post(path: &str, body: &[u8]) -> Vec<u8> {
    let mut request = format!(
        "POST {path} HTTP/1.1\r\nhost: broker\r\ncontent-type: application/json\r\n\
         authorization: Bearer sandbox-dummy-key\r\ncontent-length: {}\r\n\r\n",
        body.len()
    )
    .into_bytes();
    request.extend_from_slice(body);
    request
}

/// Sends bytes and reads until the broker closes; nothing when it does not within `patience`.
pub async fn exchange_within(socket: &Path, bytes: &[u8], patience: Duration) -> Option<Vec<u8>> {
    let mut stream = UnixStream::connect(socket).await.ok()?;
    let talk = async {
        // A broker that refuses early may close before all is written; its answer still counts.
        let _ = stream.write_all(bytes).await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        answer
    };
    tokio::time::timeout(patience, talk).await.ok()
}

/// Sends bytes and reads the answer.
pub async fn exchange(socket: &Path, bytes: &[u8]) -> Option<Answered> {
    Answered::parse(&exchange_within(socket, bytes, Duration::from_secs(30)).await?)
}

/// Posts JSON as a worker does.
pub async fn call(socket: &Path, path: &str, body: &Value) -> Answered {
    exchange(socket, &post(path, body.to_string().as_bytes())).await.expect("an answer")
}
