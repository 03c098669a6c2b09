//! TryLock and ReleaseLock, as any language would call them.

use std::time::{Duration, Instant};

use fencepost_server::Options;
use serde_json::json;

use crate::service::Replica;

#[test]
fn a_lock_is_acquired_refused_to_others_extended_and_released() {
    let service = Replica::in_memory(Options::new());
    let mine = service.post(
        "/v1/acquire",
        &json!({ "name": "invoice/42", "ttl": "30s" }),
    );
    assert_eq!(mine.status, 200, "{mine:?}");
    let (lease, token) = (mine.json()["lease"].clone(), mine.json()["token"].clone());
    assert_eq!(mine.token, token.to_string(), "also in a header");
    let valid = mine.json()["valid_for_ms"].as_u64().unwrap();
    assert!((29_000..30_000).contains(&valid), "{valid}");

    let theirs = service.post("/v1/acquire", &json!({ "name": "invoice/42" }));
    theirs.is_problem(409, "held");
    assert!(theirs.json()["holder"].is_string() && theirs.json()["expires_in_ms"].is_u64());

    let one = json!({ "name": "invoice/42", "lease": lease, "token": token });
    let extended = service.post("/v1/extend", &json!({ "leases": [one], "ttl": "40s" }));
    assert_eq!(
        extended.json()["leases"][0]["outcome"],
        "extended",
        "{extended:?}"
    );

    let released = service.post(
        "/v1/release",
        &json!({ "name": "invoice/42", "lease": lease }),
    );
    assert_eq!(released.json()["outcome"], "released", "{released:?}");
    let again = service.post(
        "/v1/release",
        &json!({ "name": "invoice/42", "lease": lease }),
    );
    again.is_problem(410, "lost");
    let next = service.post("/v1/acquire", &json!({ "name": "invoice/42" }));
    assert!(
        next.json()["token"].as_u64() > token.as_u64(),
        "tokens grow: {next:?}"
    );
}

#[test]
fn nobody_releases_or_extends_by_another_lease_id() {
    let service = Replica::in_memory(Options::new());
    let mine = service
        .post("/v1/acquire", &json!({ "name": "job" }))
        .json();
    let guess = "0".repeat(32);
    service
        .post("/v1/release", &json!({ "name": "job", "lease": guess }))
        .is_problem(410, "lost");
    let one = json!({ "name": "job", "lease": guess, "token": mine["token"] });
    let extended = service
        .post("/v1/extend", &json!({ "leases": [one] }))
        .json();
    assert_eq!(extended["leases"][0]["outcome"], "lost");
    service
        .post("/v1/acquire", &json!({ "name": "job" }))
        .is_problem(409, "held");
}

#[test]
fn a_request_that_waits_is_served_when_the_lock_is_released() {
    let service = Replica::in_memory(Options::new());
    let mine = service
        .post("/v1/acquire", &json!({ "name": "job" }))
        .json();
    std::thread::scope(|scope| {
        let waiting =
            scope.spawn(|| service.post("/v1/acquire", &json!({ "name": "job", "wait": "20s" })));
        let seen = Instant::now();
        while service.get("/v1/locks?name=job").json()["waiting"] != 1 {
            assert!(seen.elapsed() < Duration::from_secs(10), "nobody waits");
        }
        service.post(
            "/v1/release",
            &json!({ "name": "job", "lease": mine["lease"] }),
        );
        let theirs = waiting.join().unwrap();
        assert_eq!(theirs.status, 200, "{theirs:?}");
        let (valid, waited) = (&theirs.json()["valid_for_ms"], &theirs.json()["waited_ms"]);
        assert!(
            valid.as_u64() > waited.as_u64(),
            "counted from the request: {theirs:?}"
        );
    });
}

