//! The waiters of one client for one lock: they look together, so that a thousand of them cost one
//! command, and only the foremost acts.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::waiters::{Waiter, Waiters};
use super::{Progress, WaitRegistry};
use crate::driver::coordinator::{Coordinator, Queueing};
use crate::error::{Error, NodeOutcome};
use crate::store::Listener;
use fencepost_core::lock::Command;
use fencepost_core::name::LockName;
use fencepost_core::quorum::NodeSet;
use fencepost_core::ticket::{
    ClientId, Standing, TICKET_LEASE, Ticket, TicketId, TicketMode, TicketNumber, Wake,
};
use fencepost_core::wait::view::QueueView;

/// How often a waiter looks by itself, and so keeps its ticket: what a lost message costs. Two
/// looks may fail before a ticket is lost.
pub(super) const POLL: Duration = Duration::from_millis(1000);
/// The same for the first in line where nobody will tell it: the holder is a foreign client.
const POLL_FOREIGN: Duration = Duration::from_millis(250);
/// How long the second in line leaves the first alone with a free lock.
const MOMENT: Duration = Duration::from_millis(50);
/// How long a waiter that some nodes have woken waits for the others.
const OTHER_NODES: Duration = Duration::from_millis(3);
/// How soon it looks again after an attempt that failed, or at a lock that is neither held nor
/// free; doubled each time.
pub(super) const SOON: Duration = Duration::from_millis(4);
/// The last place in line from which a waiter looks when others say that the lock is free: the
/// second acts where the first is dead.
const NEAR: usize = 2;
/// How long after others were seen at the head of the line there may be others, unseen.
const OTHERS_STAY: Duration = Duration::from_secs(2);
/// The most rounds in a row to agree on numbers. What is not agreed then is so at the next look.
const MOST_ROUNDS: u32 = 3;

/// The waiters of one client for one lock.
pub(super) struct LockQueue {
    pub(super) name: LockName,
    client: ClientId,
    coordinator: Arc<Coordinator>,
    /// Whether so few nodes tell anything that the first in line has to look often.
    is_deaf: bool,
    /// What tells of those who know no line, if somebody here wants to hear it.
    overheard: OnceLock<Vec<Listener>>,
    waiters: Mutex<Waiters>,
    nudge: Notify,
}

/// What a waiter hears while it waits.
#[derive(Clone, Debug)]
pub(crate) enum News {
    /// How it stands.
    Progress(Progress),
    /// Too few nodes could be asked.
    NoQuorum(Error),
}

/// What a waiter is to do.
#[derive(Debug)]
pub(crate) enum Call {
    /// Try to take the lock.
    Go,
    /// Take note, and wait on.
    News(News),
}

impl LockQueue {
    pub(super) fn new(
        name: LockName,
        client: ClientId,
        coordinator: Arc<Coordinator>,
        is_deaf: bool,
    ) -> Arc<Self> {
        Arc::new(Self {
            name,
            client,
            coordinator,
            is_deaf,
            overheard: OnceLock::new(),
            waiters: Mutex::new(Waiters {
                seats: BTreeMap::new(),
                next_look: Instant::now(),
                all_due: Instant::now(),
                passed_over_since: None,
                others_seen: None,
                soon: 0,
                rounds: 0,
                last_missed: None,
                overheard: NodeSet::NONE,
                is_near: true,
                withdrawn: false,
            }),
            nudge: Notify::new(),
        })
    }

    fn waiters(&self) -> MutexGuard<'_, Waiters> {
        // A panic while it was locked cannot have left it half changed.
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn join(&self, sequence: u64, id: TicketId, is_watched: bool) {
        let proposed = TicketNumber::saturating(self.coordinator.clock.wall_micros());
        let waiter = Waiter {
            id,
            number: Standing::Proposed(proposed),
            settled: false,
            seated: false,
            up: false,
            go: false,
            woken: NodeSet::NONE,
            news: None,
            is_watched,
            is_worried: false,
            notify: Arc::new(Notify::new()),
        };
        let mut waiters = self.waiters();
        waiters.seats.insert(sequence, waiter);
        waiters.look_by(Instant::now());
        self.nudge.notify_one();
    }

    /// Takes a waiter out. True if a node may have its ticket.
    pub(super) fn remove(&self, sequence: u64) -> bool {
        let removed = self.waiters().seats.remove(&sequence);
        self.nudge.notify_one();
        removed.is_some()
    }

    pub(super) fn is_waited_in(&self) -> bool {
        self.waiters().seats.values().any(Waiter::sits)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiters().seats.is_empty()
    }

