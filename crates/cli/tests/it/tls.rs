//! Servers over TLS, with certificates of an authority that the system does not know.

use std::fs;

use fencepost_tests::{Authority, TlsServer};
use serde_json::Value;

use crate::bench::{Bench, Ran};

/// A directory with the authority's certificate in `ca.pem`, and a client's in `cert.pem` and
/// `key.pem`.
fn with_certificates(authority: &Authority) -> Bench {
    let bench = Bench::new();
    let (certificate, key) = authority.certificate("client");
    for (name, text) in [
        ("ca.pem", authority.pem()),
        ("both.pem", format!("{key}{certificate}")),
        ("cert.pem", certificate),
        ("key.pem", key),
    ] {
        fs::write(bench.path(name), text).expect("a file");
    }
    bench
}

/// The same, and a server of that authority that asks for certificates or not.
fn with_server(auth_clients: &str) -> (Bench, TlsServer) {
    let authority = Authority::new();
    let server = TlsServer::start(&authority, auth_clients);
    (with_certificates(&authority), server)
}

const CLIENT: [&str; 4] = ["--tls-cert", "cert.pem", "--tls-key", "key.pem"];

fn run(bench: &Bench, url: &str, options: &[&str]) -> Ran {
    let run = ["run", "job", "--store", url];
    bench.run(&[&run[..], options, &["--", "echo", "ran"]].concat())
}

fn has_run(ran: &Ran) {
    let told = (ran.code, ran.out.as_str(), ran.err.as_str());
    assert_eq!(told, (Some(0), "ran\n", ""));
}

/// What `doctor` found of the one node: the kind and how to fix it.
fn found(bench: &Bench, url: &str, options: &[&str]) -> (Option<i32>, Vec<(String, String)>) {
    let ran = bench.run(&[&["doctor", "--json", "--store", url], options].concat());
    let json: Value = serde_json::from_str(&ran.out).unwrap_or_else(|_| panic!("{ran:?}"));
    let findings = json["findings"]
        .as_array()
        .expect("as it is printed")
        .iter();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let findings = findings.map(|it| (text(&it["what"]), text(&it["fix"])));
    (ran.code, findings.collect())
}

#[test]
fn an_authority_of_ones_own_is_trusted_by_option_environment_and_config_file() {
    let (bench, server) = with_server("no");
    let url = server.url();
    let ran = run(&bench, url, &[]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(69), ""), "{ran:?}");
    assert!(ran.err.contains("--tls-ca"), "{ran:?}");

    has_run(&run(&bench, url, &["--tls-ca", "ca.pem"]));
    let mut command = bench.command(&["run", "job", "--store", url, "--", "echo", "ran"]);
    has_run(
        &command
            .env("FENCEPOST_TLS_CA", "ca.pem")
            .output()
            .unwrap()
            .into(),
    );
    fs::write(bench.path("config.toml"), "tls-ca = \"ca.pem\"\n").unwrap();
    has_run(&run(&bench, url, &["--config", "config.toml"]));
    // Every command that goes to the store has it.
    for words in [
        &["status", "job"][..],
        &["list"],
        &["acquire", "other"],
        &["steal", "other", "--yes"],
        &["bench", "--time", "10ms"],
    ] {
        let ran = bench.run(&[words, &["--store", url, "--tls-ca", "ca.pem"]].concat());
        assert_eq!(ran.code, Some(0), "{words:?}: {ran:?}");
    }
    // The name is looked at, too.
    let other_name = url.replace("localhost", "127.0.0.1");
    let ran = run(&bench, &other_name, &["--tls-ca", "ca.pem"]);
    assert_eq!(ran.code, Some(69), "{ran:?}");
    assert!(ran.err.contains("not valid for name"), "{ran:?}");
}

#[test]
fn a_server_that_asks_who_we_are_is_shown_our_certificate() {
    let (bench, server) = with_server("yes");
    let url = server.url();
    let trusting = ["--tls-ca", "ca.pem"];
    has_run(&run(&bench, url, &[&trusting[..], &CLIENT].concat()));
    let in_one_file = ["--tls-cert", "both.pem", "--tls-key", "both.pem"];
    has_run(&run(&bench, url, &[&trusting[..], &in_one_file].concat()));
    let ran = run(&bench, url, &trusting);
    assert_eq!(ran.code, Some(69), "{ran:?}");
    assert!(ran.err.contains("--tls-cert and --tls-key"), "{ran:?}");

    let stranger = Authority::new().certificate("client");
    fs::write(bench.path("cert.pem"), stranger.0).unwrap();
    fs::write(bench.path("key.pem"), stranger.1).unwrap();
    let ran = run(&bench, url, &[&trusting[..], &CLIENT].concat());
    assert_eq!(ran.code, Some(69), "{ran:?}");
    assert!(
        ran.err.contains("not trust the client certificate"),
        "{ran:?}"
    );
}

