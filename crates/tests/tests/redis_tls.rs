//! `rediss://` against a real server with certificates of our own.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod on_redis;

use std::path::Path;
use std::time::Duration;

use fencepost::node::Node;
use fencepost::node::redis::{RedisNode, RedisOptions, Roster, TlsOptions};
use fencepost::state::Reply;
use fencepost::{Error, NodeError};
use fencepost_tests::{RedisServer, ServerOptions, free_port};
use on_redis::{Hearing, Lock, open_with, within};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

const SOON: Duration = Duration::from_secs(5);

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Authority {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    // Otherwise it has the name of all others, and the server takes them for self-signed.
    params
        .distinguished_name
        .push(DnType::CommonName, "authority");
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// A certificate and its key, in PEM.
fn certificate(authority: &Authority, name: &str) -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    let certificate = params.signed_by(&key, authority).unwrap();
    (certificate.pem(), key.serialize_pem())
}

fn server(authority: &Authority, dir: &Path, clients: &str) -> (RedisServer, String) {
    let (certificate, key) = certificate(authority, "localhost");
    let files = [
        ("ca.pem", authority.pem()),
        ("cert.pem", certificate),
        ("key.pem", key),
    ];
    for (file, text) in files {
        std::fs::write(dir.join(file), text).unwrap();
    }
    let path = |file: &str| dir.join(file).display().to_string();
    let port = free_port();
    let words = [
        ("--tls-port", port.to_string()),
        ("--tls-cert-file", path("cert.pem")),
        ("--tls-key-file", path("key.pem")),
        ("--tls-ca-cert-file", path("ca.pem")),
        ("--tls-auth-clients", clients.to_owned()),
    ];
    let args = words
        .into_iter()
        .flat_map(|(key, value)| [key.to_owned(), value]);
    let server = RedisServer::start_with(ServerOptions {
        args: args.collect(),
        password: None,
    });
    (server, format!("rediss://localhost:{port}"))
}

fn open(url: &str, tls: TlsOptions) -> RedisNode {
    let options = RedisOptions {
        tls,
        ..RedisOptions::default()
    };
    open_with(url, options, &Roster::default())
}

fn trusting(authority: &Authority) -> TlsOptions {
    TlsOptions {
        ca_pem: Some(authority.pem().into_bytes()),
        client_pem: None,
    }
}

#[tokio::test]
async fn a_server_is_trusted_by_its_authority() {
    let dir = tempfile::tempdir().unwrap();
    let ca = authority();
    let (server, url) = server(&ca, dir.path(), "no");
    for url in [url.clone(), format!("{url}/2?protocol=resp3")] {
        let node = open(&url, trusting(&ca));
        let lock = Lock::new("job");
        lock.granted(&node).await;
        assert_eq!(lock.release(&node).await, Ok(Reply::Released));
        Hearing::of(&node).await.is_woken_by(&server).await;
    }
}

#[tokio::test]
async fn a_server_of_another_authority_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (_server, url) = server(&authority(), dir.path(), "no");
    let node = open(&url, trusting(&authority()));
    let error = within(SOON, node.hello()).await.unwrap_err();
    assert!(matches!(error, NodeError::Unreachable(_)), "{error:?}");
    assert!(error.to_string().contains("certificate"), "{error}");
}

#[tokio::test]
async fn a_server_under_another_name_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let ca = authority();
    let (_server, url) = server(&ca, dir.path(), "no");
    let node = open(&url.replace("localhost", "127.0.0.1"), trusting(&ca));
    let error = within(SOON, node.hello()).await.unwrap_err();
    assert!(error.to_string().contains("certificate"), "{error}");
}

#[tokio::test]
async fn a_server_that_asks_who_we_are_is_shown_our_certificate() {
    let dir = tempfile::tempdir().unwrap();
    let ca = authority();
    let (_server, url) = server(&ca, dir.path(), "yes");
    let (certificate, key) = certificate(&ca, "client");
    let known = TlsOptions {
        client_pem: Some((certificate.into_bytes(), key.into_bytes())),
        ..trusting(&ca)
    };
    let node = open(&url, known);
    Lock::new("job").granted(&node).await;
    let unknown = open(&url, trusting(&ca));
    let error = within(SOON, unknown.hello()).await.unwrap_err();
    assert!(
        matches!(
            error,
            NodeError::Unreachable(_) | NodeError::Disconnected(_)
        ),
        "{error:?}"
    );
}

#[tokio::test]
async fn certificates_that_cannot_be_read_are_refused_at_once() {
    let bad = TlsOptions {
        ca_pem: Some(b"nonsense".to_vec()),
        client_pem: None,
    };
    let options = RedisOptions {
        tls: bad,
        ..RedisOptions::default()
    };
    let clock = std::sync::Arc::new(fencepost::clock::SystemClock);
    let runtime = tokio::runtime::Handle::current();
    let error = RedisNode::open("rediss://h", options, &Roster::default(), clock, &runtime);
    let error = error.err().unwrap();
    assert!(
        matches!(error, Error::InvalidOption { option: "tls", .. }),
        "{error}"
    );
}
