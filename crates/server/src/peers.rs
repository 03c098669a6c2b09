//! [`Peers`]: the other replicas, which are asked what they have watched.
//!
//! Whoever asks one replica is asked for by it at the others: its token goes along, and each of them
//! shows what it may see. A client certificate cannot go along.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderValue, Request, StatusCode, Uri, header};
use futures_util::future::join_all;
use http_body::Body as _;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::pem::certificates;
use crate::timeline::Known;

/// How long a peer may take. A page waits for it.
const LIMIT: Duration = Duration::from_secs(3);
/// The largest answer of a peer: its events, and the intervals it has watched.
const MOST_BYTES: usize = 8 << 20;

/// The other replicas. Clones share them.
#[derive(Clone, Default)]
pub struct Peers {
    all: Arc<[Peer]>,
    tls: Option<TlsConnector>,
}

struct Peer {
    url: String,
    authority: String,
    host: String,
    port: u16,
    secure: bool,
}

/// What is wrong with a list of peers.
#[derive(Debug)]
pub struct PeersError(String);

impl fmt::Display for PeersError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for PeersError {}

impl Peers {
    /// Replicas at these addresses, `http://host:port` or `https://host:port`; the authority (PEM)
    /// signed the certificates of the latter.
    ///
    /// # Errors
    /// [`PeersError`] names the address or the file that cannot be used.
    pub fn new(urls: &[String], authority: Option<&Path>) -> Result<Self, PeersError> {
        let all: Result<Vec<_>, _> = urls.iter().map(|url| Peer::parse(url)).collect();
        let all = all?;
        let secure = all.iter().find(|peer| peer.secure);
        let tls = match (authority, secure) {
            (Some(path), _) => Some(connector(path)?),
            (None, None) => None,
            (None, Some(peer)) => {
                let why = format!("{}: https needs the authority of its certificate", peer.url);
                return Err(PeersError(why));
            }
        };
        Ok(Self {
            all: all.into(),
            tls,
        })
    }

    /// What each of them knows, or why it did not say.
    pub(crate) async fn timelines(
        &self,
        query: &str,
        token: Option<&HeaderValue>,
    ) -> Vec<(String, Result<Known, String>)> {
        let asked = self.all.iter().map(|peer| async move {
            let answer = timeout(LIMIT, self.timeline(peer, query, token)).await;
            let late = || Err(format!("no answer within {} s", LIMIT.as_secs()));
            (peer.url.clone(), answer.unwrap_or_else(|_| late()))
        });
        join_all(asked).await
    }

    async fn timeline(
        &self,
        peer: &Peer,
        query: &str,
        token: Option<&HeaderValue>,
    ) -> Result<Known, String> {
        let mut request = Request::get(format!("/v1/timeline?{query}"))
            .header(header::HOST, &peer.authority)
            .header(header::ACCEPT, "application/json");
        if let Some(token) = token {
            request = request.header(header::AUTHORIZATION, token);
        }
        let request = request.body(String::new()).map_err(|it| it.to_string())?;
        let stream = TcpStream::connect((peer.host.as_str(), peer.port));
        let stream = stream.await.map_err(|error| error.to_string())?;
        let (status, body) = match &self.tls {
            Some(tls) if peer.secure => {
                let name = ServerName::try_from(peer.host.clone());
                let name = name.map_err(|error| error.to_string())?;
                let stream = tls.connect(name, stream).await;
                exchange(stream.map_err(|error| error.to_string())?, request).await?
            }
            _ => exchange(stream, request).await?,
        };
        match status {
            StatusCode::OK => serde_json::from_slice(&body).map_err(|error| error.to_string()),
            _ => {
                let problem: Value = serde_json::from_slice(&body).unwrap_or_default();
                let why = problem["detail"].as_str().unwrap_or("it did not say why");
                Err(format!("{}: {why}", status.as_u16()))
            }
        }
    }
}