    /// What the waiter is to do next.
    pub(super) async fn call(&self, sequence: u64) -> Call {
        loop {
            let notify = {
                let mut waiters = self.waiters();
                let Some(waiter) = waiters.seats.get_mut(&sequence) else {
                    // Only its owner takes it out, and does not ask any more.
                    return Call::Go;
                };
                if waiter.go {
                    waiter.stand_up();
                    return Call::Go;
                }
                if let Some(news) = waiter.news.take() {
                    return Call::News(news);
                }
                Arc::clone(&waiter.notify)
            };
            notify.notified().await;
        }
    }

    /// The waiter makes an attempt without having been called.
    pub(super) fn stand_up(&self, sequence: u64) {
        if let Some(waiter) = self.waiters().seats.get_mut(&sequence) {
            waiter.stand_up();
        }
    }

    /// The waiter's ticket, as an attempt shows it.
    pub(super) fn ticket(&self, sequence: u64) -> Option<Ticket> {
        let waiters = self.waiters();
        let waiter = waiters.seats.get(&sequence)?;
        Some(waiter.ticket())
    }

    /// The waiter's attempt has failed, and it sits down again.
    pub(super) fn sit_down(&self, sequence: u64) {
        let needed = self.coordinator.quorum.needed();
        let mut waiters = self.waiters();
        if let Some(waiter) = waiters.seats.get_mut(&sequence) {
            waiter.up = false;
            if waiter.woken.len() >= needed {
                waiter.call();
            }
        }
        let soon = waiters.soon(&self.coordinator);
        waiters.look_by(Instant::now() + soon);
        self.nudge.notify_one();
    }

    /// Who is next, if another of our own client gives the lock back. Where others are known to wait
    /// too, it is for the nodes to say who is next: an attempt for nothing takes nodes from the one
    /// whose turn it is. Those who are not known yet are so after the next look.
    pub(super) fn follower(&self) -> Option<TicketId> {
        let waiters = self.waiters();
        let others_are_gone = |seen: Instant| seen.elapsed() > OTHERS_STAY;
        if !waiters.others_seen.is_none_or(others_are_gone) {
            return None;
        }
        let sitting = waiters.seats.values().filter(|waiter| waiter.sits());
        let foremost = sitting.min_by(|a, b| a.rank().cmp(&b.rank()))?;
        // Readers go together, and which of them may go is for the nodes to say.
        (!foremost.id.is_reader()).then(|| foremost.id.clone())
    }

    /// The release of which this one is the follower is on its way. The nodes tell nobody else of us,
    /// so whoever is next looks after it as if they had: the follower may be gone, or may not go.
    pub(super) fn follow(&self, follower: &TicketId) {
        let now = Instant::now();
        let mut waiters = self.waiters();
        let mut seats = waiters.seats.values_mut();
        if let Some(waiter) = seats.find(|waiter| waiter.id == *follower && waiter.sits()) {
            waiter.call();
        }
        waiters.passed_over_since = Some(now);
        if now + MOMENT < waiters.next_look {
            waiters.look_by(now + MOMENT);
            self.nudge.notify_one();
        }
    }

    /// A node has something to say.
    pub(super) fn hear(&self, node: usize, sequence: u64, wake: &Wake) {
        let needed = self.coordinator.quorum.needed();
        let now = Instant::now();
        let mut waiters = self.waiters();
        let Some(waiter) = waiters.seats.get_mut(&sequence) else {
            return;
        };
        if waiter.id != wake.ticket {
            return;
        }
        if !wake.first {
            waiters.passed_over_since.get_or_insert(now);
            waiters.look_by(now + MOMENT);
        } else {
            waiter.woken.insert(node);
            let enough = waiter.woken.len() >= needed && !waiter.up;
            if enough {
                waiter.call();
            }
            waiters.soon = 0;
            if enough {
                return;
            }
            waiters.look_by(now + OTHER_NODES);
        }
        drop(waiters);
        self.nudge.notify_one();
    }

    /// Hears also those who give the lock back without knowing of the line, until nobody waits.
    pub(super) fn overhear(&self) {
        let nodes = self.coordinator.nodes().iter();
        self.overheard
            .get_or_init(|| nodes.map(|node| node.follow(&self.name)).collect());
    }

    /// Somebody who may not know of the line has given the lock back. If it was one of us, whoever
    /// is next has been told already and is on its way before it looks.
    pub(super) fn may_be_free(&self, node: usize) {
        let mut waiters = self.waiters();
        waiters.overheard.insert(node);
        if waiters.is_near {
            waiters.look_by(Instant::now() + OTHER_NODES);
            drop(waiters);
            self.nudge.notify_one();
        }
    }

