//! The recorded behaviour of the reference broker, against the handler alone and over a real socket.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use http_body_util::Full;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;
use turnjail_protocol::ToolSpec;

use crate::handler::TurnState;
use crate::model;
use crate::rules::RequestHead;
use crate::tests_support::{Received, Reply, Upstream, exchange};
use crate::{
    Broker, BrokerSettings, Credential, CredentialError, CredentialRequest, CredentialSource,
    EventSender, HostTool, McpServer, McpTool, McpTransport, Principal, Secret, SetupError, Tool,
    ToolContext, ToolError, TurnContext,
};

const MODEL_INPUT: &str = include_str!("../../tests/vectors/model_input.json");
const BROKER_HTTP: &str = include_str!("../../tests/vectors/broker_http.json");

#[test]
fn model_input_is_rebuilt_as_recorded() {
    let cases: Vec<Value> = serde_json::from_str(MODEL_INPUT).unwrap();
    assert_eq!(cases.len(), 88);
    for case in cases {
        let name = &case["name"];
        let rebuilt = model::normalize(case["input"].as_object().unwrap());
        assert_eq!(rebuilt.is_some(), case["accepted"].as_bool().unwrap(), "{name}");
        let Some(rebuilt) = rebuilt else { continue };
        let mut normalized = json!({ "messages": rebuilt.messages });
        if let Some(tools) = rebuilt.tools {
            normalized["tools"] = tools.into();
        }
        // As texts, so that the order of keys counts.
        assert_eq!(normalized.to_string(), case["normalized"].to_string(), "{name}");
    }
}

#[tokio::test]
async fn requests_to_the_handler_are_answered_as_recorded() {
    run_all(Way::Handler).await;
}

#[tokio::test]
async fn requests_over_a_socket_are_answered_as_recorded() {
    run_all(Way::Socket).await;
}

#[derive(Clone, Copy, PartialEq)]
enum Way {
    Handler,
    Socket,
}