impl Peer {
    fn parse(url: &str) -> Result<Self, PeersError> {
        let fault = |why: &str| PeersError(format!("{url}: {why}"));
        let uri: Uri = url.parse().map_err(|_| fault("not an address"))?;
        let secure = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(fault("expected http://host:port or https://host:port")),
        };
        let authority = uri.authority().ok_or_else(|| fault("no host"))?;
        if authority.as_str().contains('@') || !matches!(uri.path(), "" | "/") {
            return Err(fault("expected a host and a port, and nothing else"));
        }
        let host = authority.host().trim_matches(['[', ']']);
        Ok(Self {
            url: url.trim_end_matches('/').to_owned(),
            authority: authority.to_string(),
            host: host.to_owned(),
            port: authority
                .port_u16()
                .unwrap_or(if secure { 443 } else { 80 }),
            secure,
        })
    }
}

fn connector(authority: &Path) -> Result<TlsConnector, PeersError> {
    let shown = authority.display();
    let fault = |why: &dyn fmt::Display| PeersError(format!("{shown} cannot be used: {why}"));
    let mut roots = RootCertStore::empty();
    for certificate in certificates(authority).map_err(PeersError)? {
        roots.add(certificate).map_err(|error| fault(&error))?;
    }
    let config = ClientConfig::builder().with_root_certificates(roots);
    Ok(TlsConnector::from(Arc::new(config.with_no_client_auth())))
}

/// One request on a connection of its own: peers are asked when a page is opened, not all the time.
pub(crate) async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<String>,
) -> Result<(StatusCode, Vec<u8>), String> {
    let shake = hyper::client::conn::http1::handshake(TokioIo::new(stream));
    let (mut sender, connection) = shake.await.map_err(|error| error.to_string())?;
    let answer = async {
        let answer = sender.send_request(request).await;
        let answer = answer.map_err(|error| error.to_string())?;
        let status = answer.status();
        Ok((status, collected(answer.into_body()).await?))
    };
    // Both in this task, so that neither outlives whoever asked.
    let mut answer = std::pin::pin!(answer);
    tokio::select! {
        biased;
        answer = &mut answer => answer,
        ended = connection => match ended {
            Ok(()) => answer.await,
            Err(error) => Err(error.to_string()),
        },
    }
}

async fn collected(mut body: Incoming) -> Result<Vec<u8>, String> {
    let mut all = Vec::new();
    while let Some(frame) =
        std::future::poll_fn(|cx| std::pin::Pin::new(&mut body).poll_frame(cx)).await
    {
        let frame = frame.map_err(|error| error.to_string())?;
        if let Some(data) = frame.data_ref() {
            all.extend_from_slice(data);
        }
        if all.len() > MOST_BYTES {
            return Err("its answer is too long".into());
        }
    }
    Ok(all)
}

/// All replicas together, as one answer.
pub(crate) fn together(own: Known, answers: Vec<(String, Result<Known, String>)>) -> Value {
    /// How a replica names itself among the others.
    const THIS: &str = "this replica";
    if answers.is_empty() {
        return shown(&own);
    }
    let mut replicas = vec![json!({ "replica": THIS, "since_ms": own.since_ms })];
    let mut others = Vec::new();
    for (url, answer) in answers {
        match answer {
            Ok(known) => {
                replicas.push(json!({ "replica": url, "since_ms": known.since_ms }));
                others.push((url, known));
            }
            Err(why) => replicas.push(json!({ "replica": url, "error": why })),
        }
    }
    let mut body = shown(&own.merged(THIS, others));
    body["replicas"] = Value::Array(replicas);
    body
}

fn shown(known: &Known) -> Value {
    let mut body = json!(known);
    body["gaps"] = json!(known.gaps());
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_a_host_and_a_port() {
        let parse = |url: &str| Peer::parse(url).map(|it| (it.host, it.port, it.secure));
        let good = |url: &str| parse(url).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(good("http://a:7323"), ("a".into(), 7323, false));
        assert_eq!(good("http://a:7323/"), ("a".into(), 7323, false));
        assert_eq!(good("https://[::1]:9"), ("::1".into(), 9, true));
        assert_eq!(
            good("https://locks.example"),
            ("locks.example".into(), 443, true)
        );
        for bad in [
            "a:1",
            "ftp://a:1",
            "http://",
            "http://me@a:1",
            "http://a/v1",
            "",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn https_without_an_authority_is_refused_by_name() {
        let refused = Peers::new(&["https://a:1".into()], None).err();
        let why = refused.map(|it| it.to_string()).unwrap_or_default();
        assert!(why.contains("https://a:1"), "{why}");
    }
}
