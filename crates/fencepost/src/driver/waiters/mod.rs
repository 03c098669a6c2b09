//! The waiters of a client: who waits for which name, and one task per contended name.
//!
//! | file | what it is |
//! | --- | --- |
//! | this one | the registry of all waiters of a client |
//! | `task` | carries out what the waiters of one name decided |
//! | `budget` | how long a request goes on |
//!
//! The decisions are [`fencepost_core::wait`]'s, and safety depends on none of them.

mod budget;
mod task;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, SystemTime};

use crate::driver::coordinator::Coordinator;
use crate::driver::identity::OnBehalf;
use crate::store::{Listener, Node, Notice, WakeSink};
pub(crate) use budget::RetryBudget;
use fencepost_core::lease_id::LeaseId;
use fencepost_core::name::LockName;
use fencepost_core::owner::Owner;
use fencepost_core::ticket::{ClientId, Ticket, TicketId, TicketMode};
use fencepost_core::token::FencingToken;
use fencepost_core::wait::crowd::Crowds;
use fencepost_core::wait::queue::QueueEvent;
use task::QueueTask;
pub(crate) use task::{Next, Update};

/// Progress of a wait: the holder, its remaining time, and the place in the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// Who holds the lock on a majority of the nodes. `None` while it passes from one to the next.
    pub holder: Option<Owner>,
    /// The clients that hold it on some nodes each, in node order, if none is known to hold it on a
    /// majority.
    pub split: Vec<Owner>,
    /// The holder's own token.
    pub token: Option<FencingToken>,
    /// Remaining time of the hold unless it is renewed. `None` without an expiry.
    pub remaining: Option<Duration>,
    /// The place in the queue: 1 is next.
    pub place: Option<usize>,
    /// Whether a majority has agreed on the place: later waiters are behind.
    pub is_settled: bool,
}

impl Progress {
    /// Approximately since when it is held: see [`HolderStatus::since`](crate::HolderStatus::since).
    #[must_use]
    pub fn since(&self) -> Option<SystemTime> {
        self.token?.proposed_at(SystemTime::now())
    }
}

/// All waiters of one client.
pub(crate) struct WaitRegistry {
    coordinator: Arc<Coordinator>,
    client: ClientId,
    owner: Owner,
    lists: Mutex<Lists>,
    crowds: Mutex<Crowds>,
    /// There are some: nearly always there are not.
    is_any_crowded: AtomicBool,
    /// Made by the first waiter: a client that never waits listens to no node.
    listeners: OnceLock<Vec<Listener>>,
    /// What receives the notices of each node.
    sinks: OnceLock<Vec<Arc<dyn WakeSink>>>,
}

#[derive(Default)]
struct Lists {
    /// In order, so that all of them are told in the same order every time.
    queues: BTreeMap<LockName, Arc<QueueTask>>,
    /// Which waiter is in which queue.
    waiters: HashMap<u64, Arc<QueueTask>>,
    next_sequence: u64,
}

impl WaitRegistry {
    pub(crate) fn new(coordinator: Arc<Coordinator>, client: ClientId, owner: Owner) -> Arc<Self> {
        Arc::new(Self {
            coordinator,
            client,
            owner,
            lists: Mutex::default(),
            crowds: Mutex::default(),
            is_any_crowded: AtomicBool::new(false),
            listeners: OnceLock::new(),
            sinks: OnceLock::new(),
        })
    }

