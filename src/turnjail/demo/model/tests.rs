//! The demonstration's model over HTTP, asked as the broker asks it.

use hyper::client::conn::http1;
use hyper::header::HeaderValue;
use tokio::net::TcpStream;

use super::*;

const FUNCTIONS: [&str; 5] =
    ["memory_set", "memory_get", "host_roll_dice", "files_write", "files_read"];

fn user(message: &str) -> Value {
    json!({ "role": "user", "content": json!({ "speaker": {}, "message": message }).to_string() })
}

fn called(function: &str, content: &str, id: &str) -> [Value; 2] {
    [
        json!({ "role": "assistant", "content": "", "tool_calls": [
            { "id": id, "type": "function", "function": { "name": function, "arguments": "{}" } }] }),
        json!({ "role": "tool", "tool_call_id": id, "content": content }),
    ]
}

fn step(messages: Vec<Value>) -> Answer {
    let tools: Vec<_> = FUNCTIONS
        .iter()
        .map(|name| json!({ "type": "function", "function": { "name": name } }))
        .collect();
    let request = json!({ "messages": messages, "tools": tools });
    mind::decide(&Conversation::read(&request).unwrap())
}

fn call(name: &'static str, arguments: Value) -> Answer {
    Answer::Call { name, arguments }
}

#[test]
fn something_to_remember_goes_to_the_memory() {
    let asked = user("Please remember that my favourite colour is teal.");
    assert_eq!(
        step(vec![asked.clone()]),
        call(
            "memory_set",
            json!({ "scope": "speaker", "key": "favourite colour", "text": "teal" })
        )
    );
    let mut messages = vec![asked];
    messages.extend(called("memory_set", "Saved.", "a"));
    assert_eq!(
        step(messages),
        Answer::Say("I will remember that your favourite colour is teal.".into())
    );
}

#[test]
fn what_is_recalled_comes_from_the_memory_alone() {
    let asked = user("What is my favourite colour?");
    assert_eq!(
        step(vec![asked.clone()]),
        call("memory_get", json!({ "scope": "speaker", "key": "favourite colour" }))
    );
    for (answer, said) in [
        (
            r#"[{"key":"favourite colour","text":"ochre"}]"#,
            "Your favourite colour is ochre. You told me so.",
        ),
        ("[]", "I do not know your favourite colour yet."),
        ("Tool call refused or failed.", "A tool refused or failed, so I could not do that."),
    ] {
        let mut messages = vec![asked.clone()];
        messages.extend(called("memory_get", answer, "a"));
        assert_eq!(step(messages), Answer::Say(said.into()));
    }
}

#[test]
fn dice_are_rolled_by_the_host() {
    let asked = user("Roll two dice for me.");
    assert_eq!(step(vec![asked.clone()]), call("host_roll_dice", json!({ "count": 2 })));
    let mut messages = vec![asked];
    messages.extend(called("host_roll_dice", r#"{"text":"3 and 5"}"#, "a"));
    assert_eq!(step(messages), Answer::Say("You rolled 3 and 5.".into()));
}

#[test]
fn a_file_is_written_and_then_read() {
    let asked = user("Write \"buy milk\" to notes/list.txt and read it back.");
    let write = json!({ "path": "notes/list.txt", "text": "buy milk" });
    assert_eq!(step(vec![asked.clone()]), call("files_write", write));
    let mut messages = vec![asked];
    messages.extend(called("files_write", "{}", "a"));
    assert_eq!(step(messages.clone()), call("files_read", json!({ "path": "notes/list.txt" })));
    messages.extend(called("files_read", r#"{"text":"buy milk"}"#, "b"));
    assert_eq!(step(messages), Answer::Say("notes/list.txt now says: buy milk".into()));
}

#[test]
fn only_what_was_said_last_counts() {
    let mut messages = vec![user("Roll two dice.")];
    messages.extend(called("host_roll_dice", r#"{"text":"1 and 1"}"#, "a"));
    messages.push(json!({ "role": "assistant", "content": "You rolled 1 and 1." }));
    messages.push(user("What is my name?"));
    assert_eq!(step(messages), call("memory_get", json!({ "scope": "speaker", "key": "name" })));
}

#[test]
fn a_tool_that_is_not_given_is_not_called() {
    let request = json!({ "messages": [user("Roll a die.")] });
    let answer = mind::decide(&Conversation::read(&request).unwrap());
    assert_eq!(
        answer,
        Answer::Say("I am not given the tool host_roll_dice, so I cannot do that.".into())
    );
}

#[test]
fn odd_requests_are_refused_or_answered_but_never_panic() {
    for request in [json!(null), json!({}), json!({ "messages": [] }), json!({ "messages": [{}] })]
    {
        assert_eq!(Conversation::read(&request), None);
    }
    for message in ["", "remember that my ", "what is my", "roll ", "write \"\" to ", "ü"] {
        step(vec![user(message)]);
        step(vec![json!({ "role": "user", "content": message })]);
    }
}

async fn post(model: &DemoModel, key: &str, path: &str, body: Vec<u8>) -> (StatusCode, Value) {
    let stream = TcpStream::connect(model.address).await.unwrap();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let mut request = Request::post(path).body(Full::new(Bytes::from(body))).unwrap();
    request
        .headers_mut()
        .insert(AUTHORIZATION, HeaderValue::from_str(&format!("Bearer {key}")).unwrap());
    let response = sender.send_request(request).await.unwrap();
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&body).unwrap())
}

#[tokio::test]
async fn the_server_answers_as_an_endpoint_does() {
    let model = DemoModel::start().await.unwrap();
    let body = json!({ "messages": [user("Hello")] }).to_string().into_bytes();
    let (status, answer) = post(&model, &model.key(), PATH, body).await;
    assert_eq!(status, StatusCode::OK);
    assert!(
        answer["choices"][0]["message"]["content"].as_str().unwrap().starts_with("I am a small")
    );
}

#[tokio::test]
async fn the_server_refuses_what_an_endpoint_would() {
    let model = DemoModel::start().await.unwrap();
    let key = model.key();
    let fine = json!({ "messages": [user("Hello")] }).to_string().into_bytes();
    for (key, path, body, status) in [
        ("wrong", PATH, fine.clone(), StatusCode::UNAUTHORIZED),
        (&*key, "/v1/models", fine.clone(), StatusCode::NOT_FOUND),
        (&*key, PATH, b"not json".to_vec(), StatusCode::BAD_REQUEST),
        (&*key, PATH, b"{}".to_vec(), StatusCode::BAD_REQUEST),
        (&*key, PATH, vec![b' '; REQUEST_BYTES + 1], StatusCode::PAYLOAD_TOO_LARGE),
    ] {
        assert_eq!(post(&model, key, path, body).await.0, status, "{path}");
    }
}

#[tokio::test]
async fn every_server_has_its_own_key() {
    let (one, other) = (DemoModel::start().await.unwrap(), DemoModel::start().await.unwrap());
    assert_ne!(one.key(), other.key());
    assert_eq!(one.key().len(), "demo-key-".len() + 32);
}
