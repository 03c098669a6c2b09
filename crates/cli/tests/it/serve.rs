//! `fencepost serve`, as curl sees it.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Stdio;

use crate::bench::Bench;

const LONG: std::time::Duration = std::time::Duration::from_secs(20);

/// `fencepost serve`, killed when it is dropped.
pub(crate) struct Service {
    child: std::process::Child,
    pub(crate) address: String,
}

impl Service {
    pub(crate) fn start(bench: &Bench, words: &[&str]) -> Self {
        let mut command = bench.command(&["serve", "--listen", "127.0.0.1:0"]);
        let mut child = command.args(words).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let address = line
            .trim()
            .strip_prefix("http://")
            .or(line.trim().strip_prefix("https://"))
            .unwrap_or_else(|| panic!("{line:?}"));
        let address = address.to_owned();
        Self { child, address }
    }

    fn post(&self, path: &str, form: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        write!(
            stream,
            "POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\naccept: text/plain\r\n\
             content-type: application/x-www-form-urlencoded\r\ncontent-length: {}\r\n\r\n{form}",
            form.len()
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    pub(crate) fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    pub(crate) fn stop(mut self, signal: nix::sys::signal::Signal) -> Option<i32> {
        let pid = nix::unistd::Pid::from_raw(self.child.id().cast_signed());
        nix::sys::signal::kill(pid, signal).unwrap();
        self.child.wait().unwrap().code()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn field(answer: &str, name: &str) -> String {
    let line = answer
        .lines()
        .find_map(|line| line.strip_prefix(&format!("{name}=")));
    line.unwrap_or_else(|| panic!("no {name} in {answer}"))
        .trim_matches('\'')
        .to_owned()
}

/// On a file a lock is tied to the process that took it; one of the service must outlive its replica.
#[test]
fn a_lease_outlives_the_replica_that_granted_it_also_on_a_file() {
    let bench = Bench::new();
    let first = Service::start(&bench, &[]);
    let granted = first.post("/v1/acquire", "name=job&ttl=50s");
    assert!(granted.starts_with("HTTP/1.1 200"), "{granted}");
    let lease = field(&granted, "LEASE");
    assert_eq!(first.stop(nix::sys::signal::Signal::SIGKILL), None);

    let second = Service::start(&bench, &[]);
    let refused = second.post("/v1/acquire", "name=job");
    assert!(refused.starts_with("HTTP/1.1 409"), "{refused}");
    let released = second.post("/v1/release", &format!("name=job&lease={lease}"));
    assert!(released.starts_with("HTTP/1.1 200"), "{released}");
    assert_eq!(
        second.stop(nix::sys::signal::Signal::SIGTERM),
        Some(0),
        "drained"
    );
}

/// It waited for a client that had sent half of its request, whatever it was told.
#[test]
fn a_second_signal_ends_it_at_once() {
    use nix::sys::signal::Signal;
    let bench = Bench::new();
    let service = Service::start(&bench, &["--limit", "read_timeout=50s"]);
    let mut half = TcpStream::connect(&service.address).unwrap();
    let head = "POST /v1/acquire HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nname";
    half.write_all(head.as_bytes()).unwrap();
    // Another connection is answered: the first one was read.
    assert!(service.get("/livez").starts_with("HTTP/1.1 200"));
    let pid = nix::unistd::Pid::from_raw(service.child.id().cast_signed());
    nix::sys::signal::kill(pid, Signal::SIGTERM).unwrap();
    fencepost_tests::eventually("it listens no more", LONG, || {
        TcpStream::connect(&service.address).is_err()
    });
    let start = std::time::Instant::now();
    assert_eq!(service.stop(Signal::SIGTERM), Some(128 + 15));
    assert!(start.elapsed() < LONG, "{:?}", start.elapsed());
}

#[test]
fn a_limit_is_set_by_its_name() {
    let bench = Bench::new();
    let service = Service::start(&bench, &["--limit", "leases_per_principal=1,wait=2s"]);
    let granted = service.post("/v1/acquire", "name=one");
    assert!(granted.starts_with("HTTP/1.1 200"), "{granted}");
    for (form, limit) in [
        ("name=two", "leases_per_principal"),
        ("name=two&wait=3s", "wait"),
    ] {
        let refused = service.post("/v1/acquire", form);
        assert!(
            refused.contains(&format!("\"limit\":\"{limit}\"")),
            "{refused}"
        );
    }
}

#[test]
fn beyond_this_machine_it_refuses_to_serve_in_the_clear_or_to_everybody() {
    let bench = Bench::new();
    for (words, why) in [
        (&["serve", "--listen", "0.0.0.0:0"][..], "--allow-plaintext"),
        (
            &["serve", "--listen", "0.0.0.0:0", "--allow-plaintext"],
            "--allow-anonymous",
        ),
        (
            &["serve", "--tokens", "/nonexistent"],
            "cannot read /nonexistent",
        ),
        (&["serve", "--listen", "nowhere"], "--listen"),
        (
            &["serve", "--limit", "wiats=1"],
            "no limit is called \"wiats\"",
        ),
        (
            &["serve", "--limit", "waits"],
            "\"waits\" is not NAME=VALUE",
        ),
        (
            &["serve", "--limit", "wait=5"],
            "wait: \"5\" is no duration",
        ),
    ] {
        let ran = bench.run(words);
        assert_eq!(ran.code, Some(64), "{words:?}: {}", ran.err);
        assert!(ran.err.contains(why), "{words:?}: {}", ran.err);
    }
}

/// All of them were "anonymous": one limit for all, and a steal by nobody.
#[test]
fn clients_without_rights_of_their_own_are_told_apart_by_their_certificates() {
    let (bench, authority) = (Bench::new(), fencepost_tests::Authority::new());
    let write = |name: &str, text: &str| std::fs::write(bench.path(name), text).unwrap();
    write("ca.pem", &authority.pem());
    for files in ["localhost", "one", "two"] {
        let (certificate, key) = authority.certificate(files);
        write(&format!("{files}.pem"), &certificate);
        write(&format!("{files}.key"), &key);
    }
    let words = "--serve-cert localhost.pem --serve-key localhost.key --client-ca ca.pem \
                 --limit leases_per_principal=1";
    let words: Vec<_> = words.split_whitespace().collect();
    let service = Service::start(&bench, &words);
    let port = service.address.rsplit_once(':').unwrap().1;
    let url = format!("https://localhost:{port}");
    let acquire = |name: &str, files: &str| {
        let files = [format!("{files}.pem"), format!("{files}.key")];
        let [certificate, key] = &files;
        let tls = [
            "--tls-ca",
            "ca.pem",
            "--tls-cert",
            certificate,
            "--tls-key",
            key,
        ];
        bench.run(
            &[
                &["acquire", name, "--wait", "1s", "--store", &url],
                &tls[..],
            ]
            .concat(),
        )
    };
    assert_eq!(acquire("a", "one").code, Some(0));
    let refused = acquire("b", "one");
    assert!(refused.err.contains("leases_per_principal"), "{refused:?}");
    let other = acquire("b", "two");
    assert_eq!(other.code, Some(0), "{other:?}");
}

/// The program as a server with TLS that knows its clients by their certificates, and as their client.
#[test]
fn clients_show_certificates_which_give_them_their_rights() {
    let (bench, authority) = (Bench::new(), fencepost_tests::Authority::new());
    let write = |name: &str, text: &str| std::fs::write(bench.path(name), text).unwrap();
    let pair = |name: &str, files: &str| {
        let (certificate, key) = authority.certificate(name);
        write(&format!("{files}.pem"), &certificate);
        write(&format!("{files}.key"), &key);
    };
    write("ca.pem", &authority.pem());
    pair("localhost", "server");
    pair("billing", "billing");
    pair("unknown", "unknown");
    let hash = "sed /-----/d billing.pem | base64 -d | sha256sum | cut -d ' ' -f 1";
    let hash = std::process::Command::new("sh")
        .args(["-c", hash])
        .current_dir(bench.path("."))
        .output()
        .unwrap();
    let hash = String::from_utf8(hash.stdout).unwrap();
    let tokens = format!(
        "[[token]]\nprincipal = \"billing\"\ncertificate_sha256 = \"{}\"\n\
         verbs = [\"acquire\", \"read\", \"steal\"]\nprefixes = [\"billing/\"]\n",
        hash.trim()
    );
    write("tokens.toml", &tokens);
    let words =
        "--serve-cert server.pem --serve-key server.key --client-ca ca.pem --tokens tokens.toml";
    let words: Vec<_> = words.split(' ').collect();
    let service = Service::start(&bench, &words);
    let port = service.address.rsplit_once(':').unwrap().1;
    let url = format!("https://localhost:{port}");
    let ask = |words: &[&str], files: Option<&str>| {
        let mut all = words.to_vec();
        all.extend(["--store", &url, "--tls-ca", "ca.pem"]);
        let files = files.map(|files| [format!("{files}.pem"), format!("{files}.key")]);
        if let Some([certificate, key]) = &files {
            all.extend(["--tls-cert", certificate, "--tls-key", key]);
        }
        bench.run(&all)
    };
    let own = ["acquire", "billing/close"];
    let granted = ask(&own, Some("billing"));
    assert_eq!(granted.code, Some(0), "{granted:?}");
    for (words, files) in [
        (&["acquire", "prod/x"][..], Some("billing")),
        (&["acquire", "billing/x"], Some("unknown")),
        (&["acquire", "billing/x"], None),
    ] {
        let refused = ask(words, files);
        assert_ne!(refused.code, Some(0), "{refused:?}");
        assert_ne!(refused.code, Some(75), "{refused:?}");
    }
    let mut stolen = vec!["steal", "billing/close", "--yes", "--reason", "it hangs"];
    let taken = ask(&stolen, Some("billing"));
    assert_eq!(taken.code, Some(0), "{taken:?}");
    stolen[1] = "billing/free";
    let free = ask(&stolen, Some("billing"));
    assert_eq!(free.code, Some(1), "{free:?}");
}

/// The first request that somebody sends there.
fn first_request(listener: &std::net::TcpListener) -> String {
    let (stream, _) = listener.accept().unwrap();
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    line
}

#[test]
fn spans_are_sent_to_the_collector_that_is_given() {
    let bench = Bench::new();
    let collector = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", collector.local_addr().unwrap());
    let service = Service::start(&bench, &["--otlp-endpoint", &url]);
    assert!(
        service
            .post("/v1/acquire", "name=one")
            .starts_with("HTTP/1.1 200")
    );
    assert_eq!(first_request(&collector), "POST /v1/traces HTTP/1.1\r\n");
}

#[test]
fn a_collector_comes_from_the_standard_variables_and_is_checked_at_the_start() {
    let bench = Bench::new();
    let refused = |variables: &[(&str, &str)], words: &[&str]| {
        let mut command = bench.command(&["serve", "--listen", "127.0.0.1:0"]);
        let command = command.args(words).envs(variables.iter().copied());
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(64), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let (exact, base) = (
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
        "OTEL_EXPORTER_OTLP_ENDPOINT",
    );
    for (variables, words, says) in [
        (&[(base, "https://c:4318")][..], &[][..], base),
        (&[(base, "http://c:4318"), (exact, "c")], &[], exact),
        (
            &[(base, "http://c:4318")],
            &["--otlp-endpoint", "http://me:secret@c:4318"],
            "--otlp-endpoint",
        ),
    ] {
        let error = refused(variables, words);
        assert!(error.contains(&format!("{says}: ")), "{error}");
        assert!(!error.contains("secret"), "{error}");
    }
}
