//! `fencepost run` and `fencepost elect`: a command under a lock, or what else it is to hold.
//!
//! - `again`: whether it runs once more. Pure decisions.
//! - `env`: its environment.
//! - `supervise`: looks after the command while it runs.
//! - `plan`: when it has to stop. Pure decisions.
//! - `child`: the command and its process group.

mod again;
mod child;
mod env;
mod plan;
mod supervise;

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use fencepost::{Error, HolderProcess};
use tokio::time::{sleep, timeout};

use self::again::{Circumstances, End};
use self::child::Child;
use self::env::Environment;
use self::supervise::Outcome;
use crate::args::{RunJob, Wait};
use crate::client::{self, LAST_WORD};
use crate::duration::Readable;
use crate::exit::{Exit, Failure, by_signal};
use crate::fault;
use crate::guard::Guard;
use crate::held::Held;
use crate::owner;
use crate::shim::{self, cannot_run};
use crate::signals::Signals;
use crate::teller;
use crate::terminal;
use crate::voice::{Ended, Event, Loss};
use crate::wait::{self, Acquired, Want};

/// How long the command of `--on-lost` may take.
const ON_LOST_LIMIT: Duration = Duration::from_secs(60);
/// How long what was said before the command begins may take to be written.
const TELLING_LIMIT: Duration = Duration::from_millis(50);

pub(crate) fn run(job: &RunJob) -> Result<ExitCode, Failure> {
    let runtime = client::runtime()?;
    let outcome = runtime.block_on(turns(job));
    // A name that is being looked up must not keep us.
    runtime.shutdown_background();
    outcome
}

async fn turns(job: &RunJob) -> Result<ExitCode, Failure> {
    let mut signals = Signals::listen().map_err(|error| {
        Failure::new(
            Exit::Internal,
            format!("cannot install signal handlers: {error}"),
        )
    })?;
    let (mut began, mut last_end) = (false, None);
    loop {
        let Turn { end, outcome } = turn(job, &mut signals).await;
        began |= matches!(end, End::Command(_) | End::Lost);
        let now = Circumstances {
            told_to_end: signals.told_to_end(),
            began,
            waits_for_ever: job.claim.wait == Wait::AsLongAsItTakes,
        };
        if !again::follows(job.again, end, now) {
            return outcome;
        }
        // Nodes that stay away are not told of again and again.
        if let (Err(failure), true) = (&outcome, last_end != Some(End::NoQuorum)) {
            job.voice.tell(&Event::Failed(failure));
        }
        last_end = Some(end);
        tokio::select! {
            signal = signals.next() => return Ok(Exit::Signal(signal as i32).into()),
            () = sleep(again::PAUSE) => {}
        }
    }
}

/// How a turn went: what it means for the next one, and for us if there is none.
struct Turn {
    end: End,
    outcome: Result<ExitCode, Failure>,
}

impl Turn {
    /// It did not begin.
    fn not_begun(failure: Failure) -> Self {
        Self {
            end: match failure.exit {
                Exit::Unavailable => End::NoQuorum,
                Exit::Lost => End::Lost,
                _ => End::NotBegun,
            },
            outcome: Err(failure),
        }
    }
}

/// Waits, runs the command, and releases what was held.
async fn turn(job: &RunJob, signals: &mut Signals) -> Turn {
    let (locks, held) = match wait::acquire(&want(job), signals).await {
        Ok(Acquired::Ours(locks, held)) => (locks, held),
        Ok(Acquired::Ended(signal)) => {
            let outcome = Ok(Exit::Signal(signal as i32).into());
            let end = End::NotBegun;
            return Turn { end, outcome };
        }
        Err(failure) => return Turn::not_begun(failure),
    };
    let env = Environment::of(&job.target, &held);
    let env = env.with(wait::SESSION, &locks.session().to_string());
    let outcome = command(job, &env, &held, signals).await;
    // Before anything is printed: the next holder must not wait for a reader of stderr.
    let released = held.release().await;
    let _ = timeout(LAST_WORD, locks.shutdown()).await;
    let outcome = outcome.inspect(|outcome| {
        let (lock, ended) = (&job.target, outcome.ended);
        job.voice.tell(&Event::Exited { lock, ended });
    });
    tell_release(job, &released);
    let Outcome { ended, lost, .. } = match outcome {
        Ok(outcome) => outcome,
        Err(failure) => return Turn::not_begun(failure),
    };
    // It may have ended in time by our clock, and yet another holder may have been at work meanwhile.
    let late = released.as_ref().err();
    let late = late.and_then(|error| Some((error, fault::loss(error)?)));
    let (lost, outcome) = match (lost, late) {
        (Some(why), _) => (Some(why), Ok(Exit::Lost.into())),
        (None, Some((error, (name, why)))) => {
            let (which, why) = (Some(name.clone()), why.clone());
            let message = format!("the command ended, but {error}");
            let failure = Failure::new(Exit::Lost, message);
            (Some(Loss::Told { which, why }), Err(failure))
        }
        (None, None) => (None, Ok(exit_code(ended))),
    };
    let end = match lost {
        None => End::Command(ended),
        Some(why) => {
            on_lost(job, env, &why, signals).await;
            End::Lost
        }
    };
    Turn { end, outcome }
}

