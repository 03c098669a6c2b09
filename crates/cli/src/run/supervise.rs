//! Looks after the command while it runs: passes signals on, and stops it in time when the lock
//! cannot be kept.
//!
//! Nothing here may block: a thread that blocks cannot stop the command in time.

use std::io;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::unistd::Pid;
use tokio::time::sleep;

use super::child::Child;
use super::plan::{Plan, Situation, Step};
use crate::args::RunJob;
use crate::guard::Guard;
use crate::held::Held;
use crate::orphans;
use crate::signals::Signals;
use crate::voice::{Ended, Event, Loss};

/// How long something of the group that got KILL may still be seen. It is dead, but may not
/// have been reaped.
const DEAD_LIMIT: Duration = Duration::from_secs(1);
/// How often a group that got KILL is looked at, beside the moments when a child of ours ends.
const DEAD_LOOK: Duration = Duration::from_millis(5);

/// How it ended.
pub(super) struct Outcome {
    pub(super) ended: Ended,
    /// Why it was stopped, if the lock could not be kept.
    pub(super) lost: Option<Loss>,
}

/// What was done to the command so far.
#[derive(Default)]
struct Done {
    told: Option<Instant>,
    killed: Option<Instant>,
    ended: Option<Instant>,
    lost: Option<Loss>,
}

/// Returns when nothing is left of the command's process group.
pub(super) async fn supervise(
    job: &RunJob,
    mut child: Child,
    guard: &mut Option<Guard>,
    held: &Held,
    signals: &mut Signals,
) -> io::Result<Outcome> {
    let plan = Plan::new(job.grace);
    let began = Instant::now();
    let mut done = Done::default();
    loop {
        if let Some(ended) = child.ended()? {
            done.ended.get_or_insert_with(Instant::now);
            let given_up = done.killed.is_some_and(|at| at.elapsed() >= DEAD_LIMIT);
            if child.is_all_gone() || given_up {
                let lost = done.lost;
                return Ok(Outcome { ended, lost });
            }
        } else if child.stop_with_it() {
            wake_if_ours(&child, held);
        }
        let step = plan.next(done.situation(held));
        let nap = done.carry_out(step, &child, || why(job, held, began), job);
        tokio::select! {
            biased;
            signal = signals.next_or_child() => match signal {
                Some(Signal::SIGTSTP) => {
                    child.stop_with_us();
                    wake_if_ours(&child, held);
                }
                Some(signal) => child.signal(signal),
                None => reap_orphans(&mut child, guard.as_mut()),
            },
            () = held.lost(), if held.is_valid() => {}
            () = sleep(nap) => {}
        }
    }
}

/// Takes note of the ends of processes that became our children because their parents had ended, as
/// the first process of a container has to: otherwise the dead pile up.
fn reap_orphans(child: &mut Child, guard: Option<&mut Guard>) {
    let guard_id = guard.as_ref().map(|guard| guard.id());
    let mine = |pid: Pid| pid == child.group() || Some(pid) == guard_id;
    if orphans::reap(mine) == guard_id
        && let Some(guard) = guard
    {
        // The dead guard would hide those behind it.
        guard.take_note();
    }
}

/// Only while the lock is ours may a stopped command go on; otherwise it is killed as it is.
fn wake_if_ours(child: &Child, held: &Held) {
    if held.is_valid() {
        child.wake();
    }
}

impl Done {
    fn situation(&self, held: &Held) -> Situation {
        Situation {
            remaining: held.remaining(),
            told: self.told.map(|at| at.elapsed()),
            ended: self.ended.map(|at| at.elapsed()),
        }
    }

    /// Does it, and says how long to sleep after it.
    fn carry_out(
        &mut self,
        step: Step,
        child: &Child,
        why: impl Fn() -> Loss,
        job: &RunJob,
    ) -> Duration {
        match step {
            _ if self.killed.is_some() => return DEAD_LOOK,
            // Its leader is gone, and with it the process that could have used the grace.
            Step::Wait(_) if self.lost.is_some() && self.ended.is_some() => self.kill(child),
            Step::Wait(time) => return time,
            Step::StopLeftovers => self.stop(child),
            Step::Finish => self.kill(child),
            Step::Stop => {
                self.stop(child);
                self.lose(why(), job);
            }
            Step::Kill => {
                self.kill(child);
                self.lose(why(), job);
            }
        }
        Duration::ZERO
    }

    fn stop(&mut self, child: &Child) {
        child.ask_to_end();
        self.told = Some(Instant::now());
    }

    fn kill(&mut self, child: &Child) {
        child.signal(Signal::SIGKILL);
        self.killed = Some(Instant::now());
    }

    /// Always after the signal was sent.
    fn lose(&mut self, why: Loss, job: &RunJob) {
        if self.lost.is_some() {
            return;
        }
        self.lost = Some(why.clone());
        let lock = &job.target;
        job.voice.tell(&Event::Lost { lock, why });
    }
}

/// Why the lock cannot be kept.
fn why(job: &RunJob, held: &Held, began: Instant) -> Loss {
    if let Some((which, why)) = held.loss() {
        return Loss::Told { which, why };
    }
    let end = began.elapsed() + held.remaining();
    // The command began a moment after the lock was ours.
    match job.max_hold {
        Some(time) if end + job.grace >= time => Loss::MaxHold,
        _ => Loss::NotRenewed,
    }
}

/// Waits for a command that needs no lock, and kills it after `limit`. Whether that was needed.
pub(super) async fn without_lock(
    mut child: Child,
    signals: &mut Signals,
    limit: Duration,
) -> io::Result<bool> {
    let began = Instant::now();
    let mut killed = false;
    while child.ended()?.is_none() {
        let left = limit.saturating_sub(began.elapsed());
        if left.is_zero() {
            child.signal(Signal::SIGKILL);
            killed = true;
        }
        tokio::select! {
            signal = signals.next_or_child() => {
                match signal {
                    Some(signal) => child.signal(signal),
                    None => reap_orphans(&mut child, None),
                }
            }
            () = sleep(left.max(DEAD_LOOK)) => {}
        }
    }
    Ok(killed)
}
