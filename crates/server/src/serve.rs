//! Listening, TLS, and the end: a replica that is told to stop drains, and releases nothing.

use std::convert::Infallible;
use std::error::Error as _;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::Request;
use axum::handler::Handler as _;
use axum::http::Method;
use axum::response::{IntoResponse as _, Response};
use fencepost::Client;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};
use tower_service::Service as _;

use crate::api;
use crate::attempts::Attempts;
use crate::auth::Tokens;
use crate::body;
use crate::guard::refusal;
use crate::leases::Leases;
use crate::limits::{Limits, Waits, reached, sent_too_slowly};
use crate::looks::{Looks, Probe};
use crate::metrics::Metrics;
use crate::pace::{Pace, UnderWay};
use crate::peers::Peers;
use crate::pem::certificates;
use crate::problem::KIND;
use crate::routes;
use crate::service::{Certificate, Mode, Parts, Service};
use crate::spans::{self, Otlp};
use crate::timeline::Timeline;
use crate::trace::traced;
use crate::unread::{Unread, Watched};
use crate::watcher::{Doctor, Watcher, now_ms};

/// How much longer than a wait requests may go on once the replica is told to stop. Those that wait are told so, and end.
const DRAIN: Duration = Duration::from_secs(5);
/// The pause after the operating system refused a connection: it has no descriptor left, say.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How many connections beyond the limit are told so at the same time. Others wait in the kernel's backlog.
const REFUSALS: usize = 64;

/// How to serve.
#[derive(Default)]
#[non_exhaustive]
pub struct Options {
    /// Who may do what; everybody everything without it.
    pub tokens: Option<Tokens>,
    /// TLS, if it is to be spoken.
    pub tls: Option<Tls>,
    /// How much of everything there may be.
    pub limits: Limits,
    /// What it does for those who ask.
    pub mode: Mode,
    /// Examines the nodes, for `/v1/nodes` and the dashboard.
    pub doctor: Option<Doctor>,
    /// Where the timeline is kept; in memory without it.
    pub timeline: Option<PathBuf>,
    /// The other replicas, whose timelines are shown together with this one's.
    pub peers: Peers,
    /// Where metrics are offered instead of beside the locks: by plain HTTP, and to whoever asks.
    pub metrics: Option<std::net::TcpListener>,
    /// The collector that the spans of requests are sent to.
    pub otlp: Option<Otlp>,
}

impl Options {
    /// No authentication, no TLS, the default limits: for loopback.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

/// A certificate to show, and whose certificates are asked for.
#[derive(Clone)]
pub struct Tls(TlsAcceptor);

/// What is wrong with a certificate or a key.
#[derive(Debug)]
pub struct TlsError(String);

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for TlsError {}

impl Tls {
    /// Reads the files, all PEM. With `client_ca` every client has to show a certificate that it
    /// signed.
    ///
    /// # Errors
    /// [`TlsError`] names the file that cannot be used.
    pub fn load(
        certificate: &Path,
        key: &Path,
        client_ca: Option<&Path>,
    ) -> Result<Self, TlsError> {
        let fault = |path: &Path, why: &dyn fmt::Display| {
            TlsError(format!("{} cannot be used: {why}", path.display()))
        };
        let chain = certificates(certificate).map_err(TlsError)?;
        let key_der = PrivateKeyDer::from_pem_file(key).map_err(|error| fault(key, &error))?;
        let builder = ServerConfig::builder();
        let builder = match client_ca {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let mut roots = RootCertStore::empty();
                for certificate in certificates(path).map_err(TlsError)? {
                    roots
                        .add(certificate)
                        .map_err(|error| fault(path, &error))?;
                }
                let verifier = WebPkiClientVerifier::builder(Arc::new(roots)).build();
                builder.with_client_cert_verifier(verifier.map_err(|error| fault(path, &error))?)
            }
        };
        let mut config = builder
            .with_single_cert(chain, key_der)
            .map_err(|error| fault(certificate, &error))?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self(TlsAcceptor::from(Arc::new(config))))
    }
}

