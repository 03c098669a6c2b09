//! From a store and a name to what is ours.
//!
//! - `progress`: what is known while we wait.
//! - `spinner`: what people see of it at a terminal.

mod progress;
mod spinner;

use std::convert::Infallible;
use std::time::{Duration, Instant};

use fencepost::{Client, Error, HolderProcess, LockOptions, SessionId};
use nix::sys::signal::Signal;
use tokio::time::{sleep, timeout};

use self::progress::Told;
use self::spinner::Spinner;
use crate::args::{Claim, Place, Wait};
use crate::client::LAST_WORD;
use crate::duration::{Readable, millis};
use crate::exit::{Failure, Holder};
use crate::fault;
use crate::held::Held;
use crate::signals::Signals;
use crate::table::since_1970;
use crate::target::Target;
use crate::voice::{Event, Voice};

/// What is wanted, and how.
pub(crate) struct Want<'a> {
    pub(crate) target: &'a Target,
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

/// Tells a command under a lock which session holds it.
pub(crate) const SESSION: &str = "FENCEPOST_SESSION";

/// How it went.
pub(crate) enum Acquired {
    /// It is ours.
    Ours(Client, Held),
    /// A signal ended the waiting.
    Ended(Signal),
}

/// Connects and waits for it.
pub(crate) async fn acquire(want: &Want<'_>, signals: &mut Signals) -> Result<Acquired, Failure> {
    let fault = |error: Error| refused(want, &error);
    let builder = || {
        let builder = want.place.builder().owner(&want.owner);
        let builder = builder.holder_process(want.holder);
        match inherited_session() {
            Some(session) => builder.session(session),
            None => builder,
        }
    };
    let start = Instant::now();
    let locks = tokio::select! {
        locks = builder().connect() => match locks {
            // They are waited for like a holder, by a client that connects meanwhile.
            Err(error) if has_time(want) && fault::may_connect(&error) => builder().build(),
            locks => locks,
        }
        .map_err(fault)?,
        signal = signals.next() => return Ok(Acquired::Ended(signal)),
    };
    let outcome = tokio::select! {
        held = wait(want, &locks, start) => match held {
            Ok(held) => return Ok(Acquired::Ours(locks, held)),
            Err(failure) => Err(failure),
        },
        signal = signals.next() => Ok(Acquired::Ended(signal)),
    };
    // A partial grant is released before we end.
    let _ = timeout(LAST_WORD, locks.shutdown()).await;
    outcome
}

/// Whether there is a limit to the wait, and it is not over: without one, nodes that were never reached would be
/// waited for in vain for ever where their address is wrong.
fn has_time(want: &Want<'_>) -> bool {
    matches!(want.claim.wait, Wait::AtMost(time) if !time.is_zero())
}

/// The session of the `fencepost run` around us, if there is one: it waits for us, so that what it
/// holds and what we wait for are of one party.
fn inherited_session() -> Option<SessionId> {
    std::env::var(SESSION).ok()?.parse().ok()
}

fn refused(want: &Want<'_>, error: &Error) -> Failure {
    want.target.refused(fault::failure(error, want.claim.busy))
}

async fn wait(want: &Want<'_>, locks: &Client, start: Instant) -> Result<Held, Failure> {
    let mut waited = None;
    let at_once = options(want).timeout(Duration::ZERO);
    let at_once = want.target.ask(locks, at_once, |_| {}).await;
    let held = match (at_once, want.claim.wait) {
        (Ok(held), _) => held,
        (Err(error), Wait::AtMost(Duration::ZERO)) => return Err(refused(want, &error)),
        (Err(why), wait) if fault::may_pass(&why) => {
            let options = match wait {
                Wait::AsLongAsItTakes => options(want),
                Wait::AtMost(time) => options(want).timeout(time.saturating_sub(start.elapsed())),
            };
            let held = watched(want, locks, options, &why).await;
            let held = held.map_err(|error| gave_up(want, &error, start.elapsed()))?;
            waited = Some(start.elapsed());
            held
        }
        (Err(error), _) => return Err(refused(want, &error)),
    };
    // The nodes were so slow that it would end before its first renewal.
    if held.remaining() < want.claim.ttl / 2 && want.max_hold.is_none() {
        held.extend().await.map_err(|error| refused(want, &error))?;
    }
    want.voice.tell(&Event::Acquired {
        lock: want.target,
        held: &held,
        deadline: deadline(held.remaining()),
        waited,
    });
    Ok(held)
}

/// Why it cannot be had after all that time.
fn gave_up(want: &Want<'_>, error: &Error, waited: Duration) -> Failure {
    let mut failure = refused(want, error);
    failure.waited = Some(waited);
    if let Wait::AtMost(limit) = want.claim.wait
        && (failure.holder.is_some() || waited >= limit)
    {
        failure.timed_out = true;
        let (limit, why) = (Readable(limit), &failure.message);
        failure.message = format!("gave up after {limit}: {why}");
    }
    failure
}

/// Waits, and shows it: at a terminal all the time, otherwise by a line now and then.
async fn watched(
    want: &Want<'_>,
    locks: &Client,
    options: LockOptions,
    error: &Error,
) -> Result<Held, Error> {
    let lock = want.target;
    let why = refused(want, error);
    let spinner = Spinner::of(lock, want.voice, &why);
    if let Some(told) = Told::by(&why) {
        spinner.tell(told);
    }
    // The reasons of several nodes do not fit on the spinner's line.
    if !spinner.is_drawn() || fault::lacks_nodes(error) {
        want.voice.tell(&Event::Waiting { lock, why: &why });
    }
    let board = spinner.board();
    tokio::select! {
        held = lock.ask(locks, options, move |progress| board.tell(progress.into())) => held,
        // Both: a job may be sent to the background, or brought to the foreground, meanwhile.
        never = spinner.turn() => match never {},
        never = remind(want, &spinner) => match never {},
    }
}

/// Repeats what is waited for, for the readers of a log.
async fn remind(want: &Want<'_>, spinner: &Spinner) -> Infallible {
    let began = Instant::now();
    loop {
        match want.claim.remind {
            Duration::ZERO => std::future::pending().await,
            time => sleep(time).await,
        }
        if spinner.is_drawn() {
            continue;
        }
        let latest = spinner.latest();
        let split = latest.as_ref().map(|(told, _)| told.split.clone());
        let holder = latest.and_then(|(told, at)| {
            let remaining = told.remaining.map(|time| time.saturating_sub(at.elapsed()));
            Some(Holder {
                by: told.by?,
                since: told.since,
                remaining,
            })
        });
        want.voice.tell(&Event::StillWaiting {
            lock: want.target,
            line: &spinner.line(),
            holder,
            split: split.unwrap_or_default(),
            waited: began.elapsed(),
        });
    }
}

fn options(want: &Want<'_>) -> LockOptions {
    let options = LockOptions::new().ttl(want.claim.ttl);
    let options = options.renew(want.renew).fair(want.claim.fair);
    match want.max_hold {
        Some(time) => options.max_hold(time),
        None => options,
    }
}

/// The milliseconds since 1970 at the end of what remains.
pub(crate) fn deadline(remaining: Duration) -> u64 {
    millis(since_1970() + remaining)
}
