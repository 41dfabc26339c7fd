//! A model endpoint under the control of a test: it keeps what it was asked and answers as it is told.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

/// What the endpoint does with a request.
pub enum Answer {
    /// Status 200 and this body.
    Body(String),
    /// This status and an error.
    Status(u16),
    /// Nothing, ever.
    Silence,
}

/// A request as it came.
#[derive(Debug, Clone)]
pub struct Asked {
    /// The lines before the body.
    pub head: String,
    /// The body.
    pub body: Value,
}

/// A listening endpoint. Its threads end with the test program.
pub struct Endpoint {
    url: String,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Endpoint {
    /// Answers each request by `decide`, which is told how many came before it.
    pub fn new(decide: impl Fn(usize, &Value) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/v1/chat/completions", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (kept, decide) = (Arc::clone(&asked), Arc::new(decide));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (kept, decide) = (Arc::clone(&kept), Arc::clone(&decide));
                std::thread::spawn(move || serve(&stream, &kept, &*decide));
            }
        });
        Self { url, asked }
    }

    /// Says the same to everything.
    pub fn saying(text: &str) -> Self {
        let body = say(text);
        Self::new(move |_, _| Answer::Body(body.clone()))
    }

    /// Where it is.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// What it was asked so far.
    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

/// The completion that says a text.
pub fn say(text: &str) -> String {
    json!({ "choices": [{ "message": { "role": "assistant", "content": text } }] }).to_string()
}

/// The completion that calls a function.
pub fn call(name: &str, arguments: Value) -> String {
    let function = json!({ "name": name, "arguments": arguments.to_string() });
    let call = json!({ "id": "c1", "type": "function", "function": function });
    json!({ "choices": [{ "message": { "content": null, "tool_calls": [call] } }] }).to_string()
}

fn serve(
    stream: &TcpStream,
    kept: &Mutex<Vec<Asked>>,
    decide: &(dyn Fn(usize, &Value) -> Answer + Send + Sync),
) {
    let mut reader = BufReader::new(stream);
    while let Some(asked) = read(&mut reader) {
        let before = {
            let mut kept = kept.lock().unwrap();
            kept.push(asked.clone());
            kept.len() - 1
        };
        let (status, body) = match decide(before, &asked.body) {
            Answer::Body(body) => (200, body),
            Answer::Status(status) => (status, "{\"error\":{\"message\":\"no\"}}".to_owned()),
            Answer::Silence => {
                // Until the other side has had enough.
                let _ = reader.read(&mut [0]);
                return;
            }
        };
        let head = format!(
            "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        if (&mut &*stream).write_all(format!("{head}{body}").as_bytes()).is_err() {
            return;
        }
    }
}

fn read(reader: &mut BufReader<&TcpStream>) -> Option<Asked> {
    let mut head = String::new();
    loop {
        let before = head.len();
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
        if head[before..].trim().is_empty() {
            break;
        }
    }
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
    });
    let mut body = vec![0; length?];
    reader.read_exact(&mut body).ok()?;
    Some(Asked { head, body: serde_json::from_slice(&body).ok()? })
}