async fn run_all(way: Way) {
    let file: Value = serde_json::from_str(BROKER_HTTP).unwrap();
    let cases = file["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 45);
    for case in cases {
        let mut setup = file["setup"].as_object().unwrap().clone();
        setup.extend(case["setup"].as_object().cloned().unwrap_or_default());
        let name = case["name"].as_str().unwrap();
        if case["setup_error"] == true {
            assert!(
                Case::settings(&setup, None, &Script::default()).start().await.is_err(),
                "{name}"
            );
        } else {
            Case::run(name, &setup, case["steps"].as_array().unwrap(), way).await;
        }
    }
}

/// What the upstream and the tools of a case do and see.
#[derive(Clone, Default)]
struct Script {
    answer: Arc<Mutex<Option<Reply>>>,
    tool_input: Arc<Mutex<Option<Value>>>,
}

struct Prepared(BrokerSettings);

impl Prepared {
    async fn start(self) -> Result<Broker, SetupError> {
        Broker::start(self.0).await
    }
}

struct Case {
    name: String,
    state: TurnState,
    socket: std::path::PathBuf,
    upstream: Upstream,
    script: Script,
    urls: BTreeMap<String, String>,
    way: Way,
}

impl Case {
    async fn run(name: &str, setup: &Map<String, Value>, steps: &[Value], way: Way) {
        let script = Script::default();
        let answers = Arc::clone(&script.answer);
        let upstream = Upstream::start(move |_| {
            let reply = answers.lock().unwrap().clone();
            async move { reply.expect("nothing may be sent in this step") }
        })
        .await;
        let broker = Self::settings(setup, Some(&upstream), &script).start().await.unwrap();
        let context = TurnContext {
            channel: "fake:one".into(),
            space: None,
            speaker: Principal { id: "1".into(), name: "Ada".into(), principal_id: "p".into() },
            tool_result_bytes: 4096,
            cancel: CancellationToken::new(),
            events: EventSender::discard(),
        };
        if setup["turn_ended"] == true {
            context.cancel.cancel();
        }
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("broker.sock");
        let turn = broker.open(context.clone(), &socket).await.unwrap();
        let case = Self {
            name: name.into(),
            state: TurnState::new(Arc::clone(&broker.shared), context),
            socket,
            upstream,
            script,
            urls: urls(setup),
            way,
        };
        for step in steps {
            for _ in 0..step["repeat"].as_u64().unwrap_or(1) {
                case.step(step).await;
            }
        }
        turn.close().await;
    }

    /// The settings of a case; with an upstream, its URLs lead there.
    fn settings(
        setup: &Map<String, Value>,
        upstream: Option<&Upstream>,
        script: &Script,
    ) -> Prepared {
        let url = |url: &Value| {
            let url = url.as_str().unwrap();
            upstream.map_or(url.to_owned(), |upstream| {
                let (_, path) = url.strip_prefix("https://").unwrap().split_once('/').unwrap();
                upstream.url(&format!("/{path}"))
            })
        };
        let key = setup["model_key"].as_str().map(str::to_owned);
        let mut settings = BrokerSettings::new(
            setup["model"].as_str().unwrap(),
            url(&setup["model_url"]),
            Credential::Source(Arc::new(Key(key))),
        );
        settings.allow_http = upstream.is_some() || setup["allow_http"] == true;
        settings.retries = 0;
        if let Some(calls) = setup["max_calls"].as_u64() {
            settings.max_calls = u32::try_from(calls).unwrap();
        }
        if let Some(tokens) = setup["max_output_tokens"].as_u64() {
            settings.max_output_tokens = u32::try_from(tokens).unwrap();
        }
        for tool in setup["tools"].as_array().unwrap() {
            let spec = ToolSpec::new(tool["name"].as_str().unwrap(), "d", Map::new());
            let returns = tool["returns"].as_str().filter(|_| tool["throws"] != true);
            let text = returns
                .map(|text| text.repeat(tool["returns_repeat"].as_u64().unwrap_or(1) as usize));
            settings.tools.push(Tool::Host(Arc::new(Scripted {
                spec,
                text,
                script: script.clone(),
            })));
        }
        for server in setup["mcp"].as_array().unwrap() {
            let tools = server["tools"].as_array().unwrap().iter();
            let tools =
                tools.map(|tool| McpTool::named(tool.as_str().unwrap()).declare("d", Map::new()));
            let transport = McpTransport::Json { url: url(&server["url"]) };
            let mut declared =
                McpServer::new(server["name"].as_str().unwrap(), transport, tools.collect());
            if let Some(key) = server["key"].as_str() {
                declared.credential = Credential::Source(Arc::new(Key(Some(key.to_owned()))));
            }
            settings.mcp.push(declared);
        }
        Prepared(settings)
    }

    async fn step(&self, step: &Value) {
        *self.script.answer.lock().unwrap() = reply(&step["upstream"]);
        *self.script.tool_input.lock().unwrap() = None;
        let request = &step["request"];
        let (status, headers, body) = match self.way {
            Way::Handler => self.through_handler(request).await,
            Way::Socket => self.through_socket(request).await,
        };
        let (name, expected) = (&self.name, &step["response"]);
        if self.way == Way::Socket && request["headers"]["transfer-encoding"].is_string() {
            // The HTTP library refuses a coding it does not know before the rules see it.
            assert!(status == 400 || status == 403, "{name}");
            return;
        }
        assert_eq!(status, expected["status"].as_u64().unwrap(), "{name}: {request}");
        if let Some(names) = expected["header_names"].as_array() {
            assert!(
                headers.iter().all(|header| names.contains(&json!(header))),
                "{name}: {headers:?}"
            );
        }
        if let Some(text) = expected["body_text"].as_str() {
            // An answer to HEAD has no body; that is the HTTP library's doing and right.
            let none = self.way == Way::Socket && request["method"] == "HEAD";
            assert_eq!(String::from_utf8_lossy(&body), if none { "" } else { text }, "{name}");
        } else {
            assert_eq!(serde_json::from_slice::<Value>(&body).unwrap(), expected["body"], "{name}");
        }
        self.check_sent(&step["sent"]);
        let input = self.script.tool_input.lock().unwrap().take().unwrap_or_default();
        assert_eq!(input, step["tool_input"], "{name}: tool input");
    }

    fn check_sent(&self, expected: &Value) {
        let (name, sent) = (&self.name, self.upstream.take());
        if expected.is_null() {
            assert!(sent.is_empty(), "{name}: {sent:?}");
            return;
        }
        let [Received { method, target, headers, body }] = &sent[..] else {
            panic!("{name}: {sent:?}")
        };
        assert_eq!(*method, expected["method"], "{name}");
        assert_eq!(self.urls[expected["url"].as_str().unwrap()], *target, "{name}");
        assert_eq!(*body, expected["body"], "{name}");
        let mut headers = headers.clone();
        assert_eq!(headers.remove("host"), Some(self.upstream.address.to_string()));
        assert!(headers.remove("content-length").is_some());
        assert_eq!(json!(headers), expected["headers"], "{name}");
    }

    async fn through_handler(&self, request: &Value) -> (u64, Vec<String>, Vec<u8>) {
        let headers = request["headers"].as_object().unwrap();
        let headers =
            headers.iter().map(|(name, value)| (&**name, value.as_str().unwrap().as_bytes()));
        let head = RequestHead {
            method: request["method"].as_str().unwrap(),
            target: request["path"].as_str().unwrap(),
            headers: headers.collect(),
        };
        let body = Full::new(Bytes::from(body(request).unwrap_or_default()));
        let answer = self.state.handle(&head, body).await;
        (answer.status.into(), vec!["content-type".into()], answer.body.to_vec())
    }

    async fn through_socket(&self, request: &Value) -> (u64, Vec<String>, Vec<u8>) {
        let text = |field: &str| request[field].as_str().unwrap();
        let mut bytes = format!("{} {} HTTP/1.1\r\n", text("method"), text("path"));
        for (name, value) in request["headers"].as_object().unwrap() {
            if name != "content-length" {
                bytes.extend([name, ": ", value.as_str().unwrap(), "\r\n"]);
            }
        }
        let body = body(request);
        if let Some(body) = &body {
            bytes.extend(["content-length: ", &body.len().to_string(), "\r\n"]);
        }
        let mut bytes = (bytes + "\r\n").into_bytes();
        bytes.extend(body.unwrap_or_default());
        let answer = exchange(&self.socket, &bytes).await.expect("an answer");
        assert_eq!(answer.header("connection"), Some("close"));
        let mut names: Vec<String> = answer.headers.iter().map(|(name, _)| name.clone()).collect();
        names.retain(|name| name != "connection" && name != "content-length");
        (answer.status.into(), names, answer.body)
    }
}

/// Where each URL of a setup leads on the upstream.
fn urls(setup: &Map<String, Value>) -> BTreeMap<String, String> {
    let servers = setup["mcp"].as_array().unwrap().iter().map(|server| &server["url"]);
    let path = |url: &Value| {
        let url = url.as_str().unwrap();
        (url.to_owned(), format!("/{}", url.splitn(4, '/').nth(3).unwrap()))
    };
    servers.chain([&setup["model_url"]]).map(path).collect()
}

fn reply(upstream: &Value) -> Option<Reply> {
    if upstream.is_null() {
        return None;
    }
    if upstream["fails"] == true {
        return Some(Reply::Hang);
    }
    let headers = upstream["headers"].as_object().cloned().unwrap_or_default();
    Some(Reply::Answer {
        status: u16::try_from(upstream["status"].as_u64().unwrap()).unwrap(),
        headers: headers
            .into_iter()
            .map(|(name, value)| (name, value.as_str().unwrap().into()))
            .collect(),
        body: body(upstream).unwrap_or_default().into(),
    })
}

/// The bytes of a request's or an answer's body.
fn body(message: &Value) -> Option<Vec<u8>> {
    let mut bytes = match (message.get("body"), message["body_text"].as_str()) {
        (Some(value), _) => value.to_string().into_bytes(),
        (None, Some(text)) => text.as_bytes().to_vec(),
        (None, None) => return None,
    };
    if let Some(length) = message["pad_to"].as_u64() {
        bytes.resize(length as usize, b' ');
    }
    Some(bytes)
}

struct Key(Option<String>);

#[async_trait]
impl CredentialSource for Key {
    async fn credential(
        &self,
        _: CredentialRequest<'_>,
    ) -> Result<Option<Secret>, CredentialError> {
        Ok(self.0.clone().map(Secret::new))
    }
}

struct Scripted {
    spec: ToolSpec,
    text: Option<String>,
    script: Script,
}

#[async_trait]
impl HostTool for Scripted {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, input: Map<String, Value>, _: &ToolContext) -> Result<String, ToolError> {
        *self.script.tool_input.lock().unwrap() = Some(input.into());
        self.text.clone().ok_or_else(|| ToolError::failed("as the case says"))
    }
}
