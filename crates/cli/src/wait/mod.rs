//! From a store and a name to a lock that is ours.
//!
//! - `progress`: what is known while we wait.
//! - `spinner`: what people see of it at a terminal.

mod progress;
mod spinner;

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use fencepost::{Error, Fencepost, HolderProcess, Lease, LockName, LockRequest};
use nix::sys::signal::Signal;
use tokio::time::timeout;

use self::progress::Told;
use self::spinner::Spinner;
use crate::args::{Claim, Place, Wait};
use crate::client::LAST_WORD;
use crate::duration::millis;
use crate::exit::Failure;
use crate::signals::Signals;
use crate::voice::{Event, Voice};

/// A lock that is wanted.
pub(crate) struct Want<'a> {
    pub(crate) name: &'a LockName,
    pub(crate) place: &'a Place,
    pub(crate) claim: &'a Claim,
    /// What others see as the holder.
    pub(crate) owner: String,
    pub(crate) holder: HolderProcess,
    /// Whether it is renewed for as long as we live.
    pub(crate) renew: bool,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) voice: Voice,
}

/// How it went.
pub(crate) enum Acquired {
    /// The lock is ours.
    Ours(Fencepost, Lease),
    /// A signal ended the waiting.
    Ended(Signal),
}

/// Connects and waits for the lock.
pub(crate) async fn acquire(want: &Want<'_>, signals: &mut Signals) -> Result<Acquired, Failure> {
    let fault = |error: Error| Failure::of(&error, want.claim.busy);
    let builder = want.place.builder().owner(&want.owner);
    let builder = builder.holder_process(want.holder);
    let locks = tokio::select! {
        locks = builder.connect() => locks.map_err(fault)?,
        signal = signals.next() => return Ok(Acquired::Ended(signal)),
    };
    let outcome = tokio::select! {
        lease = wait(want, &locks) => match lease {
            Ok(lease) => return Ok(Acquired::Ours(locks, lease)),
            Err(error) => Err(fault(error)),
        },
        signal = signals.next() => Ok(Acquired::Ended(signal)),
    };
    // What was half granted is given back before we end.
    let _ = timeout(LAST_WORD, locks.shutdown()).await;
    outcome
}

async fn wait(want: &Want<'_>, locks: &Fencepost) -> Result<Lease, Error> {
    let start = Instant::now();
    let mut waited = None;
    let at_once = request(want, locks).wait(Duration::ZERO).await;
    let lease = match (at_once, want.claim.wait) {
        (Ok(lease), _) => lease,
        (Err(error), Wait::AtMost(Duration::ZERO)) => return Err(error),
        (Err(why), wait) if may_pass(&why) => {
            let request = request(want, locks);
            let request = match wait {
                Wait::AsLongAsItTakes => request,
                Wait::AtMost(time) => request.wait(time.saturating_sub(start.elapsed())),
            };
            let lease = watched(want, request, &why).await?;
            waited = Some(start.elapsed());
            lease
        }
        (Err(error), _) => return Err(error),
    };
    // The nodes were so slow that it would end before its first renewal.
    if lease.remaining() < want.claim.ttl / 2 && want.max_hold.is_none() {
        lease.extend().await?;
    }
    want.voice.tell(&Event::Acquired {
        lock: want.name,
        token: lease.token(),
        deadline: deadline(lease.remaining()),
        waited,
    });
    Ok(lease)
}

/// Waits, and shows it: at a terminal all the time, otherwise by one line.
async fn watched(want: &Want<'_>, request: LockRequest, why: &Error) -> Result<Lease, Error> {
    let Some(spinner) = Spinner::at_terminal(want.name, want.voice) else {
        let lock = want.name;
        want.voice.tell(&Event::Waiting { lock, why });
        return request.await;
    };
    if let Some(progress) = Told::by(why) {
        spinner.tell(progress);
    }
    let board = spinner.board();
    let request = request.on_progress(move |progress| board.tell(progress.into()));
    tokio::select! {
        lease = request => lease,
        never = spinner.turn() => match never {},
    }
}

fn request(want: &Want<'_>, locks: &Fencepost) -> LockRequest {
    let request = locks.lock(want.name.as_str()).ttl(want.claim.ttl);
    let request = request.renew(want.renew).fair(want.claim.fair);
    match want.max_hold {
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

/// The milliseconds since 1970 at the end of what remains.
pub(crate) fn deadline(remaining: Duration) -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    millis(now.unwrap_or_default() + remaining)
}
