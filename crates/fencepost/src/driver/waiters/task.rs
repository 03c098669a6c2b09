//! [`QueueTask`]: carries out what the waiters of one lock decided. It sends, sleeps and wakes; the
//! [`LockQueue`] decides.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use tokio::sync::Notify;
use tokio::time::sleep;

use super::{Progress, WaitRegistry};
use crate::driver::coordinator::{Coordinator, Queueing};
use crate::error::{Error, NodeOutcome};
use crate::store::{Listener, WakeSink};
use fencepost_core::lock::Command;
use fencepost_core::name::LockName;
use fencepost_core::ticket::{ClientId, Ticket, TicketId, TicketNumber};
use fencepost_core::wait::queue::{LockQueue, QueueAction, QueueEvent, WaiterId};

/// The waiters of one client for one lock, and the task that looks for them.
pub(super) struct QueueTask {
    pub(super) name: LockName,
    coordinator: Arc<Coordinator>,
    /// What receives the notices of each node.
    sinks: Vec<Arc<dyn WakeSink>>,
    /// Notifies of releases by clients of other libraries, which know no queue; if a waiter wants that.
    listeners: OnceLock<Vec<Listener>>,
    /// For the nodes that want to know who waits where.
    _attending: Vec<Listener>,
    state: Mutex<State>,
    /// The task has to look earlier, or to end.
    nudge: Notify,
}

struct State {
    queue: LockQueue,
    /// In order, so that they are notified in the same order every time.
    mailboxes: BTreeMap<WaiterId, Mailbox>,
}

/// What one waiter has not received yet.
#[derive(Default)]
struct Mailbox {
    update: Option<Update>,
    notify: Arc<Notify>,
}

/// What a waiter learns while it waits.
#[derive(Clone, Debug)]
pub(crate) enum Update {
    /// How it stands.
    Progress(Progress),
    /// Too few nodes could be asked.
    NoQuorum(Error),
}

/// What a waiter is to do.
#[derive(Debug)]
pub(crate) enum Next {
    /// Try to take the lock.
    Attempt,
    /// Take note, and wait on.
    Update(Update),
}

/// A look that was begun.
enum Look {
    Showing(Queueing),
    Inspecting,
}

