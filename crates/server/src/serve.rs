//! Listening, TLS, and the end: a replica that is told to stop drains, and releases nothing.

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::extract::Request;
use axum::response::{IntoResponse as _, Response};
use fencepost::Client;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};
use tower_service::Service as _;

use crate::attempts::Attempts;
use crate::auth::Tokens;
use crate::guard::refusal;
use crate::limits::{Limits, Waits};
use crate::metrics::Metrics;
use crate::peers::Peers;
use crate::pem::certificates;
use crate::routes;
use crate::service::{Certificate, Mode, Parts, Service};
use crate::timeline::Timeline;
use crate::trace::traced;
use crate::unread::{Unread, Watched};
use crate::watcher::{Doctor, Watcher, now_ms};

/// How long requests may go on once the replica is told to stop.
const DRAIN: Duration = Duration::from_secs(65);
/// The pause after the operating system refused a connection: it has no descriptor left, say.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The most connections to the address of the metrics.
const SCRAPERS: usize = 16;

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

/// Serves until `shutdown` resolves; then answers what has begun, and lets nothing new in. Leases go
/// on: the nodes have them.
///
/// # Errors
/// When the timeline cannot be read or written, or the listener of the metrics cannot be used.
pub async fn serve(
    listener: TcpListener,
    client: Client,
    options: Options,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let draining = Arc::new(AtomicBool::new(false));
    let limits = Arc::new(options.limits);
    let timeline = match &options.timeline {
        Some(directory) => Timeline::open(directory, now_ms())?,
        None => Timeline::new(now_ms()),
    };
    let watcher = Watcher::new(client.clone(), options.doctor.clone(), timeline);
    let looks = tokio::spawn(watcher.clone().run());
    let loopback = listener.local_addr().is_ok_and(|at| at.ip().is_loopback());
    let service = Service::new(Parts {
        waits: Waits::default(),
        attempts: Attempts::default(),
        metrics: Arc::new(Metrics::new(client.clone())),
        metrics_elsewhere: options.metrics.is_some(),
        leases: Arc::default(),
        client,
        tokens: options.tokens,
        draining: Arc::clone(&draining),
        limits: Arc::clone(&limits),
        watcher: watcher.clone(),
        peers: options.peers,
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
            connections: Arc::new(Semaphore::new(SCRAPERS)),
            limits: Arc::clone(&limits),
            graceful: GracefulShutdown::new(),
        };
        // Until the end: also how it drains is of interest.
        tokio::spawn(async move { front.accept(listener, std::future::pending()).await })
    });
    let front = Front {
        router: routes::router(service.clone()),
        guarded: Some(service),
        tls: options.tls,
        connections: Arc::new(Semaphore::new(limits.connections)),
        limits,
        graceful: GracefulShutdown::new(),
    };
    front.accept(listener, shutdown).await;
    draining.store(true, Ordering::Relaxed);
    tracing::info!("draining: leases go on, requests that have begun are answered");
    watcher.close();
    let _ = timeout(DRAIN, front.graceful.shutdown()).await;
    looks.abort();
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
    connections: Arc<Semaphore>,
    limits: Arc<Limits>,
    graceful: GracefulShutdown,
}

impl Front {
    /// Accepts connections until it is told to stop.
    async fn accept(&self, listener: TcpListener, stop: impl Future<Output = ()>) {
        let mut stop = std::pin::pin!(stop);
        loop {
            // Before it is accepted: who is beyond the limit waits in the kernel's backlog.
            let place = Arc::clone(&self.connections).acquire_owned();
            let accepted = async {
                // The semaphore is never closed.
                let place = place.await.ok()?;
                Some((listener.accept().await, place))
            };
            let accepted = tokio::select! {
                biased;
                () = &mut stop => return,
                accepted = accepted => accepted,
            };
            let Some((accepted, place)) = accepted else {
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
            let answers = Answers {
                router: self.router.clone(),
                guarded: self.guarded.clone(),
            };
            let (limits, tls) = (Arc::clone(&self.limits), self.tls.clone());
            let watcher = self.graceful.watcher();
            tokio::spawn(async move {
                let _place = place;
                connection(stream, peer, answers, tls, &limits, watcher).await;
            });
        }
    }
}

/// What answers the requests of a connection.
#[derive(Clone)]
struct Answers {
    router: axum::Router,
    guarded: Option<Service>,
}

impl Answers {
    async fn to(mut self, request: Request) -> Response {
        let guarded = self.guarded.as_ref();
        if let Some(problem) = guarded.and_then(|service| refusal(service, &request)) {
            return problem.into_response();
        }
        match self.router.call(request).await {
            Ok(answer) => answer,
            Err(never) => match never {},
        }
    }
}

async fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    answers: Answers,
    tls: Option<Tls>,
    limits: &Limits,
    watcher: hyper_util::server::graceful::Watcher,
) {
    // A lock service sends small answers, each of which somebody waits for.
    let _ = stream.set_nodelay(true);
    match tls {
        None => http(stream, Certificate(None), answers, limits, watcher).await,
        Some(Tls(acceptor)) => match timeout(limits.read_timeout, acceptor.accept(stream)).await {
            Ok(Ok(stream)) => {
                let shown = stream
                    .get_ref()
                    .1
                    .peer_certificates()
                    .and_then(<[_]>::first);
                let certificate = Certificate(shown.map(|der| Sha256::digest(der).into()));
                http(stream, certificate, answers, limits, watcher).await;
            }
            Ok(Err(error)) => tracing::debug!(%peer, %error, "no TLS"),
            Err(_) => tracing::debug!(%peer, "no TLS in time"),
        },
    }
}

async fn http(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    certificate: Certificate,
    answers: Answers,
    limits: &Limits,
    watcher: hyper_util::server::graceful::Watcher,
) {
    let unread = Unread::default();
    let stream = Watched {
        stream,
        unread: unread.clone(),
    };
    let answer = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
        let mut request: Request = request.map(axum::body::Body::new);
        request.extensions_mut().insert(certificate);
        request.extensions_mut().insert(unread.clone());
        let answers = answers.clone();
        async move { Ok::<_, Infallible>(traced(request, |request| answers.to(request)).await) }
    });
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(limits.read_timeout)
        .max_buf_size(64 * 1024);
    let connection = builder.serve_connection(TokioIo::new(stream), answer);
    // A client that breaks off is its own affair.
    let _ = watcher.watch(connection).await;
}
