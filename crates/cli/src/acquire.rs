//! `fencepost acquire`: a lock for a script.

use std::process::ExitCode;

use tokio::time::timeout;

use crate::args::AcquireJob;
use crate::client::{self, LAST_WORD};
use crate::exit::{Exit, Failure};
use crate::handed::Handed;
use crate::signals::Signals;
use crate::voice;
use crate::wait::{self, Acquired, Want};

pub(crate) fn run(job: &AcquireJob) -> Result<ExitCode, Failure> {
    let runtime = client::runtime()?;
    let outcome = runtime.block_on(take(job));
    // A name that is being looked up must not keep us.
    runtime.shutdown_background();
    outcome
}

async fn take(job: &AcquireJob) -> Result<ExitCode, Failure> {
    let mut signals = Signals::listen().map_err(|error| {
        Failure::new(
            Exit::Internal,
            format!("cannot install signal handlers: {error}"),
        )
    })?;
    let want = Want {
        target: &job.target,
        place: &job.place,
        claim: &job.claim,
        owner: job.holder.owner(),
        holder: job.holder.process(),
        renew: false,
        max_hold: None,
        voice: job.voice,
    };
    let (locks, held) = match wait::acquire(&want, &mut signals).await? {
        Acquired::Ours(locks, held) => (locks, held),
        Acquired::Ended(signal) => return Ok(Exit::Signal(signal as i32).into()),
    };
    let begun = std::time::Instant::now();
    let remaining = held.remaining();
    let receipt = held.detach().await?;
    let handed = Handed {
        receipt: &receipt,
        remaining: remaining.saturating_sub(begun.elapsed()),
    };
    let printed = voice::print(&handed.print(job.form));
    if printed != ExitCode::SUCCESS {
        // The value did not reach the caller, so no one could release the lock.
        let _ = locks.release_detached(&receipt).await;
    }
    let _ = timeout(LAST_WORD, locks.shutdown()).await;
    Ok(printed)
}
