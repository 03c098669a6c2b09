//! `fencepost run`: a command under a lock.
//!
//! - `supervise`: looks after the command while it runs.
//! - `plan`: when it has to stop. Pure decisions.
//! - `child`: the command and its process group.
//! - `terminal`: whose turn it is there.

mod child;
mod plan;
mod supervise;
pub(crate) mod terminal;

use std::ffi::{OsStr, OsString};
use std::process::ExitCode;
use std::time::Duration;

use fencepost::{Error, HolderProcess, Lease};
use tokio::time::timeout;

use self::child::{Child, Env};
use self::supervise::Outcome;
use crate::args::RunJob;
use crate::client::{self, LAST_WORD};
use crate::duration::Readable;
use crate::exit::{Exit, Failure, by_signal};
use crate::guard::Guard;
use crate::owner;
use crate::shim::cannot_run;
use crate::signals::Signals;
use crate::voice::{Ended, Event, Loss};
use crate::wait::{self, Acquired, Want};

/// How long the command of `--on-lost` may take.
const ON_LOST_LIMIT: Duration = Duration::from_secs(60);

pub(crate) fn run(job: &RunJob) -> Result<ExitCode, Failure> {
    let runtime = client::runtime()?;
    let outcome = runtime.block_on(hold(job));
    // A name that is being looked up must not keep us.
    runtime.shutdown_background();
    outcome
}

async fn hold(job: &RunJob) -> Result<ExitCode, Failure> {
    let mut signals = Signals::listen()
        .map_err(|error| Failure::new(Exit::Internal, format!("cannot begin: {error}")))?;
    let (locks, lease) = match wait::acquire(&want(job), &mut signals).await? {
        Acquired::Ours(locks, lease) => (locks, lease),
        Acquired::Ended(signal) => return Ok(Exit::Signal(signal as i32).into()),
    };
    let deadline = wait::deadline(lease.remaining());
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

fn want(job: &RunJob) -> Want<'_> {
    let host = nix::unistd::gethostname().unwrap_or_default();
    let command = std::path::Path::new(&job.command[0]);
    let command = command.file_name().unwrap_or_default();
    Want {
        name: &job.name,
        place: &job.place,
        claim: &job.claim,
        owner: owner::label(&host, std::process::id(), command),
        holder: HolderProcess::This,
        renew: true,
        max_hold: job.max_hold,
        voice: job.voice,
    }
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
