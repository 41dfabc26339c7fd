//! Brokers that answer oddly.

use serde_json::{Value, json};
use turnjail_protocol::WorkerCode;
use turnjail_tests::Test;
use turnjail_tests::script::{Call, Ended, Response, Stage};

use crate::{assert_done, assert_failed, run, test, turn, turn_with};

pub fn tests() -> Vec<Test> {
    vec![
        test("every_framing_of_http_is_read", framings),
        test("answers_that_are_no_http_fail_the_turn", no_http),
        test("a_missing_broker_fails_the_turn", no_broker),
        test("a_broker_that_goes_away_fails_the_turn", cut_off),
        test("a_tool_call_that_fails_is_told_to_the_model", tool_failures),
        test("answers_are_read_leniently", lenient),
        test("arguments_too_deep_to_send_on_are_refused", deep_arguments),
    ]
}

const BODY: &str = r#"{"choices":[{"message":{"content":"Done."}}]}"#;

fn raw(head: &str, body: &[u8]) -> Response {
    Response([format!("HTTP/1.1 200 OK\r\n{head}\r\n").as_bytes(), body].concat())
}

fn answered(response: Response) -> Ended {
    run(&Stage::new(), &turn(), vec![response])
}

fn framings() {
    let chunked = format!(
        "5\r\n{}\r\n{:x};name=value\r\n{}\r\n0\r\n\r\n",
        &BODY[..5],
        BODY.len() - 5,
        &BODY[5..]
    );
    let length = BODY.len();
    let interim = format!(
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 200 OK\r\n\
         Content-Length: {length}\r\n\r\n{BODY}"
    );
    let answers = [
        raw(&format!("content-length: {length}\r\n"), BODY.as_bytes()),
        raw(&format!("CONTENT-LENGTH:{length}\r\ncontent-length: {length}\r\n"), BODY.as_bytes()),
        raw(&format!("content-length: {length}\r\n"), format!("{BODY}what follows").as_bytes()),
        raw("", BODY.as_bytes()),
        raw("Transfer-Encoding: Chunked\r\n", chunked.as_bytes()),
        Response(interim.into_bytes()),
        Response(format!("HTTP/1.0 200\r\n\r\n{BODY}").into_bytes()),
    ];
    for answer in answers {
        eprintln!("{}", String::from_utf8_lossy(&answer.0));
        assert_done(&answered(answer));
    }
}

fn no_http() {
    let chunked = |body: &[u8]| raw("transfer-encoding: chunked\r\n", body);
    let endless = vec![b'a'; 1_100_000];
    let answers = [
        Response(b"hello\r\n\r\n".to_vec()),
        Response(b"SSH-2.0-x\r\n".to_vec()),
        Response(vec![0; 100]),
        Response([b"HTTP/1.1 200 OK\r\nx: ".as_slice(), &endless].concat()),
        raw("content-length: -1\r\n", BODY.as_bytes()),
        raw("content-length: 0x10\r\n", BODY.as_bytes()),
        raw("content-length: 99999999999999999999\r\n", BODY.as_bytes()),
        raw("content-length: 1048577\r\n", &endless),
        raw("content-length: 5\r\ncontent-length: 6\r\n", BODY.as_bytes()),
        raw("content-length: 5\r\ntransfer-encoding: chunked\r\n", BODY.as_bytes()),
        raw("transfer-encoding: gzip, chunked\r\n", BODY.as_bytes()),
        raw("", &endless),
        raw(&"x: y\r\n".repeat(40), BODY.as_bytes()),
        chunked(b"zz\r\n"),
        chunked(b"ffffffffffffffff\r\nx"),
        chunked(b"3\r\nabcd\r\n0\r\n\r\n"),
        chunked(
            &[b"100000\r\n".as_slice(), &endless[..1_048_576], b"\r\n1\r\na\r\n0\r\n\r\n"].concat(),
        ),
        chunked(&b"1\r\na\r\n".repeat(500_000)),
    ];
    for answer in answers {
        eprintln!("{}", String::from_utf8_lossy(&answer.0[..answer.0.len().min(80)]));
        assert_failed(&answered(answer), WorkerCode::ModelInvalid);
    }
}