/// Whatever a client sent behind its request hid that it went away.
#[test]
fn a_request_that_goes_away_while_it_waits_leaves_the_queue() {
    use std::io::Write as _;
    let service = Replica::in_memory(Options::new());
    service.post("/v1/acquire", &json!({ "name": "job" }));
    let body = json!({ "name": "job", "wait": "60s" }).to_string();
    let waiting = |n: u64, behind: &str| {
        let start = Instant::now();
        while service.get("/v1/locks?name=job").json()["waiting"] != n {
            let limit = Duration::from_secs(10);
            assert!(
                start.elapsed() < limit,
                "not {n} waiting; behind it: {behind:?}"
            );
        }
    };
    for behind in [
        "",
        "\r\n",
        "GET /livez HTTP/1.1\r\nhost: x\r\n\r\n",
        "later",
    ] {
        let mut stream = std::net::TcpStream::connect(service.address).unwrap();
        let (now, later) = match behind {
            "later" => ("", "\r\n"),
            behind => (behind, ""),
        };
        write!(
            stream,
            "POST /v1/acquire HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}{now}",
            body.len()
        )
        .unwrap();
        waiting(1, behind);
        stream.write_all(later.as_bytes()).unwrap();
        drop(stream);
        waiting(0, behind);
    }
}