    fn lists(&self) -> MutexGuard<'_, Lists> {
        // A panic while it was locked cannot have left it half changed.
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues for a lock. Only a waiter that is watched gets updates.
    pub(crate) fn join(
        self: &Arc<Self>,
        name: &LockName,
        mode: TicketMode,
        is_watched: bool,
        on_behalf: Option<&OnBehalf>,
    ) -> WaiterGuard {
        let must_poll = self.hears_too_few();
        let mut lists = self.lists();
        let sequence = match on_behalf {
            Some(on_behalf) => place_of(on_behalf.of.lease, name),
            None => {
                let next = lists.next_sequence;
                lists.next_sequence += 1;
                next
            }
        };
        let queue = lists.queues.get(name).cloned().unwrap_or_else(|| {
            let (client, coordinator) = (self.client.clone(), Arc::clone(&self.coordinator));
            let sinks = self.sinks();
            let queue = QueueTask::new(name.clone(), client, coordinator, sinks, must_poll);
            lists.queues.insert(name.clone(), Arc::clone(&queue));
            let task = Arc::clone(&queue).run(Arc::downgrade(self));
            self.coordinator.spawn(task);
            queue
        });
        lists.waiters.insert(sequence, Arc::clone(&queue));
        let owner = on_behalf.map_or(&self.owner, |on_behalf| &on_behalf.owner);
        let ticket = TicketId::of_mode(&self.client, sequence, mode, owner);
        queue.join(sequence, ticket, is_watched);
        drop(lists);
        WaiterGuard {
            registry: Arc::clone(self),
            queue,
            sequence,
            keeps_place: on_behalf.is_some_and(|on_behalf| on_behalf.keeps_place),
        }
    }

    /// Whether fewer nodes than a majority can wake us.
    fn hears_too_few(self: &Arc<Self>) -> bool {
        let listeners = self.listeners.get_or_init(|| {
            let nodes = self.coordinator.nodes().iter().zip(self.sinks());
            let listen = |(node, sink): (&Arc<dyn Node>, &Arc<dyn WakeSink>)| {
                node.listen(&self.client, Arc::clone(sink))
            };
            nodes.map(listen).collect()
        });
        let hearing = listeners.iter().filter(|listener| !listener.is_deaf());
        hearing.count() < self.coordinator.quorum.needed()
    }

    fn sinks(self: &Arc<Self>) -> &[Arc<dyn WakeSink>] {
        self.sinks.get_or_init(|| {
            let sink = |node| {
                let registry = Arc::downgrade(self);
                Arc::new(NodeSink { registry, node }) as Arc<dyn WakeSink>
            };
            (0..self.coordinator.nodes().len()).map(sink).collect()
        })
    }

    /// Forgets a queue without waiters. False if there is one after all.
    fn close(&self, queue: &Arc<QueueTask>) -> bool {
        let mut lists = self.lists();
        let is_empty = queue.is_empty();
        if is_empty {
            lists.queues.remove(&queue.name);
        }
        is_empty
    }

    /// Whose waiters these are.
    pub(crate) fn client(&self) -> &ClientId {
        &self.client
    }

    /// Whether this client waits for that lock.
    pub(crate) fn is_waited_for(&self, name: &LockName) -> bool {
        self.queue(name).is_some_and(|queue| queue.is_waited_in())
    }

    /// Whether a request for that lock will have to wait, as far as can be told.
    pub(crate) fn expects_to_wait(&self, name: &LockName) -> bool {
        self.is_any_crowded.load(Ordering::Relaxed)
            && self
                .crowds()
                .expects_to_wait(name, self.coordinator.clock.now())
    }

    /// A request for that lock had to wait.
    pub(crate) fn had_to_wait(&self, name: &LockName) {
        self.crowds()
            .had_to_wait(name, self.coordinator.clock.now());
        self.is_any_crowded.store(true, Ordering::Relaxed);
    }

    /// A request found that lock free.
    pub(crate) fn found_free(&self, name: &LockName) {
        if self.is_any_crowded.load(Ordering::Relaxed) {
            let mut crowds = self.crowds();
            crowds.found_free(name);
            self.is_any_crowded
                .store(!crowds.is_empty(), Ordering::Relaxed);
        }
    }

    fn crowds(&self) -> MutexGuard<'_, Crowds> {
        // A panic while it was locked cannot have left it half changed.
        self.crowds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The waiter of ours to which a release of ours hands the lock off: its attempt is sent right
    /// behind the release, without waiting for a wake-up from the nodes.
    pub(crate) fn follower(&self, name: &LockName) -> Option<TicketId> {
        self.queue(&name.queue())?.hand_off_to()
    }

    /// The release has been sent to the nodes, and that waiter may make its attempt.
    pub(crate) fn follow(&self, name: &LockName, follower: &TicketId) {
        if let Some(queue) = self.queue(&name.queue()) {
            let (to, slot) = (follower.clone(), name.slot());
            queue.on(QueueEvent::HandedOff { to, slot });
        }
    }

