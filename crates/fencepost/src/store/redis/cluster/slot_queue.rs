//! [`SlotQueues`]: where calls wait while it is being found out who has their slot, and whether it is complete.
//!
//! They go out in the order in which they came, before any that comes later, and whether or not their callers are
//! being polled; as at the [gate](crate::store::redis::connection::gate) of one server.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::error::NodeError;
use crate::store::redis::encoding::keys::Keys;
use fencepost_core::lock::{Command, Reply};

/// How many calls may wait for one slot.
const MOST_WAITING: usize = 16 * 1024;

/// A queue for each slot for which a call waits.
#[derive(Default)]
pub(super) struct SlotQueues(Mutex<HashMap<u16, VecDeque<Waiting>>>);

/// One call.
pub(super) struct Waiting {
    pub(super) keys: Keys,
    pub(super) command: Command,
    pub(super) reply: oneshot::Sender<Result<Reply, NodeError>>,
}

/// How a call goes on.
pub(super) enum Entry {
    Straight(Keys, Command),
    Wait {
        reply: oneshot::Receiver<Result<Reply, NodeError>>,
        /// Nobody serves this queue yet: whoever is first has to see to it.
        is_first: bool,
    },
}

impl SlotQueues {
    /// A call goes straight if nobody waits before it and the slot is ready.
    pub(super) fn enter(
        &self,
        slot: u16,
        keys: Keys,
        command: Command,
        is_ready: impl Fn() -> bool,
    ) -> Entry {
        let mut queues = self.queues();
        let is_first = !queues.contains_key(&slot);
        if is_first && is_ready() {
            return Entry::Straight(keys, command);
        }
        let (sender, reply) = oneshot::channel();
        let queue = queues.entry(slot).or_default();
        if queue.len() >= MOST_WAITING {
            queue.retain(|call| !call.reply.is_closed());
        }
        match queue.len() < MOST_WAITING {
            true => queue.push_back(Waiting {
                keys,
                command,
                reply: sender,
            }),
            false => {
                let why = format!("{MOST_WAITING} calls wait for slot {slot} already");
                let _ = sender.send(Err(NodeError::Unreachable(why)));
            }
        }
        Entry::Wait { reply, is_first }
    }

    /// The next call that waits for a slot. With `None` the queue is over.
    pub(super) fn next(&self, slot: u16) -> Option<Waiting> {
        let mut queues = self.queues();
        let next = queues.get_mut(&slot)?.pop_front();
        if next.is_none() {
            queues.remove(&slot);
        }
        next
    }

    fn queues(&self) -> MutexGuard<'_, HashMap<u16, VecDeque<Waiting>>> {
        // A panic while it was locked cannot have left it half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