/// Between the write of an answer and its flush the client can have read it, and gone: then its lock was released.
#[test]
fn a_client_that_has_read_its_grant_may_close_the_connection_at_once() {
    use std::io::{Read as _, Write as _};
    let service = Replica::in_memory(Options::new());
    for n in 0..1000 {
        let name = format!("job-{n}");
        let body = json!({ "name": name }).to_string();
        let mut stream = std::net::TcpStream::connect(service.address).unwrap();
        write!(
            stream,
            "POST /v1/acquire HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        let (mut answer, mut bytes) = (String::new(), [0; 4096]);
        while !answer.ends_with('}') {
            let read = stream.read(&mut bytes).unwrap();
            answer += std::str::from_utf8(&bytes[..read]).unwrap();
        }
        drop(stream);
        let at = answer.find("\r\n\r\n{").unwrap();
        let mine: serde_json::Value = serde_json::from_str(answer[at..].trim()).unwrap();
        let lease = json!({ "name": name, "lease": mine["lease"] });
        let released = service.post("/v1/release", &lease);
        assert_eq!(released.status, 200, "{n}: {}", released.json());
    }
}

/// What was sent behind a request is answered after it, also where it came while that one waited.
#[test]
fn requests_behind_one_that_waits_are_answered_in_order() {
    use std::io::{Read as _, Write as _};
    let service = Replica::in_memory(Options::new());
    let mine = service
        .post("/v1/acquire", &json!({ "name": "job" }))
        .json();
    let body = json!({ "name": "job", "wait": "60s" }).to_string();
    let mut stream = std::net::TcpStream::connect(service.address).unwrap();
    let next = "GET /livez HTTP/1.1\r\nhost: x\r\n\r\n";
    write!(
        stream,
        "POST /v1/acquire HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}{next}",
        body.len()
    )
    .unwrap();
    let start = Instant::now();
    while service.get("/v1/locks?name=job").json()["waiting"] != 1 {
        assert!(start.elapsed() < Duration::from_secs(10), "nobody waits");
    }
    let last = "GET /livez HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    // More than is read ahead.
    let many = next.repeat(1_000) + last;
    let mut sending = stream.try_clone().unwrap();
    let sender = std::thread::spawn(move || sending.write_all(many.as_bytes()).unwrap());
    let lease = json!({ "name": "job", "lease": mine["lease"] });
    assert_eq!(service.post("/v1/release", &lease).status, 200);
    let mut answers = String::new();
    stream.read_to_string(&mut answers).unwrap();
    sender.join().unwrap();
    assert!(answers.starts_with("HTTP/1.1 200"), "{answers}");
    assert!(answers.contains("\"token\""), "{answers}");
    assert_eq!(answers.matches("ok\n").count(), 1_002);
}

#[test]
fn readers_share_and_keep_a_writer_out() {
    let service = Replica::in_memory(Options::new());
    let read = json!({ "name": "shelf", "shared": true });
    let one = service.post("/v1/acquire", &read);
    let two = service.post("/v1/acquire", &read);
    assert_eq!((one.status, two.status), (200, 200), "{one:?} {two:?}");
    service
        .post("/v1/acquire", &json!({ "name": "shelf" }))
        .is_problem(409, "held");
    for reader in [one, two] {
        let lease = reader.json()["lease"].clone();
        let released = service.post("/v1/release", &json!({ "name": "shelf", "lease": lease }));
        assert_eq!(released.status, 200, "{released:?}");
    }
    assert_eq!(
        service
            .post("/v1/acquire", &json!({ "name": "shelf" }))
            .status,
        200
    );
}

#[test]
fn a_shell_gets_lines_that_it_can_evaluate_and_may_send_a_form() {
    let service = Replica::in_memory(Options::new());
    let form = ("content-type", "application/x-www-form-urlencoded");
    let headers = [form, ("accept", "text/plain")];
    let mine = service.send(
        "POST",
        "/v1/acquire",
        &headers,
        "name=it%27s&ttl=5s&fair=true",
    );
    assert_eq!(mine.status, 200, "{mine:?}");
    assert!(mine.text.contains("NAME='it'\\''s'\n"), "{}", mine.text);
    assert!(
        mine.text
            .lines()
            .any(|line| line == format!("TOKEN={}", mine.token))
    );
}

#[test]
fn a_thousand_leases_are_extended_by_one_request_each_with_its_own_outcome() {
    const HELD: usize = 10;
    let service = Replica::in_memory(Options::new());
    let mut leases: Vec<_> = (0..HELD)
        .map(|n| {
            let name = format!("job/{n}");
            let held = service.post("/v1/acquire", &json!({ "name": name, "ttl": "10s" }));
            let held = held.json();
            json!({ "name": name, "lease": held["lease"], "token": held["token"] })
        })
        .collect();
    leases.extend((HELD..1_000).map(|n| {
        let lease = format!("{n:032x}");
        json!({ "name": format!("job/{n}"), "lease": lease, "token": 1 })
    }));
    let answer = service.post("/v1/extend", &json!({ "leases": leases, "ttl": "60s" }));
    assert_eq!(answer.status, 200, "{answer:?}");
    let answer = answer.json();
    let outcomes = answer["leases"].as_array().unwrap();
    assert_eq!(outcomes.len(), 1_000);
    for (n, outcome) in outcomes.iter().enumerate() {
        let expected = if n < HELD { "extended" } else { "lost" };
        assert_eq!(outcome["outcome"], expected, "{outcome}");
        assert_eq!(outcome["name"], format!("job/{n}"));
    }
    leases.push(leases[0].clone());
    let refused = service.post("/v1/extend", &json!({ "leases": leases }));
    refused.is_problem(422, "invalid");
    assert!(refused.text.contains("limit batch"), "{refused:?}");
}

/// Nodes hand out 10,000 names at the most. The prefix was looked for among those.
#[test]
fn a_prefix_is_found_among_more_names_than_one_listing_holds() {
    const OTHERS: usize = 20_000;
    const WANTED: usize = 8;
    let service = Replica::start(Options::new(), async || {
        let client = fencepost::Client::memory().unwrap();
        for n in 0..OTHERS + WANTED {
            let name = match n < OTHERS {
                true => format!("other/{n}"),
                false => format!("a*?b/{n}"),
            };
            let lock = client
                .try_lock(name)
                .ttl(Duration::from_secs(30))
                .renew(false);
            drop(lock.await.unwrap().detach().await.unwrap());
        }
        client
    });
    let found = service.get("/v1/locks?prefix=a*?b/").json();
    assert_eq!(found["locks"].as_array().unwrap().len(), WANTED, "{found}");
    assert_eq!(found["more"], false);
    let all = service.get("/v1/locks?prefix=other").json();
    assert_eq!(
        (&all["more"], all["locks"].as_array().unwrap().len()),
        (&json!(true), 500)
    );
}