    fn queue(&self, name: &LockName) -> Option<Arc<QueueTask>> {
        self.lists().queues.get(name).cloned()
    }

    fn notify(&self, node: usize, notice: Notice) {
        match notice {
            Notice::Wake(wake) => {
                let sequence = wake.ticket.sequence();
                let found =
                    sequence.and_then(|n| Some((n, self.lists().waiters.get(&n).cloned()?)));
                if let Some((waiter, queue)) = found {
                    queue.on(QueueEvent::Woken { node, waiter, wake });
                }
            }
            Notice::Freed(name) => {
                if let Some(queue) = self.queue(&name) {
                    queue.on(QueueEvent::Freed { node });
                }
            }
            Notice::Changed(name) => {
                if let Some(queue) = self.queue(&name) {
                    queue.on(QueueEvent::Changed { node });
                }
            }
            Notice::Listening => {
                let queues: Vec<_> = self.lists().queues.values().cloned().collect();
                for queue in queues {
                    queue.on(QueueEvent::MayHaveMissed { node });
                }
            }
        }
    }
}

/// Receives one node's notices for all waiters of a client.
struct NodeSink {
    registry: Weak<WaitRegistry>,
    node: usize,
}

impl WakeSink for NodeSink {
    fn notify(&self, notice: Notice) {
        if let Some(registry) = self.registry.upgrade() {
            registry.notify(self.node, notice);
        }
    }
}

/// One waiter. Dropped, it takes its ticket out of the queue on all nodes.
pub(crate) struct WaiterGuard {
    registry: Arc<WaitRegistry>,
    queue: Arc<QueueTask>,
    sequence: u64,
    /// Whether the ticket stays for one ticket lease when the waiter goes.
    keeps_place: bool,
}

/// The number of the ticket that waits under this lease id for this name: the same at every replica,
/// so that the same acquire takes the same place wherever it is sent again.
pub(crate) fn place_of(lease: LeaseId, name: &LockName) -> u64 {
    // FNV-1a. The lease id is random, and a secret of its client's; the name tells its locks apart.
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    let hash = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(PRIME);
    let bits = lease.get();
    name.as_str().bytes().fold(OFFSET, hash) ^ (bits >> 64) as u64 ^ bits as u64
}

impl WaiterGuard {
    /// Waits for what there is to do next.
    pub(crate) async fn next(&self) -> Next {
        self.queue.next(self.sequence).await
    }

    /// Also listens for releases by clients of other libraries, which know no queue.
    pub(crate) fn hear_foreign_releases(&self) {
        self.queue.listen_for_others();
    }

    /// The waiter makes an attempt without having been woken.
    pub(crate) fn attempt_started(&self) {
        self.queue.on(QueueEvent::AttemptStarted(self.sequence));
    }

    /// Its attempt has failed.
    pub(crate) fn attempt_failed(&self) {
        self.queue.attempt_failed(self.sequence);
    }

    /// All slots are taken.
    pub(crate) fn all_taken(&self) {
        self.queue.all_taken(self.sequence);
    }

    /// The slots to try first: it was told that they were released.
    pub(crate) fn take_freed(&self) -> Vec<usize> {
        self.queue.take_freed(self.sequence)
    }

    /// The ticket, to be shown by an attempt.
    pub(crate) fn ticket(&self) -> Option<Ticket> {
        self.queue.ticket(self.sequence)
    }

    /// Whether the lock was held, or others were before it.
    pub(crate) fn is_held_up(&self) -> bool {
        self.queue.is_held_up(self.sequence)
    }

    /// The lock is acquired. What is left of the ticket goes with the lock.
    pub(crate) fn served(self) {
        self.queue.served(self.sequence);
    }
}

impl Drop for WaiterGuard {
    fn drop(&mut self) {
        self.registry.lists().waiters.remove(&self.sequence);
        match self.keeps_place {
            // What is left on the nodes ends with the ticket's lease.
            true => self.queue.paused(self.sequence),
            // Nothing is left to take out of the queue once it was served.
            false => self.queue.left(self.sequence),
        }
    }
}

impl fmt::Debug for WaiterGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaiterGuard")
            .field("lock", &self.queue.name)
            .field("sequence", &self.sequence)
            .finish()
    }
}
