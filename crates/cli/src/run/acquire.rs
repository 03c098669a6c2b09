//! From a store and a name to a lock that is ours.

use std::time::{Duration, Instant};

use fencepost::{Error, Fencepost, Lease, LockRequest};
use nix::sys::signal::Signal;
use tokio::time::timeout;

use super::signals::Signals;
use super::{LAST_WORD, deadline};
use crate::args::{RunJob, Wait};
use crate::exit::Failure;
use crate::voice::Event;

/// The longest owner label that we give, in bytes; the library takes no longer ones.
const LONGEST_OWNER: usize = 200;

/// How it went.
pub(super) enum Acquired {
    /// The lock is ours.
    Ours(Fencepost, Lease),
    /// A signal ended the waiting.
    Ended(Signal),
}

/// Connects and waits for the lock.
pub(super) async fn acquire(job: &RunJob, signals: &mut Signals) -> Result<Acquired, Failure> {
    let fault = |error: Error| Failure::of(&error, job.busy);
    let builder = job.place.builder().owner(owner(job));
    let locks = tokio::select! {
        locks = builder.connect() => locks.map_err(fault)?,
        signal = signals.next() => return Ok(Acquired::Ended(signal)),
    };
    let outcome = tokio::select! {
        lease = wait(job, &locks) => match lease {
            Ok(lease) => return Ok(Acquired::Ours(locks, lease)),
            Err(error) => Err(fault(error)),
        },
        signal = signals.next() => Ok(Acquired::Ended(signal)),
    };
    // What was half granted is given back before we end.
    let _ = timeout(LAST_WORD, locks.shutdown()).await;
    outcome
}

async fn wait(job: &RunJob, locks: &Fencepost) -> Result<Lease, Error> {
    let start = Instant::now();
    let mut waited = None;
    let at_once = request(job, locks).wait(Duration::ZERO).await;
    let lease = match (at_once, job.wait) {
        (Ok(lease), _) => lease,
        (Err(error), Wait::AtMost(Duration::ZERO)) => return Err(error),
        (Err(why), wait) if may_pass(&why) => {
            let lock = &job.name;
            job.voice.tell(&Event::Waiting { lock, why: &why });
            let request = request(job, locks);
            let lease = match wait {
                Wait::AsLongAsItTakes => request.await?,
                Wait::AtMost(time) => request.wait(time.saturating_sub(start.elapsed())).await?,
            };
            waited = Some(start.elapsed());
            lease
        }
        (Err(error), _) => return Err(error),
    };
    // The nodes were so slow that it would end before its first renewal.
    if lease.remaining() < job.ttl / 2 && job.max_hold.is_none() {
        lease.extend().await?;
    }
    job.voice.tell(&Event::Acquired {
        lock: &job.name,
        token: lease.token(),
        deadline: deadline(&lease),
        waited,
    });
    Ok(lease)
}

fn request(job: &RunJob, locks: &Fencepost) -> LockRequest {
    let request = locks.lock(job.name.as_str()).ttl(job.ttl);
    match job.max_hold {
        Some(time) => request.max_hold(time),
        None => request,
    }
}

/// Whether waiting may help.
fn may_pass(error: &Error) -> bool {
    matches!(
        error,
        Error::Held { .. } | Error::NoQuorum { .. } | Error::TooLate { .. }
    )
}

/// What others see as the holder: `host:pid:command`.
fn owner(job: &RunJob) -> String {
    let host = nix::unistd::gethostname().unwrap_or_default();
    let command = std::path::Path::new(&job.command[0]);
    let command = command.file_name().unwrap_or_default();
    let label = format!(
        "{}:{}:{}",
        host.display(),
        std::process::id(),
        command.display()
    );
    let mut length = 0;
    let readable = label.chars().filter(|c| !c.is_control());
    let short = readable.take_while(|c| {
        length += c.len_utf8();
        length <= LONGEST_OWNER
    });
    short.collect()
}
