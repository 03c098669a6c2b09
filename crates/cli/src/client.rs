//! A runtime and a client for one short job.

use std::time::Duration;

use fencepost::{Builder, Client, Error, LossReason};
use tokio::runtime::Runtime;
use tokio::time::timeout;

use crate::exit::{Exit, Failure};
use crate::fault;

/// How long a node that is slow may take to hear what a majority has heard.
pub(crate) const LAST_WORD: Duration = Duration::from_millis(100);

/// All on the main thread: a command dies with the thread that started it.
pub(crate) fn runtime() -> Result<Runtime, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime
        .map_err(|error| Failure::new(Exit::Internal, format!("cannot start the runtime: {error}")))
}

/// Whether to wait until a majority of the nodes can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Connect {
    /// Yes: without one nothing can be done.
    First,
    /// No: a node that is away is part of the answer.
    Meanwhile,
}

/// Runs a job with a client, and lets what goes on in the background end.
pub(crate) fn with<T>(
    builder: impl FnOnce() -> Builder,
    connect: Connect,
    job: impl AsyncFnOnce(&Client) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let runtime = runtime()?;
    let outcome = runtime.block_on(async {
        let locks = match connect {
            Connect::First => builder().connect().await,
            Connect::Meanwhile => builder().build(),
        };
        let locks = locks.map_err(|error| fault(&error))?;
        let outcome = job(&locks).await;
        let _ = timeout(LAST_WORD, locks.shutdown()).await;
        outcome
    });
    // A name that is being looked up must not keep us.
    runtime.shutdown_background();
    outcome
}

/// What went wrong with a lock that is known by its value: that may be a wrong one, or one that
/// was released.
pub(crate) fn fault_of_value(error: &Error) -> Failure {
    let fault = fault(error);
    match fault::loss(error) {
        Some((name, LossReason::Unknown)) => Failure {
            message: format!(
                "lock \"{name}\" is not held under this value: it expired or was released, or the \
                 value is not the one that `acquire` printed"
            ),
            ..fault
        },
        _ => fault,
    }
}

/// What went wrong in the library, where nothing changes the exit code.
pub(crate) fn fault(error: &Error) -> Failure {
    fault::failure(error, Exit::BUSY)
}