    /// What was said may have been missed.
    pub(super) fn may_have_missed(&self, node: usize) {
        let mut waiters = self.waiters();
        // On a new connection nothing is followed yet.
        waiters.overheard.remove(node);
        let now = Instant::now();
        // A connection that breaks all the time must not make us look all the time.
        let next = waiters
            .last_missed
            .map_or(now, |last| now.max(last + MOMENT));
        waiters.last_missed = Some(next);
        waiters.all_due = next;
        waiters.look_by(next);
        drop(waiters);
        self.nudge.notify_one();
    }

    /// Looks when it is time to, until nobody waits any more.
    pub(super) async fn run(self: Arc<Self>, room: Weak<WaitRegistry>) {
        loop {
            let (next_look, is_empty) = {
                let waiters = self.waiters();
                (waiters.next_look, waiters.seats.is_empty())
            };
            if is_empty && room.upgrade().is_none_or(|room| room.close(&self)) {
                return;
            }
            tokio::select! {
                biased;
                () = self.nudge.notified() => {}
                () = sleep_until(next_look) => self.look().await,
            }
        }
    }

    async fn look(&self) {
        if self.waiters().withdrawn {
            return self.look_from_outside().await;
        }
        let Some((shown, asked)) = self.ask() else {
            return;
        };
        let answers = self.coordinator.queued(asked).await;
        let outlook = QueueView::new(self.coordinator.quorum, answers);
        let withdrawn = {
            let mut waiters = self.waiters();
            for (sequence, woken) in &shown {
                // What it was told before the look is answered by the look.
                if let Some(waiter) = waiters.seats.get_mut(sequence) {
                    waiter.woken = waiter.woken.without(*woken);
                }
            }
            let shown: Vec<_> = shown.into_iter().map(|(sequence, _)| sequence).collect();
            if outlook.is_enough() {
                self.learn(&mut waiters, &shown, &outlook);
                Vec::new()
            } else {
                let outcomes = outlook.lines().iter().map(super::outcome);
                self.cut_off(&mut waiters, &outcomes.collect::<Vec<_>>());
                let sitting = waiters.seats.values().filter(|waiter| waiter.sits());
                sitting.map(|waiter| waiter.id.clone()).collect()
            }
        };
        if !withdrawn.is_empty() {
            // Whoever is cut off from the majority must not stand in its way.
            self.coordinator.leave(self.name.clone(), withdrawn);
        }
    }

    /// Looks whether enough nodes can be heard again, without standing in line anywhere.
    async fn look_from_outside(&self) {
        let answers = self
            .coordinator
            .ask_all(&self.name, &Command::Inspect)
            .await;
        let heard = answers.iter().filter(|answer| answer.is_ok()).count();
        let mut waiters = self.waiters();
        waiters.next_look = Instant::now() + self.coordinator.spread(POLL);
        if heard >= self.coordinator.quorum.needed() {
            waiters.withdrawn = false;
            waiters.look_by(Instant::now());
        } else {
            let outcomes: Vec<_> = answers.iter().map(super::outcome).collect();
            self.cut_off(&mut waiters, &outcomes);
        }
    }

    /// Shows the tickets to all nodes. They are on their way when the lock is given back, so that
    /// an attempt, which is sent later, is not undone by it.
    fn ask(&self) -> Option<(Vec<(u64, NodeSet)>, Queueing)> {
        let mut waiters = self.waiters();
        let now = Instant::now();
        // A little early rather than twice.
        let show_all = now + POLL / 4 >= waiters.all_due;
        if show_all {
            waiters.all_due = now + self.coordinator.spread(POLL);
        }
        waiters.next_look = waiters.all_due;
        let sitting = || waiters.seats.iter().filter(|(_, waiter)| waiter.sits());
        let foremost = sitting().min_by(|(_, a), (_, b)| a.rank().cmp(&b.rank()));
        let (foremost, _) = foremost?;
        let shown = || {
            sitting().filter(|(sequence, waiter)| {
                show_all || !waiter.settled || waiter.id.is_reader() || *sequence == foremost
            })
        };
        let tickets: Vec<_> = shown().map(|(_, waiter)| waiter.ticket()).collect();
        let shown = shown().map(|(sequence, waiter)| (*sequence, waiter.woken));
        Some((
            shown.collect(),
            self.coordinator.queue(&self.name, &tickets),
        ))
    }

