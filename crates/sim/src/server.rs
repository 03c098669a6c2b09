//! [`Server`]: one simulated node: the library's own state machine, a process that can die and
//! stand still, and clocks of its own.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use fencepost::LockName;
use fencepost_core::lock::plain::PlainAcquire;
use fencepost_core::lock::{Command, Holder, LockState, MAX_SKEW, Now, Reply};
use fencepost_core::quorum::membership::{Marker, Sight};
use fencepost_core::ticket::Wake;

use crate::clock::SkewedClock;
use crate::member::run_id;
use crate::net::{Done, Packet, Pair, Path};

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
    /// To which cluster it belongs, and which incarnation of its data this is.
    marker: Option<Marker>,
    /// What it says of its history before the last change of role.
    history: String,
    /// Whether it says that every write is on disk before it is answered.
    syncs: bool,
    /// What `SET` answered where the commands behind it have not arrived, by connection and command.
    begun: BTreeMap<(Pair, u64), Option<Holder>>,
    /// The connections that have read the marker and are told of its next change, each with the process that
    /// it leads to.
    pub(crate) watched_by: BTreeMap<Pair, (u64, u64)>,
}

/// A copy of a node's data.
pub(crate) struct Data {
    locks: BTreeMap<String, LockState>,
    marker: Option<Marker>,
}

impl Server {
    pub(crate) fn new(clock: Arc<SkewedClock>, marker: Option<Marker>, syncs: bool) -> Self {
        Self {
            clock,
            process: 0,
            is_up: true,
            is_paused: false,
            inbox: VecDeque::new(),
            locks: BTreeMap::new(),
            refused: BTreeMap::new(),
            marker,
            history: String::new(),
            syncs,
            begun: BTreeMap::new(),
            watched_by: BTreeMap::new(),
        }
    }

    pub(crate) fn crash(&mut self) {
        self.is_up = false;
        self.process += 1;
        self.inbox.clear();
        self.begun.clear();
        self.watched_by.clear();
    }

    pub(crate) fn restart(&mut self) {
        self.is_up = true;
    }

    /// Its data as they are now.
    pub(crate) fn copy(&self) -> Data {
        Data {
            locks: self.locks.clone(),
            marker: self.marker.clone(),
        }
    }

    /// It has these data instead of its own; none at all if there are none.
    pub(crate) fn replace_data(&mut self, data: Option<Data>) {
        self.refused.clear();
        (self.locks, self.marker) = match data {
            Some(Data { locks, marker }) => (locks, marker),
            None => (BTreeMap::new(), None),
        };
    }

    /// Its data came from elsewhere, and it says so.
    pub(crate) fn begin_new_history(&mut self) {
        self.history = format!("{}+", self.history);
    }

    pub(crate) fn marker(&self) -> Option<Marker> {
        self.marker.clone()
    }

    pub(crate) fn set_marker(&mut self, marker: Option<Marker>) {
        self.marker = marker;
    }

    /// What it says of itself.
    pub(crate) fn sight(&self) -> Sight {
        Sight {
            run_id: run_id(self.process),
            history: self.history.clone(),
            now_us: self.clock.wall(),
            syncs: Some(self.syncs),
            grace: Duration::ZERO,
        }
    }

    /// Carries out one command, and says whose turn it is by that. Whether it is a vote is for the client to
    /// know.
    pub(crate) fn perform(&mut self, name: &str, command: &Command) -> (Reply, Vec<Wake>) {
        let now = self.now();
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
        (reply, woken)
    }

    fn now(&self) -> Now {
        Now {
            elapsed: self.clock.monotonic(),
            wall_micros: self.clock.wall(),
        }
    }

    /// Whether plain commands may be used for that: a script bounds how far ahead a token may be.
    pub(crate) fn suits(&self, plain: &PlainAcquire<'_>) -> bool {
        let ahead = MAX_SKEW.as_micros() as u64;
        plain.proposed.get() <= self.clock.wall().saturating_add(ahead)
    }

    /// Carries out an attempt's plain commands, or some of them.
    pub(crate) fn perform_plain(
        &mut self,
        of: (Pair, u64),
        name: &str,
        plain: &PlainAcquire<'_>,
        path: Path,
    ) -> (Done, Vec<Wake>) {
        if path == Path::Undo {
            let (_, woken) = self.perform(name, &plain.undo());
            return (Done::GoOn(Path::Script), woken);
        }
        if path != Path::Rest {
            let now = self.clock.monotonic();
            let lock = self.locks.entry(name.to_owned()).or_default();
            let holder = lock.set_if_free(plain, now);
            self.begun.insert(of, holder);
        }
        let done = match path {
            Path::Set => Done::Nothing,
            _ => self.follow_set(of, name, plain),
        };
        (done, Vec::new())
    }

    /// The commands behind the first one.
    fn follow_set(&mut self, of: (Pair, u64), name: &str, plain: &PlainAcquire<'_>) -> Done {
        let Some(holder) = self.begun.remove(&of) else {
            return Done::Nothing;
        };
        let queue = LockName::new(name).map(|name| name.queue().to_string());
        let queue = queue.ok().and_then(|queue| self.locks.get(&queue));
        let head = queue.and_then(LockState::head).cloned();
        let lock = self.locks.entry(name.to_owned()).or_default();
        let verdict = lock.follow_set(plain, holder.as_ref(), head.as_ref());
        match plain.reply(verdict, holder) {
            Some(reply) => Done::Replied(reply),
            None if verdict.is_undone() => Done::GoOn(Path::Undo),
            None => Done::GoOn(Path::Script),
        }
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
        let now = self.now();
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