fn exit_code(ended: Ended) -> ExitCode {
    match ended {
        Ended::Code(code) => code.into(),
        Ended::Signal(number) => by_signal(number).into(),
    }
}

/// Runs the command and returns when nothing is left of it.
async fn command(
    job: &RunJob,
    env: &Environment,
    held: &Held,
    signals: &mut Signals,
) -> Result<Outcome, Failure> {
    let fault = |error| cannot_run(&job.command[0], &error);
    let foreground = terminal::is_ours();
    // At the terminal, ^Z stops the command and not us; otherwise, us and not the command. Before
    // the command begins, so that it never runs while we are stopped.
    if !foreground {
        signals.listen_to_stop().map_err(fault)?;
    }
    // So that what was said does not mix with what the command says; but a terminal that was stopped
    // (^S) or a pipe without a reader must not block us.
    teller::finish(Some(TELLING_LIMIT));
    // Last of all: we may have been stopped since the lock was granted. The clock is read first: a stop after that only
    // makes the deadline earlier.
    let now = shim::boot_time();
    let valid_for = held.remaining();
    if valid_for.is_zero() {
        return Err(not_started(job, held));
    }
    let deadline = now.saturating_add(valid_for);
    let child = Child::start(&job.command, env, foreground, deadline).map_err(fault)?;
    // After it, so that it need not wait. Without a guard there is still the parent-death signal.
    let mut guard = Guard::over(child.group()).ok();
    let outcome = supervise::supervise(job, child, &mut guard, held, signals).await;
    if let (Ok(_), Some(guard)) = (&outcome, guard) {
        guard.dismiss();
    }
    outcome.map_err(|error| {
        Failure::new(
            Exit::Internal,
            format!("cannot wait for the command: {error}"),
        )
    })
}

/// That the lock was lost before the command began.
fn not_started(job: &RunJob, held: &Held) -> Failure {
    let (which, why) = match held.loss() {
        Some((which, why)) => (which, why.to_string()),
        None => (None, "it expired".into()),
    };
    let part = job.target.part(which.as_ref());
    let message = format!("{part} was lost before the command could be started: {why}");
    Failure::new(Exit::Lost, message)
}

fn want(job: &RunJob) -> Want<'_> {
    Want {
        target: &job.target,
        place: &job.place,
        claim: &job.claim,
        owner: owner::of_command(&job.command),
        holder: HolderProcess::This,
        renew: true,
        max_hold: job.max_hold,
        voice: job.voice,
    }
}

fn tell_release(job: &RunJob, released: &Result<(), Error>) {
    let lock = &job.target;
    match released {
        Ok(()) => job.voice.tell(&Event::Released { lock }),
        // The loss is reported elsewhere, with its reason.
        Err(error) if fault::loss(error).is_some() => {}
        Err(error) => {
            let why = &fault::not_released(error);
            job.voice.tell(&Event::NotReleased { lock, why });
        }
    }
}

/// Runs the command of `--on-lost`, and waits for it.
async fn on_lost(job: &RunJob, env: Environment, why: &Loss, signals: &mut Signals) {
    let Some(line) = &job.on_lost else { return };
    let env = env.with("FENCEPOST_REASON", why.word());
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