    fn learn(&self, waiters: &mut Waiters, shown: &[u64], outlook: &QueueView) {
        let now = Instant::now();
        let mut all_settled = true;
        for (n, sequence) in shown.iter().enumerate() {
            let Some(waiter) = waiters.seats.get_mut(sequence) else {
                continue;
            };
            // Once it is settled it stays: a node that was not heard then may have a larger number,
            // and whoever has come since must not get before us by it.
            if !waiter.settled
                && let Some(number) = outlook.number(n)
            {
                waiter.number = Standing::Agreed(number);
                waiter.settled = outlook.is_settled(n);
                waiter.seated = true;
                all_settled &= waiter.settled;
            }
            if waiter.is_watched || waiter.is_worried {
                waiter.is_worried = false;
                let (mode, settled) = (waiter.id.mode(), waiter.settled);
                waiter.tell(News::Progress(Progress::new(outlook, n, mode, settled)));
            }
        }
        if outlook.is_headed_by_others(&self.client) {
            waiters.others_seen = Some(now);
        }
        waiters.rounds = if all_settled { 0 } else { waiters.rounds + 1 };
        // Whoever came during the look has not been shown yet.
        let unseated = waiters
            .seats
            .values()
            .any(|waiter| !waiter.seated && !waiter.up);
        if unseated || (!all_settled && waiters.rounds < MOST_ROUNDS) {
            waiters.look_by(now);
        }
        let Some((n, foremost)) = waiters.foremost(shown) else {
            return;
        };
        let mode = foremost.id.mode();
        let place = outlook.place(n);
        let is_first = place == Some(1);
        waiters.is_near = place.is_none_or(|place| place <= NEAR);
        let opens_in = outlook.opens_in(n, mode);
        if opens_in == Some(Duration::ZERO) {
            let passed_over = waiters.passed_over_since;
            let long_enough = passed_over.is_some_and(|since| now >= since + MOMENT);
            if is_first || long_enough {
                waiters.passed_over_since = None;
                if let Some((_, foremost)) = waiters.foremost(shown) {
                    foremost.call();
                }
                if mode == TicketMode::Reader {
                    waiters.call_readers(shown, outlook);
                }
                return;
            }
            let since = *waiters.passed_over_since.get_or_insert(now);
            waiters.look_by(since + MOMENT);
            return;
        }
        if !outlook.is_free(mode) {
            waiters.passed_over_since = None;
        }
        let is_told = waiters.overheard.len() >= self.coordinator.quorum.needed();
        let poll = match outlook.holder() {
            Some(holder) if !holder.value.is_ours() && !is_told => POLL_FOREIGN,
            _ if self.is_deaf => POLL_FOREIGN,
            _ => POLL,
        };
        // Whoever is far behind has nothing to gain by looking soon.
        let next = if outlook.is_split(mode) && waiters.is_near {
            let soon = waiters.soon(&self.coordinator);
            // The first in line is there when a majority is free, however long some nodes have been.
            let opens_in = opens_in.filter(|_| is_first).unwrap_or(soon);
            soon.min(opens_in.max(SOON))
        } else if is_first || outlook.is_free(mode) {
            waiters.soon = 0;
            // Not more often than that, also when the nodes' clocks say that it is time all the time.
            let soonest = if is_first { SOON } else { MOMENT };
            opens_in
                .unwrap_or(poll)
                .clamp(soonest, self.coordinator.spread(poll))
        } else {
            waiters.soon = 0;
            self.coordinator.spread(POLL)
        };
        waiters.look_by(now + next);
    }

    fn cut_off(&self, waiters: &mut Waiters, outcomes: &[NodeOutcome]) {
        waiters.withdrawn = true;
        waiters.all_due = Instant::now();
        for waiter in waiters.seats.values_mut() {
            let outcomes = outcomes.iter().cloned();
            let error = self.coordinator.no_quorum(self.name.clone(), outcomes);
            waiter.is_worried = true;
            waiter.tell(News::NoQuorum(error));
        }
        let next = waiters.soon(&self.coordinator).max(MOMENT);
        waiters.look_by(Instant::now() + next);
    }
}

impl Coordinator {
    /// Between three quarters and the whole of `time`, so that waiters do not keep step with each
    /// other.
    pub(crate) fn spread(&self, time: Duration) -> Duration {
        time.mul_f64(0.75 + self.randomness.share() / 4.0)
    }
}

/// A ticket outlives two looks that fail.
const _: () = assert!(POLL.as_millis() * 3 <= TICKET_LEASE.as_millis());
