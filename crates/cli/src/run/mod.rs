//! `fencepost run`: a command under a lock.
//!
//! - `acquire`: connects and waits for the lock.
//! - `supervise`: looks after the command while it runs.
//! - `plan`: when it has to stop. Pure decisions.
//! - `child`: the command and its process group.
//! - `signals`, `terminal`: what comes from outside.

mod acquire;
mod child;
mod plan;
mod signals;
mod supervise;
pub(crate) mod terminal;

use std::ffi::{OsStr, OsString};
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fencepost::{Error, Lease};
use tokio::runtime::Runtime;
use tokio::time::timeout;

use self::acquire::Acquired;
use self::child::{Child, Env};
use self::signals::Signals;
use self::supervise::Outcome;
use crate::args::RunJob;
use crate::duration::{Readable, millis};
use crate::exit::{Exit, Failure, by_signal};
use crate::guard::Guard;
use crate::shim::cannot_run;
use crate::voice::{Ended, Event, Loss};

/// How long a node that is slow may take to hear that the lock was given back, when a majority has
/// heard it.
const LAST_WORD: Duration = Duration::from_millis(100);
/// How long the command of `--on-lost` may take.
const ON_LOST_LIMIT: Duration = Duration::from_secs(60);

pub(crate) fn run(job: &RunJob) -> Result<ExitCode, Failure> {
    let runtime = runtime()?;
    let outcome = runtime.block_on(hold(job));
    // A name that is being looked up must not keep us.
    runtime.shutdown_background();
    outcome
}

/// All on the main thread: the command dies with the thread that started it.
pub(crate) fn runtime() -> Result<Runtime, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.map_err(|error| Failure::new(Exit::Internal, format!("cannot begin: {error}")))
}

async fn hold(job: &RunJob) -> Result<ExitCode, Failure> {
    let mut signals = Signals::listen()
        .map_err(|error| Failure::new(Exit::Internal, format!("cannot begin: {error}")))?;
    let (locks, lease) = match acquire::acquire(job, &mut signals).await? {
        Acquired::Ours(locks, lease) => (locks, lease),
        Acquired::Ended(signal) => return Ok(Exit::Signal(signal as i32).into()),
    };
    let deadline = deadline(&lease);
    let (token, deadline) = (lease.token().to_string(), deadline.to_string());
    let env: [(&str, &OsStr); 3] = [
        ("FENCEPOST_LOCK", job.name.as_str().as_ref()),
        ("FENCEPOST_TOKEN", token.as_ref()),
        ("FENCEPOST_DEADLINE", deadline.as_ref()),
    ];
    let outcome = command(job, &env, &lease, &mut signals).await;
    // Before a word is said: nobody may have to wait for whoever reads it.
    let released = lease.release().await;
    let _ = timeout(LAST_WORD, locks.shutdown()).await;
    let outcome = outcome.map(|mut outcome| {
        outcome.finish_telling();
        let (lock, ended) = (&job.name, outcome.ended);
        job.voice.tell(&Event::Exited { lock, ended });
        outcome
    });
    tell_release(job, &released);
    let Outcome { ended, lost, .. } = outcome?;
    if let Some(why) = &lost {
        on_lost(job, &env, why, &mut signals).await;
        return Ok(Exit::Lost.into());
    }
    // It ended in time by our clock, and yet somebody else may have been at work meanwhile.
    if let Err(error @ Error::Lost { why, .. }) = &released {
        on_lost(job, &env, &Loss::Told(why.clone()), &mut signals).await;
        let message = format!("the command ended, but {error}");
        return Err(Failure::new(Exit::Lost, message));
    }
    Ok(match ended {
        Ended::Code(code) => code.into(),
        Ended::Signal(number) => by_signal(number).into(),
    })
}

/// Runs the command and returns when nothing is left of it.
async fn command(
    job: &RunJob,
    env: &Env<'_>,
    lease: &Lease,
    signals: &mut Signals,
) -> Result<Outcome, Failure> {
    let fault = |error| cannot_run(&job.command[0], &error);
    let foreground = terminal::is_ours();
    // At the terminal, ^Z stops the command and not us; otherwise, us and not the command. Before
    // the command begins, so that it never runs while we are stopped.
    if !foreground {
        signals.listen_to_stop().map_err(fault)?;
    }
    let child = Child::start(&job.command, env, foreground).map_err(fault)?;
    // After it, so that it need not wait. Without a guard there is still the parent-death signal.
    let guard = Guard::over(child.group()).ok();
    let outcome = supervise::supervise(job, child, lease, signals).await;
    if let (Ok(_), Some(guard)) = (&outcome, guard) {
        guard.dismiss();
    }
    outcome.map_err(|error| Failure::new(Exit::Internal, format!("cannot wait: {error}")))
}

/// The milliseconds since 1970 until which the lock is ours, if it is not renewed.
fn deadline(lease: &Lease) -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    millis(now.unwrap_or_default() + lease.remaining())
}

fn tell_release(job: &RunJob, released: &Result<(), Error>) {
    let lock = &job.name;
    match released {
        Ok(()) => job.voice.tell(&Event::Released { lock }),
        // That is told by whoever knows more of it.
        Err(Error::Lost { .. }) => {}
        Err(why) => job.voice.tell(&Event::NotReleased { lock, why }),
    }
}

/// Runs the command of `--on-lost`, and waits for it.
async fn on_lost(job: &RunJob, env: &Env<'_>, why: &Loss, signals: &mut Signals) {
    let Some(line) = &job.on_lost else { return };
    let mut env = env.to_vec();
    env.push(("FENCEPOST_REASON", why.word().as_ref()));
    let command = [OsString::from("sh"), "-c".into(), line.clone()];
    let outcome = match Child::start_aside(&command, &env) {
        Ok(child) => supervise::without_lock(child, signals, ON_LOST_LIMIT).await,
        Err(error) => Err(error),
    };
    let message = match outcome {
        Ok(false) => return,
        Ok(true) => {
            let limit = Readable(ON_LOST_LIMIT);
            format!("the command of --on-lost was killed after {limit}")
        }
        Err(error) => cannot_run("sh".as_ref(), &error).message,
    };
    let failure = Failure::new(Exit::Lost, message);
    job.voice.tell(&Event::Failed(&failure));
}