/// Serves until `shutdown` resolves; then answers what has begun, and lets nothing new in. Who waits for a lock is told to
/// ask another replica, and keeps its place in the queue. Leases go on: the nodes have them.
///
/// # Errors
/// When the timeline cannot be read or written, or the listener of the metrics cannot be used.
pub async fn serve(
    listener: TcpListener,
    client: Client,
    options: Options,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let draining = watch::Sender::new(false);
    let limits = Arc::new(options.limits);
    let timeline = match &options.timeline {
        Some(directory) => Timeline::open(directory, now_ms())?,
        None => Timeline::new(now_ms()),
    };
    let watcher = Watcher::new(client.clone(), options.doctor.clone(), timeline);
    let looks = tokio::spawn(watcher.clone().run());
    let loopback = listener.local_addr().is_ok_and(|at| at.ip().is_loopback());
    let metrics = Arc::new(Metrics::new(client.clone()));
    let exported = options.otlp.map(|to| spans::export(to, metrics.spans()));
    let (spans, exporting) = exported.unzip();
    let service = Service::new(Parts {
        waits: Waits::default(),
        attempts: Attempts::default(),
        looks: Looks::default(),
        queues: Looks::default(),
        probe: Probe::default(),
        metrics,
        metrics_elsewhere: options.metrics.is_some(),
        leases: Leases::default(),
        client,
        tokens: options.tokens,
        draining: draining.clone(),
        limits: Arc::clone(&limits),
        watcher: watcher.clone(),
        peers: options.peers,
        spans,
        mode: options.mode,
        loopback,
    });
    let metrics = match options.metrics {
        None => None,
        Some(listener) => {
            listener.set_nonblocking(true)?;
            Some(TcpListener::from_std(listener)?)
        }
    };
    let scraped = metrics.map(|listener| {
        let front = Front {
            router: routes::metrics_router(service.clone()),
            guarded: None,
            tls: None,
            limit: ("metrics_connections", limits.metrics_connections),
            limits: Arc::clone(&limits),
            draining: watch::Sender::new(false),
        };
        // Until the end: also how it drains is of interest.
        tokio::spawn(async move { front.accept(listener, std::future::pending()).await })
    });
    let front = Front {
        router: routes::router(service.clone()),
        guarded: Some(service),
        tls: options.tls,
        limit: ("connections", limits.connections),
        limits: Arc::clone(&limits),
        draining: watch::Sender::new(false),
    };
    front.accept(listener, shutdown).await;
    draining.send_replace(true);
    tracing::info!("draining: leases go on, requests that have begun are answered");
    watcher.close();
    front.draining.send_replace(true);
    // Each connection has a receiver.
    let _ = timeout(limits.wait + DRAIN, front.draining.closed()).await;
    looks.abort();
    if let Some(exporting) = exporting {
        exporting.flush().await;
    }
    if let Some(scraped) = scraped {
        scraped.abort();
    }
    Ok(())
}

/// What answers at one address.
struct Front {
    router: axum::Router,
    /// The service, if a page of somebody else's could do harm there.
    guarded: Option<Service>,
    tls: Option<Tls>,
    /// The most connections, and what that limit is called.
    limit: (&'static str, usize),
    limits: Arc<Limits>,
    /// Whether connections are to end once what has begun is answered.
    draining: watch::Sender<bool>,
}

impl Front {
    /// Accepts connections until it is told to stop.
    async fn accept(&self, listener: TcpListener, stop: impl Future<Output = ()>) {
        let places = Arc::new(Semaphore::new(self.limit.1));
        let refusals = Arc::new(Semaphore::new(REFUSALS));
        let mut stop = std::pin::pin!(stop);
        loop {
            let accepted = async {
                // The semaphore is never closed.
                let refusal = Arc::clone(&refusals).acquire_owned().await.ok()?;
                Some((listener.accept().await, refusal))
            };
            let accepted = tokio::select! {
                biased;
                () = &mut stop => return,
                accepted = accepted => accepted,
            };
            let Some((accepted, refusal)) = accepted else {
                return;
            };
            let (stream, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let (place, refused) = match Arc::clone(&places).try_acquire_owned() {
                Ok(place) => (place, None),
                Err(_) => (refusal, Some(self.limit)),
            };
            let connection = Connection {
                peer,
                answers: Answers {
                    router: self.router.clone(),
                    guarded: self.guarded.clone(),
                    refused,
                    limits: Arc::clone(&self.limits),
                },
                limits: Arc::clone(&self.limits),
                draining: self.draining.subscribe(),
                _place: place,
            };
            tokio::spawn(connection.run(stream, self.tls.clone()));
        }
    }
}

/// What answers the requests of a connection.
#[derive(Clone)]
struct Answers {
    router: axum::Router,
    guarded: Option<Service>,
    /// The limit that this connection is beyond.
    refused: Option<(&'static str, usize)>,
    limits: Arc<Limits>,
}

impl Answers {
    async fn to(mut self, request: Request) -> Response {
        if let Some((limit, most)) = self.refused {
            // All of it: a connection that is closed with bytes unread loses its answer.
            drop(body::read(request.into_body(), &self.limits).await);
            let why = format!("{most} connections are open already");
            return reached(limit, &why).into_response();
        }
        let guarded = self.guarded.as_ref();
        if let Some(problem) = guarded.and_then(|service| refusal(service, &request)) {
            return problem.into_response();
        }
        // What is asked most often need not go through a router, which looks it up, clones it and boxes it.
        if let Some(service) = self
            .guarded
            .as_ref()
            .filter(|_| request.method() == Method::POST)
        {
            match request.uri().path() {
                "/v1/acquire" => return api::acquire.call(request, service.clone()).await,
                "/v1/release" => return api::release.call(request, service.clone()).await,
                _ => {}
            }
        }
        match self.router.call(request).await {
            Ok(answer) => answer,
            Err(never) => match never {},
        }
    }
}

/// One connection.
struct Connection {
    peer: SocketAddr,
    answers: Answers,
    limits: Arc<Limits>,
    draining: watch::Receiver<bool>,
    _place: OwnedSemaphorePermit,
}

impl Connection {
    async fn run(self, stream: TcpStream, tls: Option<Tls>) {
        // A lock service sends small answers, each of which somebody waits for.
        let _ = stream.set_nodelay(true);
        let peer = self.peer;
        let Some(Tls(acceptor)) = tls else {
            return self.http(stream, Certificate(None)).await;
        };
        match timeout(self.limits.read_timeout, acceptor.accept(stream)).await {
            Ok(Ok(stream)) => {
                let shown = stream.get_ref().1.peer_certificates();
                let shown = shown.and_then(<[_]>::first);
                let certificate = Certificate(shown.map(|der| Sha256::digest(der).into()));
                self.http(stream, certificate).await;
            }
            Ok(Err(error)) => tracing::debug!(%peer, %error, "no TLS"),
            Err(_) => tracing::debug!(%peer, "no TLS in time (limit read_timeout)"),
        }
    }

