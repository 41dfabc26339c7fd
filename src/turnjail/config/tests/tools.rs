//! Host tools and MCP servers.

use super::*;
use crate::config::mcp::Transport;
use crate::config::tools::{Text, ToolKind};

#[test]
fn tools_carry_schema_environment_and_command() {
    let text = format!(
        r#"{LEAST}
[[tools]]
name = "weather"
description = "The weather of a town."
parameters = {{ type = "object", properties = {{ town = {{ type = "string" }} }}, required = ["town"] }}
command = ["/usr/bin/weather", "--json"]
environment = {{ LANG = "C", TOKEN = {{ env = "W_TOKEN" }} }}
timeout_s = 5

[[tools]]
name = "now"
description = "The time."
parameters = '{{"type":"object"}}'
command = ["date"]
"#
    );
    let tools = plain(&text).tools;
    assert_eq!(tools[0].name, "weather");
    assert_eq!(tools[0].parameters["required"], serde_json::json!(["town"]));
    assert_eq!(
        tools[0].kind,
        ToolKind::Command {
            argv: ["/usr/bin/weather", "--json"].map(String::from).to_vec(),
            environment: vec![
                ("LANG".to_owned(), Text::Plain("C".into())),
                ("TOKEN".to_owned(), Text::Secret(SecretSource::Environment("W_TOKEN".into()))),
            ],
            timeout: Duration::from_secs(5),
        }
    );
    assert_eq!(
        serde_json::Value::from(tools[1].parameters.clone()),
        serde_json::json!({"type": "object"})
    );
}

#[test]
fn a_tool_may_be_a_url_or_a_socket_but_only_one_thing() {
    let tool =
        |said: &str| format!("{LEAST}\n[[tools]]\nname = \"t\"\ndescription = \"d\"\n{said}\n");
    assert_eq!(
        plain(&tool("url = \"https://h.example/t\"\napi_key = { env = \"K\" }")).tools[0].kind,
        ToolKind::Url {
            url: "https://h.example/t".into(),
            api_key: SecretSource::Environment("K".into())
        }
    );
    assert_eq!(
        plain(&tool("socket = \"~/s\"\npath = \"/t\"")).tools[0].kind,
        ToolKind::Socket {
            socket: "/home/ann/s".into(),
            request: "/t".into(),
            api_key: SecretSource::None
        }
    );
    let none = findings(&tool(""));
    assert_eq!(none[0].cause, "tools[1].command is missing");
    let two = findings(&tool("url = \"https://h.example\"\ncommand = [\"x\"]"));
    assert_eq!(two.len(), 1, "{two:?}");
    assert_eq!(two[0].remedy, "give exactly one of command, url and socket");
    let foreign = findings(&tool("url = \"https://h.example\"\ntimeout_s = 3"));
    assert_eq!(foreign[0].cause, "tools[1] has no setting \"timeout_s\"");
}

#[test]
fn a_wrong_tool_is_reported_within_its_number() {
    let text = format!(
        "{LEAST}\n[[tools]]\nname = \"ok\"\ndescription = \"d\"\ncommand = [\"x\"]\n\
         [[tools]]\nname = \"Not Ok\"\ncommand = \"sh -c x\"\nshell = true\n"
    );
    let causes: Vec<_> = findings(&text).into_iter().map(|finding| finding.cause).collect();
    assert_eq!(
        causes,
        [
            "tools[2].name is a string, which is not allowed",
            "tools[2].description is missing",
            "tools[2].command is a string, which is not allowed",
            "tools[2] has no setting \"shell\"",
        ]
    );
}

#[test]
fn an_mcp_server_names_its_tools_in_three_ways() {
    let text = format!(
        r#"{LEAST}
[[mcp]]
name = "s"
url = "https://s.example/mcp"
scope = "host"
tools = [
  "get-sum",
  {{ name = "total", remote = "Get.Total" }},
  {{ name = "now", description = "The time.", parameters = {{ type = "object" }}, validate = true }},
]
"#
    );
    let server = plain(&text).mcp.remove(0);
    assert!(server.shared);
    assert_eq!(server.transport, Transport::Http("https://s.example/mcp".into()));
    assert_eq!(server.api_key, SecretSource::None);
    let names: Vec<_> =
        server.tools.iter().map(|t| (t.name.as_deref(), t.remote.as_str())).collect();
    assert_eq!(names, [(None, "get-sum"), (Some("total"), "Get.Total"), (Some("now"), "now")]);
    assert_eq!(server.tools[1].declared, None);
    assert_eq!(server.tools[2].declared.as_ref().unwrap().0, "The time.");
    assert!(server.tools[2].validate);
}

#[test]
fn an_mcp_server_is_a_url_or_a_program() {
    let server = |said: &str| format!("{LEAST}\n[[mcp]]\nname = \"s\"\ntools = [\"t\"]\n{said}\n");
    let json = plain(&server("url = \"https://s.example\"\ntransport = \"json\"")).mcp.remove(0);
    assert_eq!(json.transport, Transport::Json("https://s.example".into()));
    let program = plain(&server("command = [\"srv\"]\nenvironment = { A = \"b\" }")).mcp.remove(0);
    let environment = vec![("A".to_owned(), Text::Plain("b".into()))];
    assert_eq!(program.transport, Transport::Command { argv: vec!["srv".into()], environment });
    for said in ["", "url = \"https://s.example\"\ncommand = [\"srv\"]"] {
        assert_eq!(findings(&server(said))[0].remedy, "give exactly one of url and command");
    }
}

#[test]
fn an_mcp_server_without_tools_or_half_of_one_is_wrong() {
    let server = |tools: &str| {
        format!("{LEAST}\n[[mcp]]\nname = \"s\"\nurl = \"https://s.example/mcp\"\n{tools}\n")
    };
    for (tools, cause) in [
        ("", "mcp[1].tools names no tool"),
        ("tools = []", "mcp[1].tools names no tool"),
        ("tools = [\"\"]", "mcp[1].tools[1] is empty"),
        ("tools = [3]", "mcp[1].tools[1] is 3, which is not allowed"),
        ("tools = [{ }]", "mcp[1].tools[1].name is missing"),
        (
            "tools = [{ name = \"a\", description = \"d\" }]",
            "mcp[1].tools[1].description is declared by half",
        ),
    ] {
        assert_eq!(findings(&server(tools))[0].cause, cause);
    }
}
