//! [`Server`]: one simulated node: the library's own state machine, a process that can die and
//! stand still, and clocks of its own.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use fencepost::{LockName, NodeError};
use fencepost_core::lock::{Command, LockState, Now, Reply};
use fencepost_core::ticket::Wake;

use crate::clock::SkewedClock;
use crate::net::Packet;

/// What a command came to, and whose turn it is by that.
type Done = (Result<Reply, NodeError>, Vec<Wake>);

/// One simulated node.
pub(crate) struct Server {
    pub(crate) clock: Arc<SkewedClock>,
    /// The number of the process: a connection never outlives it.
    pub(crate) process: u64,
    pub(crate) is_up: bool,
    pub(crate) is_paused: bool,
    /// What arrived while it stood still.
    pub(crate) inbox: VecDeque<Packet>,
    locks: BTreeMap<String, LockState>,
    /// Values that it was asked to refuse, and until when by its own clock: written down a second
    /// time, to see whether it does.
    refused: BTreeMap<String, Duration>,
    /// Until then, by its own clock, it may have forgotten locks.
    quarantine_until: Duration,
}

impl Server {
    pub(crate) fn new(clock: Arc<SkewedClock>) -> Self {
        Self {
            clock,
            process: 0,
            is_up: true,
            is_paused: false,
            inbox: VecDeque::new(),
            locks: BTreeMap::new(),
            refused: BTreeMap::new(),
            quarantine_until: Duration::ZERO,
        }
    }

    pub(crate) fn crash(&mut self) {
        self.is_up = false;
        self.process += 1;
        self.inbox.clear();
    }

    pub(crate) fn restart(&mut self) {
        self.is_up = true;
    }

    /// Comes back without its data, and does not vote for that long.
    pub(crate) fn restart_empty(&mut self, quarantine: Duration) {
        self.is_up = true;
        self.locks.clear();
        self.refused.clear();
        self.quarantine_until = self.clock.monotonic() + quarantine;
    }

    /// Carries out one command, as the Redis node does: in quarantine it learns who holds what and
    /// lets go, but does not vote.
    pub(crate) fn perform(&mut self, name: &str, command: &Command) -> Done {
        let now = Now {
            elapsed: self.clock.monotonic(),
            wall_micros: self.clock.wall(),
        };
        let left = self.quarantine_until.saturating_sub(now.elapsed);
        let in_quarantine = !left.is_zero();
        let is_vote = matches!(
            command,
            Command::Acquire { .. }
                | Command::Share { .. }
                | Command::Steal { .. }
                | Command::LookForTombstone { .. }
                | Command::Raise { .. }
        );
        if in_quarantine && is_vote {
            return (Err(NodeError::Quarantined(left)), Vec::new());
        }
        if let Command::Release {
            value,
            tombstone: Some(time),
            ..
        } = command
        {
            let value = value.as_str().to_owned();
            self.refused.insert(value, now.elapsed + *time);
        }
        let mut woken = Vec::new();
        let reply = self.apply(name, command, now, |wake| woken.push(wake));
        let answer = match reply {
            Reply::Extended | Reply::Repaired | Reply::Queue(_) if in_quarantine => {
                Err(NodeError::Quarantined(left))
            }
            reply => Ok(reply),
        };
        (answer, woken)
    }

    /// A slot of a semaphore has its queue elsewhere, as its keys have on Redis.
    fn apply(&mut self, name: &str, command: &Command, now: Now, wake: impl FnMut(Wake)) -> Reply {
        let slot = LockName::new(name).ok();
        let slot = slot.and_then(|name| Some((name.slot()?, name.queue().to_string())));
        let Some((slot, queue)) = slot else {
            let lock = self.locks.entry(name.to_owned()).or_default();
            return lock.apply_and_wake(command, now, wake);
        };
        let mut whole = self.locks.remove(&queue).unwrap_or_default();
        let lock = self.locks.entry(name.to_owned()).or_default();
        let reply = lock.apply_to_slot(&mut whole, slot, command, now, wake);
        self.locks.insert(queue, whole);
        reply
    }

    /// Whether the lock is held by a value that the node was asked to refuse.
    pub(crate) fn is_held_by_a_ghost(&self, name: &str) -> bool {
        let mut holders = self
            .locks
            .get(name)
            .into_iter()
            .flat_map(LockState::holders);
        holders.any(|value| {
            let until = self.refused.get(value.as_str());
            until.is_some_and(|until| *until > self.clock.monotonic())
        })
    }

    /// The locks that somebody holds, and the lines in which somebody waits.
    pub(crate) fn left(&self) -> Vec<String> {
        let now = Now {
            elapsed: self.clock.monotonic(),
            wall_micros: self.clock.wall(),
        };
        let mut left = Vec::new();
        for (name, lock) in &self.locks {
            if let Reply::Snapshot(snapshot) = lock.clone().apply(&Command::Inspect, now) {
                left.extend(snapshot.holder.map(|_| name.clone()));
                left.extend((snapshot.waiting > 0).then(|| format!("{name}:queue")));
            }
        }
        left
    }
}
