//! `fencepost serve`: the lock service.

use std::net::SocketAddr;
use std::process::ExitCode;

use fencepost::HolderProcess;
use fencepost_server::{Doctor, Options, Peers, Tls, Tokens, serve};
use nix::sys::signal::Signal;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use crate::args::{Place, ServeJob};
use crate::client::fault;
use crate::doctor;
use crate::exit::{Exit, Failure};
use crate::signals::Signals;
use crate::{log, teller, voice};

pub(crate) fn run(job: &ServeJob) -> Result<ExitCode, Failure> {
    let mut options = Options::new();
    if let Some(path) = &job.tokens {
        let tokens = Tokens::load(path);
        options.tokens =
            Some(tokens.map_err(|error| Failure::usage(format!("--tokens: {error}")))?);
    }
    if let Some((certificate, key)) = &job.certificate {
        let tls = Tls::load(certificate, key, job.client_ca.as_deref());
        options.tls = Some(tls.map_err(|error| Failure::usage(format!("TLS: {error}")))?);
    }
    options.limits.clone_from(&job.limits);
    options.timeline.clone_from(&job.timeline);
    let peers = Peers::new(&job.peers, job.peer_ca.as_deref());
    options.peers = peers.map_err(|error| Failure::usage(format!("--peer: {error}")))?;
    options.doctor = Some(doctor(&job.place));
    options.otlp = job.otlp.as_deref().cloned();
    let served = Served {
        listen: job.listen,
        metrics: job.metrics_listen,
        scheme: match job.certificate {
            Some(_) => "https",
            None => "http",
        },
        path: "",
        place: &job.place,
    };
    let token = match job.tokens {
        Some(_) => "-H 'Authorization: Bearer TOKEN' ",
        None => "",
    };
    until_told(&served, options, |url| {
        format!(
            "fencepost: serving locks at {url}; try: curl {token}-d name=job {url}/v1/acquire; \
             dashboard: {url}/ui/\n"
        )
    })
}

/// What is served, and where.
pub(crate) struct Served<'a> {
    pub(crate) listen: SocketAddr,
    /// Where metrics are offered, if that is elsewhere.
    pub(crate) metrics: Option<SocketAddr>,
    pub(crate) scheme: &'static str,
    /// What is behind the address that is printed.
    pub(crate) path: &'static str,
    pub(crate) place: &'a Place,
}

/// Serves until a signal ends it. Prints the address on stdout, and what `words` makes of it on
/// stderr.
pub(crate) fn until_told(
    served: &Served<'_>,
    mut options: Options,
    words: impl FnOnce(&str) -> String,
) -> Result<ExitCode, Failure> {
    log::begin();
    // Not on the main thread alone, as a command under a lock needs it: there is no child here.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| {
            Failure::new(Exit::Internal, format!("cannot start the runtime: {error}"))
        })?;
    runtime.block_on(async {
        // In a file a lock is tied to a process: one that another process is to release must not be.
        let builder = served.place.builder();
        let builder = builder.holder_process(HolderProcess::Unbound).replica();
        let client = builder.connect().await.map_err(|error| fault(&error))?;
        let listen = served.listen;
        let cannot = |address: SocketAddr, error: std::io::Error| {
            let why = format!("cannot listen at {address}: {error}");
            Failure::new(Exit::Unavailable, why)
        };
        let listener = TcpListener::bind(listen).await;
        let listener = listener.map_err(|error| cannot(listen, error))?;
        if let Some(at) = served.metrics {
            let bound = std::net::TcpListener::bind(at);
            options.metrics = Some(bound.map_err(|error| cannot(at, error))?);
        }
        let address = listener.local_addr().unwrap_or(listen);
        let url = format!("{}://{address}{}", served.scheme, served.path);
        let unread = voice::print(&format!("{url}\n"));
        if unread != ExitCode::SUCCESS {
            return Ok(unread);
        }
        teller::say(words(&url));
        let mut signals = Signals::listen().map_err(|error| {
            Failure::new(
                Exit::Internal,
                format!("cannot install signal handlers: {error}"),
            )
        })?;
        let (stop, stopped) = oneshot::channel::<()>();
        let told_to_stop = async {
            // It is sent, or dropped with the signals.
            let _ = stopped.await;
        };
        let told_twice = async {
            told_to_end(&mut signals).await;
            let _ = stop.send(());
            told_to_end(&mut signals).await
        };
        tokio::select! {
            served = serve(listener, client, options, told_to_stop) => {
                served.map_err(|error| Failure::new(Exit::Internal, error.to_string()))?;
                Ok(ExitCode::SUCCESS)
            }
            signal = told_twice => {
                let why = format!("a second signal ({signal}): not all requests were answered");
                Err(Failure::new(Exit::Signal(signal as i32), why))
            }
        }
    })
}

async fn told_to_end(signals: &mut Signals) -> Signal {
    loop {
        match signals.next().await {
            Signal::SIGHUP => {}
            signal => return signal,
        }
    }
}

/// Examines the nodes of that place whenever it is asked.
pub(crate) fn doctor(place: &Place) -> Doctor {
    let place = place.clone();
    std::sync::Arc::new(move || {
        let policy = doctor::Policy {
            restart: place.restart_policy,
            max_ttl: place.max_ttl,
        };
        Box::pin(doctor::examine(place.builder(), policy))
    })
}