impl QueueTask {
    pub(super) fn new(
        name: LockName,
        client: ClientId,
        coordinator: Arc<Coordinator>,
        sinks: &[Arc<dyn WakeSink>],
        must_poll: bool,
    ) -> Arc<Self> {
        let now = coordinator.clock.now();
        let nodes = coordinator.nodes().iter();
        let attending = nodes.map(|node| node.attend(&name, &client));
        let attending = attending.filter(|listener| !listener.is_deaf()).collect();
        let queue = LockQueue::new(coordinator.quorum, client, must_poll, now);
        let queue = match name.is_queue_for_slots() {
            true => queue.for_slots(),
            false => queue,
        };
        Arc::new(Self {
            name,
            coordinator,
            sinks: sinks.to_vec(),
            listeners: OnceLock::new(),
            _attending: attending,
            state: Mutex::new(State {
                queue,
                mailboxes: BTreeMap::new(),
            }),
            nudge: Notify::new(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic while it was locked cannot have left it half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_held_up(&self, waiter: WaiterId) -> bool {
        self.state().queue.is_held_up(waiter)
    }

    /// Tells the queue what happened, and does what it says.
    pub(super) fn on(&self, event: QueueEvent) {
        self.apply(&mut self.state(), event);
    }

    fn apply(&self, state: &mut State, event: QueueEvent) -> Option<Look> {
        let actions = state.queue.on(event, self.coordinator.clock.now());
        let mut look = None;
        for action in actions {
            match action {
                QueueAction::LookAt(_) | QueueAction::Close => self.nudge.notify_one(),
                // On their way when the state is unlocked, so that an attempt, which is sent later,
                // is not undone by them.
                QueueAction::Show(tickets) => {
                    look = Some(Look::Showing(self.coordinator.queue(&self.name, &tickets)));
                }
                QueueAction::Inspect => look = Some(Look::Inspecting),
                QueueAction::Wake(waiter) => {
                    if let Some(mailbox) = state.mailboxes.get(&waiter) {
                        mailbox.notify.notify_one();
                    }
                }
                QueueAction::Tell {
                    waiter,
                    holder,
                    split,
                    token,
                    remaining,
                    place,
                    is_settled,
                } => {
                    let progress = Progress {
                        holder,
                        split,
                        token,
                        remaining,
                        place,
                        is_settled,
                    };
                    if let Some(mailbox) = state.mailboxes.get_mut(&waiter) {
                        mailbox.put(Update::Progress(progress));
                    }
                }
                QueueAction::TellNoQuorum(outcomes) => {
                    let outcomes = outcomes.into_iter();
                    let error = self.coordinator.no_quorum(self.name.clone(), outcomes);
                    for mailbox in state.mailboxes.values_mut() {
                        mailbox.put(Update::NoQuorum(error.clone()));
                    }
                }
                QueueAction::Track => {
                    for (node, sink) in self.coordinator.nodes().iter().zip(&self.sinks) {
                        node.track(&self.name, Arc::clone(sink));
                    }
                }
                QueueAction::Withdraw(tickets) => {
                    self.coordinator.leave(self.name.clone(), tickets);
                }
            }
        }
        look
    }

    fn share(&self) -> f64 {
        self.coordinator.randomness.share()
    }

    pub(super) fn join(&self, waiter: WaiterId, ticket: TicketId, is_watched: bool) {
        let proposed = TicketNumber::saturating(self.coordinator.clock.wall_micros());
        let mut state = self.state();
        state.mailboxes.insert(waiter, Mailbox::default());
        let joined = QueueEvent::Joined {
            waiter,
            ticket,
            proposed,
            is_watched,
        };
        self.apply(&mut state, joined);
    }

    /// The waiter has the lock.
    pub(super) fn served(&self, waiter: WaiterId) {
        self.remove(waiter, QueueEvent::Served(waiter));
    }

    /// The waiter goes, and its place is kept for a while.
    pub(super) fn paused(&self, waiter: WaiterId) {
        self.remove(waiter, QueueEvent::Paused(waiter));
    }

    /// The waiter gives up.
    pub(super) fn left(&self, waiter: WaiterId) {
        self.remove(waiter, QueueEvent::Left(waiter));
    }

    fn remove(&self, waiter: WaiterId, event: QueueEvent) {
        let mut state = self.state();
        state.mailboxes.remove(&waiter);
        self.apply(&mut state, event);
    }

    pub(super) fn is_waited_in(&self) -> bool {
        self.state().queue.is_waited_in()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.state().queue.is_empty()
    }

    /// What the waiter is to do next.
    pub(super) async fn next(&self, waiter: WaiterId) -> Next {
        loop {
            let notify = {
                let mut state = self.state();
                if state.queue.is_woken(waiter) {
                    self.apply(&mut state, QueueEvent::AttemptStarted(waiter));
                    return Next::Attempt;
                }
                let Some(mailbox) = state.mailboxes.get_mut(&waiter) else {
                    // Only its owner takes it out, and does not ask any more.
                    return Next::Attempt;
                };
                if let Some(update) = mailbox.update.take() {
                    return Next::Update(update);
                }
                Arc::clone(&mailbox.notify)
            };
            notify.notified().await;
        }
    }

    /// The waiter's attempt has failed, and it goes on waiting.
    pub(super) fn attempt_failed(&self, waiter: WaiterId) {
        let share = self.share();
        self.on(QueueEvent::AttemptFailed { waiter, share });
    }

    /// The waiter has found all slots taken, and goes on waiting.
    pub(super) fn all_taken(&self, waiter: WaiterId) {
        self.on(QueueEvent::AllTaken(waiter));
    }

    /// The slots that the waiter was told of.
    pub(super) fn take_freed(&self, waiter: WaiterId) -> Vec<usize> {
        self.state().queue.take_freed(waiter)
    }

    /// The waiter's ticket, as an attempt shows it.
    pub(super) fn ticket(&self, waiter: WaiterId) -> Option<Ticket> {
        self.state().queue.ticket(waiter)
    }

    /// The waiter to which a release by this client hands the lock off.
    pub(super) fn hand_off_to(&self) -> Option<TicketId> {
        let state = self.state();
        state.queue.hand_off_to(self.coordinator.clock.now())
    }

    /// Also listens for releases by clients of other libraries, which know no queue, until there is no waiter.
    pub(super) fn listen_for_others(&self) {
        let nodes = self.coordinator.nodes().iter();
        self.listeners
            .get_or_init(|| nodes.map(|node| node.follow(&self.name)).collect());
    }

    /// Looks when a look is due, until there is no waiter.
    pub(super) async fn run(self: Arc<Self>, registry: Weak<WaitRegistry>) {
        loop {
            let (next_look, is_empty) = {
                let state = self.state();
                (state.queue.next_look(), state.queue.is_empty())
            };
            if is_empty
                && registry
                    .upgrade()
                    .is_none_or(|registry| registry.close(&self))
            {
                return;
            }
            let until_then = next_look.since(self.coordinator.clock.now());
            if until_then.is_zero() && !is_empty {
                // Not by a timer: the runtime's are late by up to a millisecond.
                self.look().await;
                continue;
            }
            tokio::select! {
                biased;
                () = self.nudge.notified() => {}
                () = sleep(until_then) => self.look().await,
            }
        }
    }

    async fn look(&self) {
        let due = QueueEvent::LookDue {
            share: self.share(),
        };
        let look = self.apply(&mut self.state(), due);
        let seen = match look {
            None => return,
            Some(Look::Showing(asked)) => {
                let is_enough = |answers: &_| self.state().queue.knows_enough(answers);
                QueueEvent::Shown {
                    answers: self.coordinator.queued(asked, is_enough).await,
                    share: self.share(),
                }
            }
            Some(Look::Inspecting) => {
                let inspect = self.coordinator.ask_all(&self.name, &Command::Inspect);
                let answers = inspect.await.into_iter();
                QueueEvent::Inspected {
                    outcomes: answers.map(outcome).collect(),
                    share: self.share(),
                }
            }
        };
        self.on(seen);
    }
}

impl Mailbox {
    fn put(&mut self, update: Update) {
        self.update = Some(update);
        self.notify.notify_one();
    }
}

fn outcome<T>(answer: Result<T, crate::error::NodeError>) -> NodeOutcome {
    match answer {
        Ok(_) => NodeOutcome::Agreed,
        Err(error) => NodeOutcome::Failed(error),
    }
}
