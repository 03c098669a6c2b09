//! What is counted, and where it is offered.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::time::{Duration, Instant};

use fencepost::{Client, RestartPolicy};
use fencepost_server::{Options, Tokens, hash_token};
use fencepost_tests::RedisServer;
use serde_json::{Value, json};

use crate::service::{Replica, Reply};

/// A replica whose metrics are elsewhere, and what is asked for there.
fn elsewhere() -> (Replica, impl Fn(&str) -> Reply) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let mut options = Options::new();
    options.metrics = Some(listener);
    let replica = Replica::in_memory(options);
    (replica, move |path| Reply::get(at, path))
}

#[test]
fn metrics_at_an_address_of_their_own_are_there_and_nowhere_else() {
    let (replica, look) = elsewhere();
    replica.get("/metrics").is_problem(404, "not_found");
    let metrics = look("/metrics");
    assert_eq!(metrics.status, 200);
    assert!(
        metrics.text.contains("fencepost_service_waiters 0"),
        "{}",
        metrics.text
    );
    assert_eq!(look("/livez").status, 200);
    assert_eq!(look("/readyz").status, 200);
    look("/v1/locks").is_problem(404, "not_found");
}

/// Anybody could make it ask all nodes as often as they liked.
#[test]
fn whoever_asks_whether_it_sees_a_quorum_shares_a_look_of_one_second() {
    let server = RedisServer::start();
    let url = server.url();
    let replica = Replica::start(Options::new(), async move || {
        let builder = Client::builder().url(url).replica();
        builder.connect().await.unwrap()
    });
    let looks = || -> u64 {
        let stats = server.cli(&["INFO", "commandstats"]);
        let calls = stats
            .lines()
            .find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
        let calls = calls.and_then(|rest| rest.split(',').next());
        calls.map_or(0, |calls| calls.parse().unwrap())
    };
    assert_eq!(replica.get("/readyz").status, 200);
    let (before, start) = (looks(), Instant::now());
    for _ in 0..50 {
        assert_eq!(replica.get("/readyz").status, 200);
        assert_eq!(replica.get("/metrics").status, 200);
    }
    let most = 2 + start.elapsed().as_secs();
    let sent = looks() - before;
    assert!(sent <= most, "{sent} looks");
}

/// They were shown to whoever could connect.
#[test]
fn who_has_no_right_to_see_the_nodes_is_shown_no_address_of_one() {
    let mut servers = RedisServer::start_many(3);
    let dir = tempfile::tempdir().unwrap();
    let entry = |who: &str, verbs: &str| {
        let hash = hash_token(who);
        format!(
            "[[token]]\nprincipal = \"{who}\"\nsha256 = \"{hash}\"\nverbs = [{verbs}]\nprefixes = [\"\"]\n"
        )
    };
    let path = dir.path().join("tokens.toml");
    let text = entry("ci", "\"acquire\", \"read\"") + &entry("op", "\"nodes\"");
    std::fs::write(&path, text).unwrap();
    let mut options = Options::new();
    options.tokens = Some(Tokens::load(&path).unwrap());
    let addresses: Vec<_> = servers.iter().map(|it| it.port().to_string()).collect();
    let urls: Vec<_> = servers.iter().map(RedisServer::url).collect();
    let replica = Replica::start(options, async move || {
        let builder = Client::builder().url(urls.join(","));
        let builder = builder.restart_policy(RestartPolicy::Trust).replica();
        builder.connect().await.unwrap()
    });
    let ask = |path: &str, who: Option<&str>| {
        let bearer = who.map(|who| format!("Bearer {who}"));
        let headers = bearer.iter().map(|bearer| ("authorization", &**bearer));
        replica.send("GET", path, &headers.collect::<Vec<_>>(), "")
    };
    assert_eq!(ask("/readyz", None).status, 200);
    servers.truncate(1);
    fencepost_tests::eventually("no quorum is seen", Duration::from_secs(20), || {
        ask("/readyz", None).status == 503
    });
    for path in ["/readyz", "/metrics"] {
        let shows = |who: Option<&str>| {
            let text = ask(path, who).text;
            assert!(!text.is_empty());
            addresses
                .iter()
                .any(|address| text.contains(&format!(":{address}")))
        };
        let shown = [None, Some("ci"), Some("nobody"), Some("op")].map(shows);
        assert_eq!(shown, [false, false, false, true], "{path}");
    }
    ask("/readyz", None).is_problem(503, "no_quorum");
    let metrics = ask("/metrics", None).text;
    assert!(metrics.contains("node_up{node=\"3\"}"), "{metrics}");
}

fn value(text: &str, metric: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(metric));
    let value = line.unwrap_or_else(|| panic!("no {metric} in {text}"));
    value.trim().parse().unwrap()
}

