//! `rediss://` against a real server with certificates of our own.

use std::time::Duration;

use fencepost::internals::Node;
use fencepost::internals::redis::{RedisNode, RedisOptions, Roster, TlsOptions};
use fencepost::{ErrorKind, NodeError};
use fencepost_core::lock::Reply;
use fencepost_tests::{Authority, TlsServer};

use crate::on_redis::{Hearing, Lock, open_with, within};

const SOON: Duration = Duration::from_secs(5);

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
    let ca = Authority::new();
    let server = TlsServer::start(&ca, "no");
    let url = server.url();
    for url in [url.to_owned(), format!("{url}/2?protocol=resp3")] {
        let node = open(&url, trusting(&ca));
        let lock = Lock::new("job");
        lock.granted(&node).await;
        assert_eq!(lock.release(&node).await, Ok(Reply::Released));
        Hearing::of(&node).await.is_woken_by(server.server()).await;
    }
}

#[tokio::test]
async fn a_server_of_another_authority_is_refused() {
    let server = TlsServer::start(&Authority::new(), "no");
    let node = open(server.url(), trusting(&Authority::new()));
    let error = within(SOON, node.hello()).await.unwrap_err();
    assert!(matches!(error, NodeError::Unreachable(_)), "{error:?}");
    assert!(error.to_string().contains("certificate"), "{error}");
}

#[tokio::test]
async fn a_server_under_another_name_is_refused() {
    let ca = Authority::new();
    let server = TlsServer::start(&ca, "no");
    let node = open(
        &server.url().replace("localhost", "127.0.0.1"),
        trusting(&ca),
    );
    let error = within(SOON, node.hello()).await.unwrap_err();
    assert!(error.to_string().contains("certificate"), "{error}");
}

#[tokio::test]
async fn a_server_that_asks_who_we_are_is_shown_our_certificate() {
    let ca = Authority::new();
    let server = TlsServer::start(&ca, "yes");
    let (certificate, key) = ca.certificate("client");
    let known = TlsOptions {
        client_pem: Some((certificate.into_bytes(), key.into_bytes())),
        ..trusting(&ca)
    };
    let node = open(server.url(), known);
    Lock::new("job").granted(&node).await;
    let unknown = open(server.url(), trusting(&ca));
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
    let clock = std::sync::Arc::new(fencepost::internals::clock::SystemClock);
    let runtime = tokio::runtime::Handle::current();
    let error = RedisNode::open("rediss://h", options, &Roster::default(), clock, &runtime);
    let error = error.err().unwrap();
    assert!(error.kind() == ErrorKind::InvalidOption, "{error}");
}
