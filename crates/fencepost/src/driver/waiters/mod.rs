//! Waiting: tickets, wake-ups, and looking now and then for what was missed.
//!
//! | file | what it is |
//! | --- | --- |
//! | this one | the room in which a client's waiters sit |
//! | `line` | the waiters of one lock: when they look, and who acts |
//! | `waiters` | where each of them stands |
//! | `outlook` | what the nodes' answers mean; pure |
//! | `patience` | how long to go on |
//!
//! Safety never depends on any of this: who is called makes an attempt like everybody else.
//!
//! A waiter takes its place on all nodes, and keeps it by asking again within the lease of its
//! ticket. A node that is given a lock back tells the first in line, and the second, who acts only
//! if the lock is still free a moment later. The first makes its attempt as soon as a majority of
//! the nodes has called it. If the lock comes from its own client, the attempt goes right behind the
//! release; if somebody waits for that release, the two are written together, and the nodes tell
//! nobody of that client. Whoever hears nothing looks by itself: the first in
//! line when the holder's time is up, everybody once a second. Whoever hears fewer nodes than a
//! majority gives its place up until it hears more.

mod budget;
mod queue;
mod waiters;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use crate::driver::coordinator::Coordinator;
use crate::error::{NodeError, NodeOutcome};
use crate::store::{Listener, Notice, WakeSink};
pub(crate) use budget::RetryBudget;
use fencepost_core::name::LockName;
use fencepost_core::ticket::{ClientId, Ticket, TicketId, TicketMode};
use fencepost_core::value::Owner;
use fencepost_core::wait::view::QueueView;
use queue::LockQueue;
pub(crate) use queue::{Call, News};

/// How a wait goes on: who holds the lock, how long still, and the place in line.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// Who holds the lock on most nodes. `None` while it passes from one to the next.
    pub holder: Option<Owner>,
    /// How long still, if nothing happens before. `None` when it has no end.
    pub remaining: Option<Duration>,
    /// The place in line: 1 is next.
    pub place: Option<usize>,
    /// Whether a majority has agreed on the place: whoever comes later is behind.
    pub is_settled: bool,
}

impl Progress {
    fn new(outlook: &QueueView, ticket: usize, mode: TicketMode, is_settled: bool) -> Self {
        let holder = outlook.holder();
        Self {
            holder: holder.map(|holder| holder.value.owner()),
            remaining: holder.and_then(|_| outlook.opens_in(ticket, mode)),
            place: outlook.place(ticket),
            is_settled,
        }
    }
}

/// The room in which all waiters of one client sit.
pub(crate) struct WaitRegistry {
    coordinator: Arc<Coordinator>,
    client: ClientId,
    owner: Owner,
    lists: Mutex<Lists>,
    /// Made by the first waiter: a client that never waits needs no ears.
    ears: OnceLock<Vec<Listener>>,
}

#[derive(Default)]
struct Lists {
    /// In order, so that all of them are told in the same order every time.
    lines: BTreeMap<LockName, Arc<LockQueue>>,
    /// Which waiter is in which line.
    seats: HashMap<u64, Arc<LockQueue>>,
    next_sequence: u64,
}

impl WaitRegistry {
    pub(crate) fn new(coordinator: Arc<Coordinator>, client: ClientId, owner: Owner) -> Arc<Self> {
        Arc::new(Self {
            coordinator,
            client,
            owner,
            lists: Mutex::default(),
            ears: OnceLock::new(),
        })
    }

    fn lists(&self) -> MutexGuard<'_, Lists> {
        // A panic while it was locked cannot have left it half changed.
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a seat and gets in line. Only one that is watched is told how it goes on.
    pub(crate) fn join(
        self: &Arc<Self>,
        name: &LockName,
        mode: TicketMode,
        is_watched: bool,
    ) -> WaiterGuard {
        let is_deaf = self.is_deaf();
        let mut lists = self.lists();
        let sequence = lists.next_sequence;
        lists.next_sequence += 1;
        let line = lists.lines.get(name).cloned().unwrap_or_else(|| {
            let (name, client) = (name.clone(), self.client.clone());
            let line = LockQueue::new(name.clone(), client, Arc::clone(&self.coordinator), is_deaf);
            lists.lines.insert(name, Arc::clone(&line));
            let task = Arc::clone(&line).run(Arc::downgrade(self));
            self.coordinator.spawn(task);
            line
        });
        lists.seats.insert(sequence, Arc::clone(&line));
        let id = TicketId::of_mode(&self.client, sequence, mode, &self.owner);
        line.join(sequence, id.clone(), is_watched);
        drop(lists);
        WaiterGuard {
            room: Arc::clone(self),
            line,
            sequence,
            id,
        }
    }