fn no_broker() {
    let stage = Stage::new();
    let mut command = stage.command(turnjail_tests::program());
    let mut child = command.spawn().expect("the worker starts");
    std::io::Write::write_all(
        &mut child.stdin.take().expect("a pipe"),
        turn().to_string().as_bytes(),
    )
    .expect("a turn");
    let output = child.wait_with_output().expect("the worker ends");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(output.stderr, WorkerCode::Io.to_line().as_bytes());
}

fn cut_off() {
    let answers = [
        Response(vec![]),
        Response(b"HTTP/1.1 200 OK\r\ncontent-le".to_vec()),
        raw("content-length: 100000\r\n", BODY.as_bytes()),
        raw("transfer-encoding: chunked\r\n", b"5\r\n{\"cho"),
        raw("transfer-encoding: chunked\r\n", b"5\r\n{\"cho\r\n"),
        Response(b"HTTP/1.1 100 Continue\r\n\r\n".to_vec()),
    ];
    for answer in answers {
        assert_failed(&answered(answer), WorkerCode::Io);
    }
}

fn tool_failures() {
    let failures = vec![
        Response::new(502, b"broker call failed"),
        Response(vec![]),
        Response(b"garbage\r\n\r\n".to_vec()),
        raw("content-length: 9\r\n", b"{}"),
        Response::new(200, b"not json"),
        Response::new(200, "[".repeat(200).as_bytes()),
        Response::new(204, b""),
        Response::new(302, b"{}"),
    ];
    let calls = Response::calls(&vec![("host_echo", json!({})); 8]);
    let answers = [vec![calls], failures, vec![Response::text("Done.")]].concat();
    let ended = run(&Stage::new(), &turn(), answers);
    assert_done(&ended);
    assert_eq!(ended.results(), ["Tool call refused or failed."; 8]);
    assert_eq!(ended.calls.len(), 10);
}

fn lenient() {
    let text = br#"{"choices":[{"message":{"content":" \ud83d\ude00 \ud83d \udc00\u0000 "}}]}"#;
    let ended = answered(Response::new(200, text));
    assert_eq!(ended.reply()["text"], "😀 \u{fffd} \u{fffd}\0");
    let ended =
        answered(Response::new(200, b"{\"choices\":[{\"message\":{\"content\":\"a\xffb\"}}]}"));
    assert_eq!(ended.reply()["text"], "a\u{fffd}b");
    // Numbers and keys of a tool's answer, as JavaScript writes them again.
    let calls = Response::calls(&vec![("host_echo", json!({})); 2]);
    let answers = vec![
        calls,
        Response::new(200, br#"{"b":1.0,"a":[1e21,-0,1e999,123456789012345678901],"b":"\ud83d"}"#),
        Response::new(200, b"\xef\xbb\xbf{}"),
        Response::text("Done."),
    ];
    let ended = run(&Stage::new(), &turn(), answers);
    assert_done(&ended);
    let text = "{\"b\":\"\u{fffd}\",\"a\":[1e+21,0,null,123456789012345680000]}";
    assert_eq!(ended.results(), [text, "Tool call refused or failed."]);
}

fn deep_arguments() {
    let nested = |depth: usize| (1..depth).fold(json!({}), |inner, _| json!({"a": inner}));
    let depths = [("host_echo", 127), ("host_echo", 128), ("mcp_0_t", 125), ("mcp_0_t", 126)];
    let calls: Vec<(&str, Value)> = depths.iter().map(|(name, d)| (*name, nested(*d))).collect();
    let turn = turn_with(json!({
        "mcp": [{"server": "s", "tools": [{"name": "t", "description": "", "parameters": {}}]}],
    }));
    let done = Response::new(200, b"{}");
    let answers = vec![Response::calls(&calls), done.clone(), done, Response::text("Done.")];
    let ended = run(&Stage::new(), &turn, answers);
    assert_done(&ended);
    let refused = "Tool call refused or failed.";
    assert_eq!(ended.results(), ["{}", refused, "{}", refused]);
    let routes: Vec<_> = ended.calls.iter().map(Call::route).collect();
    assert_eq!(routes, ["/model", "/tools/echo", "/mcp/s", "/model"]);
}