#[test]
fn leases_votes_losses_and_nodes_are_counted_and_every_metric_says_what_it_is() {
    let mut servers = RedisServer::start_many(3);
    let urls: Vec<_> = servers.iter().map(RedisServer::url).collect();
    let replica = Replica::start(Options::new(), async move || {
        let builder = Client::builder().url(urls.join(","));
        let builder = builder.restart_policy(RestartPolicy::Trust).replica();
        builder.connect().await.unwrap()
    });
    let acquire = |name: &str| -> Value {
        let body = json!({ "name": name, "ttl": "30s" });
        replica.post("/v1/acquire", &body).json()
    };
    let (one, two) = (acquire("one"), acquire("two"));
    let lease = json!({ "name": "one", "lease": one["lease"], "token": one["token"] });
    let extend = json!({ "leases": [lease], "ttl": "30s" });
    replica.post("/v1/extend", &extend);
    let text = replica.get("/metrics").text;
    assert_eq!(value(&text, "fencepost_service_leases "), 2.0);
    assert_eq!(value(&text, "fencepost_service_votes_beyond_quorum "), 1.0);
    assert_eq!(
        value(
            &text,
            "fencepost_service_acquires_total{outcome=\"acquired\"} "
        ),
        2.0
    );
    assert_eq!(
        value(
            &text,
            "fencepost_service_extends_total{outcome=\"extended\"} "
        ),
        1.0
    );
    let granted = text.lines().filter(|line| {
        line.starts_with("fencepost_service_node_votes_total{") && line.contains("granted")
    });
    let granted: f64 = granted
        .map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap())
        .sum();
    assert!(
        (6.0..=9.0).contains(&granted),
        "three decisions of two or three votes: {text}"
    );

    for held in [&one, &two] {
        let release = json!({ "name": held["name"], "lease": held["lease"] });
        assert_eq!(replica.post("/v1/release", &release).status, 200);
    }
    assert_eq!(replica.post("/v1/extend", &extend).status, 200);
    drop(servers.pop());
    // A look at the nodes is a second old at the most.
    let mut text = String::new();
    fencepost_tests::eventually("it is away", Duration::from_secs(20), || {
        text = replica.get("/metrics").text;
        value(&text, "fencepost_service_votes_beyond_quorum ") < 1.0
    });
    assert_eq!(value(&text, "fencepost_service_leases "), 0.0);
    assert_eq!(
        value(&text, "fencepost_service_lost_total{reason=\"unknown\"} "),
        1.0
    );
    assert_eq!(value(&text, "fencepost_service_votes_beyond_quorum "), 0.0);
    assert_eq!(text.matches("fencepost_service_node_up{").count(), 3);

    let named = |what: &str| -> BTreeSet<String> {
        let lines = text.lines().filter_map(|line| line.strip_prefix(what));
        lines
            .map(|line| line.split(' ').next().unwrap().to_owned())
            .collect()
    };
    let (types, helps) = (named("# TYPE "), named("# HELP "));
    assert_eq!(types, helps);
    assert!(types.len() >= 15, "{types:?}");
}

/// Whoever was robbed was counted as `unknown`, each time that it asked.
#[test]
fn a_lost_lease_is_counted_once_under_the_reason_that_was_seen() {
    let (replica, look) = elsewhere();
    let lost = |reason: &str| {
        let metric = format!("fencepost_service_lost_total{{reason=\"{reason}\"}} ");
        value(&look("/metrics").text, &metric)
    };
    let acquire = |name: &str, ttl: &str| -> Value {
        let body = json!({ "name": name, "ttl": ttl });
        replica.post("/v1/acquire", &body).json()
    };
    let extend = |lease: &Value| -> Value {
        let lease =
            json!({ "name": lease["name"], "lease": lease["lease"], "token": lease["token"] });
        let body = json!({ "leases": [lease], "ttl": "30s" });
        replica.post("/v1/extend", &body).json()["leases"][0].clone()
    };

    let robbed = acquire("job", "30s");
    let steal = json!({ "name": "job", "reason": "test", "ttl": "30s" });
    let thief = replica.post("/v1/steal", &steal).json();
    for _ in 0..3 {
        let told = extend(&robbed);
        assert_eq!(
            (&told["outcome"], &told["reason"]),
            (&json!("lost"), &json!("stolen"))
        );
    }
    assert_eq!((lost("stolen"), lost("unknown")), (1.0, 0.0));

    let release = json!({ "name": "job", "lease": thief["lease"] });
    assert_eq!(replica.post("/v1/release", &release).status, 200);
    let told = extend(&robbed);
    assert_eq!(
        told["reason"], "stolen",
        "also when the thief is gone: {told}"
    );
    assert_eq!((lost("stolen"), lost("unknown")), (1.0, 0.0));

    let over = acquire("brief", "20ms");
    let start = Instant::now();
    while replica.get("/v1/locks?name=brief").json()["held"] != false {
        assert!(start.elapsed().as_secs() < 15, "it never ends");
        std::thread::sleep(Duration::from_millis(10));
    }
    let told = extend(&over);
    assert_eq!(told["reason"], Value::Null, "nobody saw why: {told}");
    let detail = told["detail"].as_str().unwrap();
    let told = detail.starts_with("lock \"brief\" is not held under this lease");
    assert!(told && !detail.contains("expired"), "{detail}");
    extend(&over);
    assert_eq!((lost("stolen"), lost("unknown")), (1.0, 1.0));

    let bounded = json!({ "name": "bounded", "ttl": "30s", "max_hold": "100ms" });
    let bounded = replica.post("/v1/acquire", &bounded).json();
    let mut told = Value::Null;
    let start = Instant::now();
    while told["outcome"] != "lost" {
        assert!(start.elapsed().as_secs() < 15, "it never ends: {told}");
        told = extend(&bounded);
    }
    let seen = lost("max_hold") + lost("unknown");
    assert_eq!(seen, 2.0, "it may have ended on the node before: {told}");
}