    async fn http(
        mut self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        certificate: Certificate,
    ) {
        let (answers, unread) = (self.answers, Unread::default());
        let is_refused = answers.refused.is_some();
        let under_way = UnderWay::default();
        let pace = Pace::new(under_way.clone(), Arc::clone(&self.limits));
        let stream = Watched::new(stream, unread.clone(), pace, self.limits.write_timeout);
        let answer = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
            let mut request: Request = request.map(axum::body::Body::new);
            request.extensions_mut().insert(certificate);
            request.extensions_mut().insert(unread.clone());
            let (answers, begun) = (answers.clone(), under_way.begin());
            async move {
                let _begun = begun;
                let spans = answers.guarded.as_ref().and_then(|it| it.spans.clone());
                Ok::<_, Infallible>(traced(request, spans, |request| answers.to(request)).await)
            }
        });
        let mut builder = http1::Builder::new();
        builder
            // Its time runs while the connection is idle, too: see `Pace`.
            .header_read_timeout(None)
            .keep_alive(!is_refused)
            .max_buf_size(self.limits.header_bytes);
        let mut connection = builder.serve_connection(TokioIo::new(stream), answer);
        let told_to_drain = async {
            // An error is the end of the sender: then all ends.
            let _ = self.draining.wait_for(|draining| *draining).await;
        };
        let ended = tokio::select! {
            biased;
            ended = &mut connection => Some(ended),
            () = told_to_drain => None,
        };
        let ended = match ended {
            Some(ended) => ended,
            None => {
                Pin::new(&mut connection).graceful_shutdown();
                (&mut connection).await
            }
        };
        let Err(error) = ended else { return };
        let parts = connection.into_parts();
        let stream = parts.io.into_inner();
        if stream.timed_out {
            // One that is idle is closed without a word.
            if !parts.read_buf.is_empty() {
                too_slow(stream, &self.limits).await;
            }
            return;
        }
        let peer = self.peer;
        // A client that breaks off is its own affair, and so is one that takes nothing.
        if let Some(why) = error.source() {
            tracing::debug!(%peer, error = %why, "connection ended");
        }
    }
}

/// The answer to a request whose head never came to its end, which no layer above has seen.
async fn too_slow(mut stream: impl AsyncWrite + Unpin, limits: &Limits) {
    let problem = sent_too_slowly("the head of the request", limits);
    let (status, body) = (problem.status, problem.document().to_string());
    let answer = format!(
        "HTTP/1.1 {status}\r\ncontent-type: {KIND}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    // Whoever does not take it has missed nothing else.
    let sent = async {
        stream.write_all(answer.as_bytes()).await?;
        stream.shutdown().await
    };
    let _ = sent.await;
}
