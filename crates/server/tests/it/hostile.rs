//! Whatever arrives, what is answered is one of the documented answers, and nothing is locked.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use fencepost_server::Options;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};

use crate::service::Replica;

const PATHS: [&str; 4] = ["/v1/acquire", "/v1/extend", "/v1/release", "/v1/steal"];
const CASES: u32 = 250;

/// A body that is no request, or hardly one.
fn body() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        Just("name"),
        Just("names"),
        Just("ttl"),
        Just("lease"),
        Just("leases"),
        Just("attempt"),
        Just("wait"),
        Just("slots"),
        Just("fair"),
        Just("reason"),
        Just("token"),
        Just("x")
    ];
    let value = prop_oneof![
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        Just(Value::Null),
        Just(json!([])),
        Just(json!([{}])),
        Just(json!({ "a": [1, 2, { "b": "c" }] })),
        Just(json!("-1s")),
        Just(json!("99999999999999999999y")),
    ];
    let object = proptest::collection::vec((word, value), 0..6).prop_map(|fields| {
        let fields = fields
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value));
        let mut object: serde_json::Map<_, _> = fields.collect();
        // What could be acquired is another test.
        object.insert("owner".into(), json!(7));
        Value::Object(object).to_string().into_bytes()
    });
    prop_oneof![
        3 => object,
        1 => proptest::collection::vec(any::<u8>(), 0..300),
        1 => "[ -~]{0,80}".prop_map(String::into_bytes),
        1 => (1..3000usize).prop_map(|depth| vec![b'['; depth]),
    ]
}

/// The status and the body, unless the connection was closed without a word.
fn send(to: SocketAddr, request: &[u8], is_whole: bool) -> Option<(u16, String, String)> {
    let mut stream = TcpStream::connect(to).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    // It may have been answered, and the connection closed, before all is sent.
    let _ = stream.write_all(request);
    // Whoever closes its side waits for no answer; what is not whole would be waited for, for long.
    if !is_whole {
        let _ = stream.shutdown(std::net::Shutdown::Write);
    }
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some((status, head.to_ascii_lowercase(), body.to_owned()))
}

fn request(method: &str, path: &str, kind: &str, body: &[u8]) -> Vec<u8> {
    let mut request = format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: {kind}\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    )
    .into_bytes();
    request.extend(body);
    request
}

#[test]
fn no_body_makes_it_fail_or_say_what_is_not_documented() {
    let service = Replica::in_memory(Options::new());
    let document = service.get("/openapi.json").json();
    let kinds = [
        "application/json",
        "application/x-www-form-urlencoded",
        "text/plain",
        "application/json; charset=latin-1",
    ];
    let mut runner = TestRunner::new(Config::with_cases(CASES));
    let strategy = (body(), 0..PATHS.len(), 0..kinds.len());
    let outcome = runner.run(&strategy, |(body, path, kind)| {
        let path = PATHS[path];
        let sent = request("POST", path, kinds[kind], &body);
        let (status, head, text) = send(service.address, &sent, true).expect("an answer");
        prop_assert!((400..500).contains(&status), "{status} {text}");
        let known = &document["paths"][path]["post"]["responses"];
        prop_assert!(known.get(status.to_string()).is_some(), "{path}: {status}");
        prop_assert!(head.contains("application/problem+json"), "{head}");
        let problem: Value = serde_json::from_str(&text).expect("JSON");
        prop_assert_eq!(&problem["status"], &json!(status));
        prop_assert!(problem["code"].is_string() && problem["request_id"].is_string());
        Ok(())
    });
    outcome.unwrap();
    assert_eq!(service.get("/v1/locks").json()["locks"], json!([]));
}

/// What is not HTTP never reaches an operation: it is refused by the layer below, or cut off.
#[test]
fn bytes_that_are_no_request_are_refused_and_the_service_goes_on() {
    let service = Replica::in_memory(Options::new());
    let mut runner = TestRunner::new(Config::with_cases(CASES / 2));
    let good = request("POST", "/v1/acquire", "application/json", b"{}");
    let strategy = (
        proptest::collection::vec((0..good.len(), any::<u8>()), 1..12),
        any::<bool>(),
        proptest::collection::vec(any::<u8>(), 0..200),
    );
    let outcome = runner.run(&strategy, |(changes, is_changed, noise)| {
        let mut sent = good.clone();
        for (place, byte) in changes {
            sent[place] = byte;
        }
        let sent = if is_changed { sent } else { noise };
        if let Some((status, _, text)) = send(service.address, &sent, false) {
            prop_assert!(
                (400..506).contains(&status) && status != 500,
                "{status} {text}"
            );
        }
        Ok(())
    });
    outcome.unwrap();
    assert_eq!(service.get("/livez").status, 200);
    assert_eq!(service.get("/v1/locks").json()["locks"], json!([]));
}

#[test]
fn headers_without_an_end_and_bodies_that_lie_about_their_length_are_refused() {
    let service = Replica::in_memory(Options::new());
    let long = "x".repeat(100_000);
    let mut many = String::new();
    for n in 0..500 {
        use std::fmt::Write as _;
        write!(many, "x-{n}: y\r\n").unwrap();
    }
    for head in [
        format!("POST /v1/acquire HTTP/1.1\r\nhost: x\r\nx: {long}\r\n\r\n"),
        format!("POST /{long} HTTP/1.1\r\nhost: x\r\n\r\n"),
        format!("POST /v1/acquire HTTP/1.1\r\nhost: x\r\n{many}\r\n"),
        "POST /v1/acquire HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\n{}".to_owned(),
        "POST /v1/acquire HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n{}".to_owned(),
        "POST /v1/acquire HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n"
            .to_owned(),
        "BREW /v1/acquire HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".to_owned(),
        "POST /v1/acquire HTTP/9.9\r\nhost: x\r\n\r\n".to_owned(),
    ] {
        if let Some((status, _, text)) = send(service.address, head.as_bytes(), false) {
            assert!(
                (400..506).contains(&status) && status != 500,
                "{status} {text}"
            );
        }
    }
    assert_eq!(service.get("/v1/locks").json()["locks"], json!([]));
}