#[test]
fn the_doctor_uses_them_and_says_what_is_missing() {
    let (bench, server) = with_server("yes");
    let trusting = ["--tls-ca", "ca.pem"];
    for options in [&[][..], &trusting] {
        let (code, found) = found(&bench, server.url(), options);
        assert_eq!(code, Some(69), "{found:?}");
        let tls = found.iter().find(|(what, _)| what == "tls");
        let (_, fix) = tls.unwrap_or_else(|| panic!("{found:?}"));
        assert!(fix.contains("--tls-ca FILE"), "{fix}");
        assert!(fix.contains("--tls-key FILE"), "{fix}");
    }
    let all = [&trusting[..], &CLIENT].concat();
    let (code, found) = found(&bench, server.url(), &all);
    assert_eq!(code, Some(0), "{found:?}");
    assert!(found.iter().all(|(what, _)| what != "tls"), "{found:?}");
}

#[test]
fn a_file_that_cannot_be_used_is_64_and_one_sentence_that_names_it() {
    let authority = Authority::new();
    let bench = with_certificates(&authority);
    let write = |name: &str, text: &str| fs::write(bench.path(name), text).unwrap();
    write("empty.pem", "");
    write("text.pem", "no certificate\n");
    let authority = authority.pem();
    write("torn.pem", authority.split_at(authority.len() / 2).0);
    write("other-key.pem", &Authority::new().certificate("other").1);
    write("locked.pem", "-----BEGIN ENCRYPTED PRIVATE KEY-----\n");
    write("long.pem", &"x".repeat((1 << 20) + 1));
    for (options, says) in [
        (
            "--tls-ca none.pem",
            "--tls-ca none.pem cannot be read: No such file",
        ),
        ("--tls-ca .", ". cannot be read: Is a directory"),
        ("--tls-ca empty.pem", "empty.pem cannot be used"),
        ("--tls-ca text.pem", "not PEM"),
        ("--tls-ca torn.pem", "no complete CERTIFICATE"),
        ("--tls-ca key.pem", "no complete CERTIFICATE"),
        ("--tls-ca long.pem", "longer than 1 MiB"),
        ("--tls-cert cert.pem", "give --tls-key FILE, too"),
        ("--tls-key key.pem", "give --tls-cert FILE, too"),
        (
            "--tls-cert none.pem --tls-key key.pem",
            "none.pem cannot be read",
        ),
        (
            "--tls-cert cert.pem --tls-key none.pem",
            "none.pem cannot be read",
        ),
        (
            "--tls-cert key.pem --tls-key key.pem",
            "no complete CERTIFICATE",
        ),
        (
            "--tls-cert cert.pem --tls-key cert.pem",
            "no complete PRIVATE KEY",
        ),
        (
            "--tls-cert cert.pem --tls-key locked.pem",
            "openssl pkey -in",
        ),
        (
            "--tls-cert cert.pem --tls-key other-key.pem",
            "does not match its certificate",
        ),
    ] {
        let options: Vec<_> = options.split(' ').collect();
        for command in [&["status", "job"][..], &["doctor"]] {
            let store = ["--store", "rediss://127.0.0.1:1"];
            let ran = bench.run(&[command, &store, &options].concat());
            assert_eq!((ran.code, ran.out.as_str()), (Some(64), ""), "{ran:?}");
            assert!(ran.err.contains("--tls-"), "{options:?}: {ran:?}");
            assert!(ran.err.contains(says), "{options:?}: {ran:?}");
            assert_eq!(ran.err.lines().count(), 1, "{ran:?}");
        }
    }
}

/// Whoever types it believes that the connection is safe.
#[test]
fn what_is_typed_for_tls_is_not_passed_over_where_there_is_none() {
    let bench = with_certificates(&Authority::new());
    for options in [&["--tls-ca", "ca.pem"][..], &CLIENT] {
        for store in [&[][..], &["--store", "redis://127.0.0.1:1"]] {
            let ran = bench.run(&[&["status", "job"], store, options].concat());
            assert_eq!(ran.code, Some(64), "{ran:?}");
            assert!(ran.err.contains("write rediss://HOST"), "{ran:?}");
        }
    }
    // It may be for another store where it was not typed.
    let mut command = bench.command(&["run", "job", "--", "echo", "ran"]);
    has_run(
        &command
            .env("FENCEPOST_TLS_CA", "none.pem")
            .output()
            .unwrap()
            .into(),
    );
}
