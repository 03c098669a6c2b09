//! `fencepost serve`: the lock service.

use std::process::ExitCode;

use fencepost::HolderProcess;
use fencepost_server::{Options, Tls, Tokens, serve};
use nix::sys::signal::Signal;
use tokio::net::TcpListener;

use crate::args::ServeJob;
use crate::client::fault;
use crate::exit::{Exit, Failure};
use crate::signals::Signals;
use crate::{teller, voice};

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
    // Not on the main thread alone, as a command under a lock needs it: there is no child here.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(Exit::Internal, format!("cannot begin: {error}")))?;
    runtime.block_on(async {
        // In a file a lock is tied to a process: one that another process is to release must not be.
        let builder = job.place.builder().holder_process(HolderProcess::Unbound).replica();
        let client = builder.connect().await.map_err(|error| fault(&error))?;
        let listener = TcpListener::bind(job.listen).await.map_err(|error| {
            Failure::new(Exit::Unavailable, format!("cannot listen at {}: {error}", job.listen))
        })?;
        let address = listener.local_addr().unwrap_or(job.listen);
        let scheme = match job.certificate {
            Some(_) => "https",
            None => "http",
        };
        let unread = voice::print(&format!("{scheme}://{address}\n"));
        if unread != ExitCode::SUCCESS {
            return Ok(unread);
        }
        teller::say(format!(
            "fencepost: serving locks at {scheme}://{address}; try: curl -d name=job {scheme}://{address}/v1/acquire\n"
        ));
        let mut signals = Signals::listen()
            .map_err(|error| Failure::new(Exit::Internal, format!("cannot hear signals: {error}")))?;
        let told_to_stop = async {
            while signals.next().await == Signal::SIGHUP {}
        };
        let served = serve(listener, client, options, told_to_stop).await;
        served.map_err(|error| Failure::new(Exit::Internal, error.to_string()))?;
        Ok(ExitCode::SUCCESS)
    })
}