    /// Whether fewer nodes than a majority can tell us anything.
    fn is_deaf(self: &Arc<Self>) -> bool {
        let ears = self.ears.get_or_init(|| {
            let nodes = self.coordinator.nodes().iter().enumerate();
            let listen = |(index, node): (usize, &Arc<dyn crate::store::Node>)| {
                let room = Arc::downgrade(self);
                node.listen(&self.client, Arc::new(NodeEar { room, index }))
            };
            nodes.map(listen).collect()
        });
        let hearing = ears.iter().filter(|ear| !ear.is_deaf()).count();
        hearing < self.coordinator.quorum.needed()
    }

    /// Forgets a line in which nobody waits. False if somebody does, after all.
    fn close(&self, line: &Arc<LockQueue>) -> bool {
        let mut lists = self.lists();
        let is_empty = line.is_empty();
        if is_empty {
            lists.lines.remove(&line.name);
        }
        is_empty
    }

    /// Whose waiters sit here.
    pub(crate) fn client(&self) -> &ClientId {
        &self.client
    }

    /// Whether somebody of ours sits in that line.
    pub(crate) fn is_waited_for(&self, name: &LockName) -> bool {
        self.line(name).is_some_and(|line| line.is_waited_in())
    }

    /// Who of ours is next, if one of ours gives the lock back: it follows the release at once, which
    /// saves the way of the nodes' call.
    pub(crate) fn follower(&self, name: &LockName) -> Option<TicketId> {
        self.line(name)?.follower()
    }

    /// The release is on its way to the nodes, and its follower may go.
    pub(crate) fn follow(&self, name: &LockName, follower: &TicketId) {
        if let Some(line) = self.line(name) {
            line.follow(follower);
        }
    }

    fn line(&self, name: &LockName) -> Option<Arc<LockQueue>> {
        self.lists().lines.get(name).cloned()
    }

    fn hear(&self, node: usize, notice: Notice) {
        match notice {
            Notice::Wake(wake) => {
                let sequence = wake.ticket.sequence();
                let found = sequence.and_then(|n| Some((n, self.lists().seats.get(&n).cloned()?)));
                if let Some((sequence, line)) = found {
                    line.hear(node, sequence, &wake);
                }
            }
            Notice::Freed(name) => {
                if let Some(line) = self.line(&name) {
                    line.may_be_free(node);
                }
            }
            Notice::Listening => {
                let lines: Vec<_> = self.lists().lines.values().cloned().collect();
                lines.iter().for_each(|line| line.may_have_missed(node));
            }
        }
    }
}

/// What hears one node out for a room.
struct NodeEar {
    room: Weak<WaitRegistry>,
    index: usize,
}

impl WakeSink for NodeEar {
    fn hear(&self, notice: Notice) {
        if let Some(room) = self.room.upgrade() {
            room.hear(self.index, notice);
        }
    }
}

/// A waiter's seat. Dropped, it takes its ticket out of the line on all nodes.
pub(crate) struct WaiterGuard {
    room: Arc<WaitRegistry>,
    line: Arc<LockQueue>,
    sequence: u64,
    id: TicketId,
}

impl WaiterGuard {
    /// Waits for what there is to do next.
    pub(crate) async fn call(&self) -> Call {
        self.line.call(self.sequence).await
    }

    /// From now on hears those, too, who give the lock back without knowing of the line.
    pub(crate) fn overhear(&self) {
        self.line.overhear();
    }

    /// The waiter makes an attempt without having been called.
    pub(crate) fn stand_up(&self) {
        self.line.stand_up(self.sequence);
    }

    /// The attempt that was called for has failed.
    pub(crate) fn sit_down(&self) {
        self.line.sit_down(self.sequence);
    }

    /// The ticket, to be shown by an attempt.
    pub(crate) fn ticket(&self) -> Option<Ticket> {
        self.line.ticket(self.sequence)
    }

    /// The lock is taken. What is left of the ticket goes with the lock.
    pub(crate) fn served(self) {
        self.vacate();
    }

    fn vacate(&self) -> bool {
        self.room.lists().seats.remove(&self.sequence);
        self.line.remove(self.sequence)
    }
}

impl Drop for WaiterGuard {
    fn drop(&mut self) {
        if self.vacate() {
            let name = self.line.name.clone();
            self.room.coordinator.leave(name, vec![self.id.clone()]);
        }
    }
}

impl fmt::Debug for WaiterGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaiterGuard").field("id", &self.id).finish()
    }
}

fn outcome<T>(answer: &Result<T, NodeError>) -> NodeOutcome {
    match answer {
        Ok(_) => NodeOutcome::Agreed,
        Err(error) => NodeOutcome::Failed(error.clone()),
    }
}
