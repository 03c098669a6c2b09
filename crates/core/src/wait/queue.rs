//! [`LockQueue`]: the waiters of one client for one lock. Pure: what happens and the time go in, what
//! to do comes out.
//!
//! They look together, so that some hundreds of them cost one command, and only the first of them acts.
//!
//! A waiter queues on all nodes, and keeps its ticket by showing it again within the ticket's lease.
//! A node on which the lock is released wakes the first waiter, and tells the second, which acts only
//! if the lock is still free a moment later. The first makes its attempt as soon as a node says that a
//! lease was released, which goes to all nodes; otherwise, and once more if that was too early, when a
//! majority of the nodes has woken it. If the lock is released by its own client, that hands it off: the
//! attempt goes right behind the release. A waiter that is not woken looks by itself: the first one when
//! the holder's time is up, each of them once a second. A client that reaches fewer nodes than a majority
//! withdraws its tickets until it reaches more.
//!
//! Behind a holder that knows of no queue no waiter is woken. There the head lets the nodes say when the
//! holder changes, makes its attempt as soon as a majority has, and tries again soon if another was
//! faster.
//!
//! Waiters for one of many slots wait in one queue for all of them: see `slots`.
//!
//! Safety never depends on any of this: a waiter that is woken makes an attempt like any other.

mod cut_off;
mod event;
mod foreign;
mod refresh;
mod slots;
mod waiter;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::backoff::{Backoff, spread};
use super::view::QueueView;
use crate::lock::{Holder, NodeQueue};
use crate::outcome::{NodeError, NodeOutcome};
use crate::quorum::{NodeSet, Quorum};
use crate::words::moment::Moment;
use crate::words::ticket::{
    ClientId, Standing, TICKET_LEASE, Ticket, TicketId, TicketMode, TicketNumber, Wake,
};
pub use event::{QueueAction, QueueEvent, WaiterId};
use refresh::Refresh;
use slots::SlotsSeen;
use waiter::{Phase, Waiter};

/// How often a waiter looks by itself, and so keeps its ticket: what a lost message costs. Two
/// looks may fail before a ticket is lost.
const POLL: Duration = Duration::from_millis(1000);
/// The same for the first waiter where no release will wake it: the holder is a foreign client.
const POLL_FOREIGN: Duration = Duration::from_millis(250);
/// How long the second waiter leaves the first alone with a free lock.
const HEAD_START: Duration = Duration::from_millis(50);
/// How long a waiter that some nodes have woken waits for the others.
const OTHER_NODES: Duration = Duration::from_millis(3);
/// How soon it looks again after an attempt that failed, or at a lock that is neither held nor
/// free; doubled each time.
const SOON: Duration = Duration::from_millis(4);
/// The last place in the queue from which a waiter looks when others say that the lock is free: the
/// second acts where the first is dead.
const NEAR: usize = 2;
/// How long after others were seen at the head of the queue there may be others, unseen.
const OTHERS_STAY: Duration = Duration::from_secs(2);
/// The most rounds in a row to agree on numbers. What is not agreed then is so at the next look.
const MOST_ROUNDS: u32 = 3;

/// A ticket outlives two looks that fail.
const _: () = assert!(POLL.as_millis() * 3 <= TICKET_LEASE.as_millis());

/// The waiters of one client for one lock, and what they know together.
#[derive(Clone, Debug)]
pub struct LockQueue {
    quorum: Quorum,
    client: ClientId,
    /// Whether so few nodes wake anybody that the first waiter has to look often.
    must_poll: bool,
    waiters: BTreeMap<WaiterId, Waiter>,
    /// The same in the order in which they are served. A client's tickets of one number are ordered by
    /// the client's own number, which is the waiter's.
    order: BTreeSet<(TicketNumber, WaiterId)>,
    /// The waiters that are being shown, in the order of their numbers, each with the nodes that had
    /// woken it before.
    shown: Vec<(WaiterId, NodeSet)>,
    next_look: Moment,
    /// When they have to show their tickets again. A look before shows only those of whom there is
    /// something to learn: with many waiters that is what makes it cheap to join them.
    refresh: Refresh,
    /// Since when the lock is known to have been free with others before us in the queue.
    passed_over_since: Option<Moment>,
    /// When a waiter of another client was last seen at the head of the queue.
    others_seen: Option<Moment>,
    /// How often in a row it was worth looking again soon.
    soon: Backoff,
    /// Rounds in a row that only agreed on numbers.
    rounds: u32,
    /// Whether the holder that was last seen knows of no queue, and which waiter is woken when it changes.
    is_foreign: bool,
    tracked: Option<WaiterId>,
    /// The pauses after attempts behind such holders.
    near_misses: Backoff,
    last_missed: Option<Moment>,
    /// The nodes that are known to tell of releases by those, too, who know of no queue.
    tell_of_others: NodeSet,
    /// Whether the first of us was near the head when it last looked.
    is_near: bool,
    /// Too few nodes could be asked: our tickets are withdrawn.
    is_withdrawn: bool,
    /// What is known of the slots, where they wait for one of many.
    slots: Option<SlotsSeen>,
}

impl LockQueue {
    /// A queue without waiters. `must_poll` says that fewer nodes than a majority can wake anybody.
    #[must_use]
    pub fn new(quorum: Quorum, client: ClientId, must_poll: bool, now: Moment) -> Self {
        Self {
            quorum,
            client,
            must_poll,
            waiters: BTreeMap::new(),
            order: BTreeSet::new(),
            shown: Vec::new(),
            next_look: now,
            refresh: Refresh::from(now),
            passed_over_since: None,
            others_seen: None,
            soon: Backoff::new(SOON, POLL),
            rounds: 0,
            is_foreign: false,
            tracked: None,
            near_misses: foreign::pauses(),
            last_missed: None,
            tell_of_others: NodeSet::NONE,
            is_near: true,
            is_withdrawn: false,
            slots: None,
        }
    }

    /// The same for one of many slots: no lock has the name of this queue.
    #[must_use]
    pub fn for_slots(self) -> Self {
        let slots = Some(SlotsSeen::default());
        Self { slots, ..self }
    }

    /// When to look next.
    #[must_use]
    pub fn next_look(&self) -> Moment {
        self.next_look
    }

    /// Whether there is no waiter.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// Whether there is a waiter that makes no attempt just now.
    #[must_use]
    pub fn is_waited_in(&self) -> bool {
        self.waiters.values().any(Waiter::is_waiting)
    }

    /// Whether this waiter shall make an attempt.
    #[must_use]
    pub fn is_woken(&self, waiter: WaiterId) -> bool {
        let waiter = self.waiters.get(&waiter);
        waiter.is_some_and(|waiter| waiter.phase == Phase::Woken)
    }

    /// Whether this waiter has seen the lock held, or others before it.
    #[must_use]
    pub fn is_held_up(&self, waiter: WaiterId) -> bool {
        let waiter = self.waiters.get(&waiter);
        waiter.is_some_and(|waiter| waiter.is_held_up)
    }

    /// The waiter's ticket, as an attempt shows it.
    #[must_use]
    pub fn ticket(&self, waiter: WaiterId) -> Option<Ticket> {
        self.waiters.get(&waiter).map(Waiter::ticket)
    }

    /// The waiter to which a release by our own client hands the lock off. Where others are known to
    /// wait too, it is for the nodes to say who is next: an attempt for nothing takes nodes from the
    /// one whose turn it is. Those who are not known yet are so after the next look.
    #[must_use]
    pub fn hand_off_to(&self, now: Moment) -> Option<TicketId> {
        let are_gone = |seen: Moment| now.since(seen) > OTHERS_STAY;
        if !self.others_seen.is_none_or(are_gone) {
            return None;
        }
        let (_, first) = self.first()?;
        // Readers go together, and which of them may go is for the nodes to say.
        (!first.id.is_reader()).then(|| first.id.clone())
    }

    /// Whether these answers to [`QueueAction::Show`] say all that matters, so that the nodes that are
    /// missing need not be waited for: everybody has a number, and the lock is held by one of us, or
    /// free for the first.
    #[must_use]
    pub fn knows_enough(&self, answers: &[Result<NodeQueue, NodeError>]) -> bool {
        let view = QueueView::new(self.quorum, answers.to_vec());
        let mut shown = self.shown.iter().enumerate();
        let has_number = |(n, (id, _)): (usize, &(WaiterId, NodeSet))| {
            view.is_settled(n) || self.waiters.get(id).is_some_and(|waiter| waiter.is_settled)
        };
        if !view.is_enough() || self.slots.is_some() || !shown.all(has_number) {
            return false;
        }
        let ids: Vec<_> = self.shown.iter().map(|(id, _)| *id).collect();
        let Some((n, first)) = self.first_shown(&ids) else {
            return false;
        };
        let mode = self.waiters[&first].id.mode();
        let is_ours = |holder: &Holder| holder.value.is_ours();
        let is_held = view.possession().holder().is_some_and(is_ours);
        let is_open = || view.place(n) == Some(1) && view.opens_in(n, mode) == Some(Duration::ZERO);
        is_held || is_open()
    }

    /// Takes in what happened, and says what to do.
    pub fn on(&mut self, event: QueueEvent, now: Moment) -> Vec<QueueAction> {
        let mut actions = Vec::new();
        let told = self.next_look;
        match event {
            QueueEvent::Joined {
                waiter,
                ticket,
                proposed,
                is_watched,
            } => {
                let joined = Waiter::new(ticket, proposed, is_watched);
                self.order.insert((proposed, waiter));
                if let Some(before) = self.waiters.insert(waiter, joined)
                    && before.number.number() != proposed
                {
                    self.order.remove(&(before.number.number(), waiter));
                }
                self.look_by(now);
            }
            QueueEvent::Left(waiter) => {
                if let Some(waiter) = self.remove(waiter, &mut actions) {
                    actions.push(QueueAction::Withdraw(vec![waiter.id]));
                }
            }
            QueueEvent::Served(waiter) => self.served(waiter, &mut actions),
            QueueEvent::Paused(waiter) => {
                self.remove(waiter, &mut actions);
            }
            QueueEvent::AttemptStarted(waiter) => {
                if let Some(waiter) = self.waiters.get_mut(&waiter) {
                    waiter.phase = Phase::Attempting;
                    if !std::mem::take(&mut waiter.is_early) {
                        waiter.woken_by = NodeSet::NONE;
                    }
                }
            }
            QueueEvent::AttemptFailed { waiter, share } => {
                self.attempt_failed(waiter, share, now, &mut actions);
            }
            QueueEvent::AllTaken(waiter) => self.all_taken(waiter, now, &mut actions),
            QueueEvent::Woken { node, waiter, wake } => {
                self.woken(node, waiter, &wake, now, &mut actions);
            }
            QueueEvent::HandedOff { to, slot } => self.handed_off(&to, slot, now, &mut actions),
            QueueEvent::Freed { node } => {
                self.tell_of_others.insert(node);
                // If it was one of us, the next waiter has been woken already and makes its attempt
                // before this look.
                if self.is_near {
                    self.look_by(now + OTHER_NODES);
                }
            }
            QueueEvent::Changed { node } => self.changed(node, now, &mut actions),
            QueueEvent::MayHaveMissed { node } => self.may_have_missed(node, now),
            QueueEvent::LookDue { share } => self.look(share, now, &mut actions),
            QueueEvent::Shown { answers, share } => self.learn(answers, share, now, &mut actions),
            QueueEvent::Inspected { outcomes, share } => {
                self.inspected(outcomes, share, now, &mut actions);
            }
        }
        if self.next_look < told {
            actions.push(QueueAction::LookAt(self.next_look));
        }
        actions
    }

    fn look_by(&mut self, time: Moment) {
        self.next_look = self.next_look.min(time);
    }

    /// Those that wait, the smallest ticket first.
    fn waiting_in_order(&self) -> impl Iterator<Item = (WaiterId, &Waiter)> {
        let waiters = self.order.iter().filter_map(|(_, id)| {
            let waiter = self.waiters.get(id)?;
            Some((*id, waiter))
        });
        waiters.filter(|(_, waiter)| waiter.is_waiting())
    }

    /// The waiter with the smallest ticket of those that wait.
    fn first(&self) -> Option<(WaiterId, &Waiter)> {
        self.waiting_in_order().next()
    }

    fn remove(&mut self, waiter: WaiterId, actions: &mut Vec<QueueAction>) -> Option<Waiter> {
        let removed = self.waiters.remove(&waiter)?;
        self.order.remove(&(removed.number.number(), waiter));
        self.slots_unseen();
        self.near_misses.reset();
        if self.waiters.is_empty() {
            actions.push(QueueAction::Close);
        }
        Some(removed)
    }

    fn attempt_failed(
        &mut self,
        id: WaiterId,
        share: f64,
        now: Moment,
        actions: &mut Vec<QueueAction>,
    ) {
        if let Some(waiter) = self.waiters.get_mut(&id) {
            waiter.phase = Phase::Waiting;
            // Woken again during the attempt.
            if waiter.woken_by.len() >= self.quorum.needed() {
                waiter.wake(id, actions);
            }
        }
        self.slots_unseen();
        let soon = self.pause(share);
        self.look_by(now + soon);
    }

    fn woken(
        &mut self,
        node: usize,
        id: WaiterId,
        wake: &Wake,
        now: Moment,
        actions: &mut Vec<QueueAction>,
    ) {
        let Some(waiter) = self.waiters.get_mut(&id) else {
            return;
        };
        if waiter.id != wake.ticket {
            return;
        }
        if !wake.first && self.slots.is_some() && wake.slot.is_none() {
            // Another is the head now, and nothing was released.
            return;
        }
        if !wake.first {
            self.passed_over_since.get_or_insert(now);
            return self.look_by(now + HEAD_START);
        }
        // The release is in flight to the other nodes too, and nearly always before the attempt. Otherwise
        // it goes again when a majority has woken it. A ticket whose number is not agreed on may be the
        // head of one node only.
        let is_early = wake.everywhere && waiter.is_settled && waiter.woken_by.is_empty();
        waiter.woken_by.insert(node);
        waiter.freed(wake.slot);
        let by_majority = waiter.woken_by.len() >= self.quorum.needed();
        let goes = (is_early || by_majority) && waiter.phase != Phase::Attempting;
        if goes {
            waiter.is_early = is_early && !by_majority;
            waiter.wake(id, actions);
        }
        self.soon.reset();
        if !goes {
            self.look_by(now + OTHER_NODES);
        }
    }

    /// The nodes wake no other waiter of this client, so the one behind the next looks after it as if
    /// they had: the next may be gone, or may not act.
    fn handed_off(
        &mut self,
        to: &TicketId,
        slot: Option<usize>,
        now: Moment,
        actions: &mut Vec<QueueAction>,
    ) {
        if let Some(id) = to.sequence()
            && let Some(waiter) = self.waiters.get_mut(&id)
            && waiter.id == *to
            && waiter.is_waiting()
        {
            waiter.freed(slot);
            waiter.wake(id, actions);
        }
        self.passed_over_since = Some(now);
        self.look_by(now + HEAD_START);
    }

    fn may_have_missed(&mut self, node: usize, now: Moment) {
        // On a new connection nothing is listened to yet.
        self.tell_of_others.remove(node);
        // A connection that breaks all the time must not make us look all the time.
        let next = self
            .last_missed
            .map_or(now, |last| now.max(last + HEAD_START));
        self.last_missed = Some(next);
        self.slots_unseen();
        self.refresh = Refresh::from(next);
        self.look_by(next);
    }

    fn look(&mut self, share: f64, now: Moment, actions: &mut Vec<QueueAction>) {
        if self.is_withdrawn {
            return actions.push(QueueAction::Inspect);
        }
        let every = spread(self.poll(), share);
        let part = self.refresh.next_part(&self.waiters, now, every);
        self.next_look = self.refresh.due();
        self.shown.clear();
        let Some((first, _)) = self.first() else {
            return;
        };
        let mut tickets = Vec::new();
        // Those who are left out have no place yet, so the next look comes at once.
        let turns = part
            .clone()
            .map_or(0, |part| self.waiters.range(part).count());
        let mut room = Refresh::part_of(self.waiters.len()).saturating_sub(turns);
        for (id, waiter) in self
            .waiters
            .iter()
            .filter(|(_, waiter)| waiter.is_waiting())
        {
            let has_turn = part.as_ref().is_some_and(|part| part.contains(id));
            let is_new = !has_turn && !waiter.is_settled && room > 0;
            room -= usize::from(is_new);
            if has_turn || is_new || waiter.id.is_reader() || *id == first {
                tickets.push(waiter.ticket());
                self.shown.push((*id, waiter.woken_by));
            }
        }
        actions.push(QueueAction::Show(tickets));
    }

    fn learn(
        &mut self,
        answers: Vec<Result<NodeQueue, NodeError>>,
        share: f64,
        now: Moment,
        actions: &mut Vec<QueueAction>,
    ) {
        let shown = std::mem::take(&mut self.shown);
        for (id, woken_by) in &shown {
            // What it was told before the look is answered by the look.
            if let Some(waiter) = self.waiters.get_mut(id) {
                waiter.woken_by = waiter.woken_by.without(*woken_by);
            }
        }
        let shown: Vec<_> = shown.into_iter().map(|(id, _)| id).collect();
        let view = QueueView::new(self.quorum, answers);
        if view.is_enough() {
            self.settle(&shown, &view, now, actions);
            match self.slots.is_some() {
                true => self.act_for_slots(&shown, &view, now, actions),
                false => self.act(&shown, &view, share, now, actions),
            }
        } else {
            let outcomes = view.answers().iter().map(outcome).collect();
            self.cut_off(outcomes, share, now, actions);
            let waiting = self.waiters.values().filter(|waiter| waiter.is_waiting());
            let tickets: Vec<_> = waiting.map(|waiter| waiter.id.clone()).collect();
            if !tickets.is_empty() {
                // A client that is cut off from the majority must not stand in its way.
                actions.push(QueueAction::Withdraw(tickets));
            }
        }
    }

    /// Takes over the numbers, and tells those who want to know.
    fn settle(
        &mut self,
        shown: &[WaiterId],
        view: &QueueView,
        now: Moment,
        actions: &mut Vec<QueueAction>,
    ) {
        let mut all_settled = true;
        for (n, id) in shown.iter().enumerate() {
            let Some(waiter) = self.waiters.get_mut(id) else {
                continue;
            };
            // Once it is settled it stays: a node that was not heard then may have a larger number,
            // and a waiter that has come since must not get before us by it.
            if !waiter.is_settled
                && let Some(number) = view.number(n)
            {
                self.order.remove(&(waiter.number.number(), *id));
                self.order.insert((number, *id));
                waiter.number = Standing::Agreed(number);
                waiter.is_settled = view.is_settled(n);
                waiter.has_place = true;
                all_settled &= waiter.is_settled;
            }
            if waiter.is_watched || waiter.is_worried {
                waiter.is_worried = false;
                let possession = view.possession();
                let (holder, split) = (possession.holder(), possession.parties());
                let is_taken = holder.is_some() || !split.is_empty();
                let opens_in = || view.opens_in(n, waiter.id.mode());
                actions.push(QueueAction::Tell {
                    waiter: *id,
                    holder: holder.map(|holder| holder.value.owner()),
                    split,
                    token: holder.and_then(|holder| holder.token),
                    remaining: is_taken.then(opens_in).flatten(),
                    place: view.place(n),
                    is_settled: waiter.is_settled,
                });
            }
        }
        if view.is_headed_by_others(&self.client) {
            self.others_seen = Some(now);
        }
        self.rounds = if all_settled { 0 } else { self.rounds + 1 };
        // A waiter that came during the look has not been shown yet.
        let is_new = |waiter: &Waiter| !waiter.has_place && waiter.phase != Phase::Attempting;
        let some_are_new = self.waiters.values().any(is_new);
        if some_are_new || (!all_settled && self.rounds < MOST_ROUNDS) {
            self.look_by(now);
        }
    }

    /// Wakes the first of those that were shown, or decides when to look again.
    fn act(
        &mut self,
        shown: &[WaiterId],
        view: &QueueView,
        share: f64,
        now: Moment,
        actions: &mut Vec<QueueAction>,
    ) {
        let Some((n, first)) = self.first_shown(shown) else {
            return;
        };
        let mode = self.waiters[&first].id.mode();
        let place = view.place(n);
        let is_first = place == Some(1);
        self.is_near = place.is_none_or(|place| place <= NEAR);
        let opens_in = view.opens_in(n, mode);
        let holder = view.holder();
        self.is_foreign = holder.is_some_and(|holder| !holder.value.is_ours());
        if opens_in != Some(Duration::ZERO) || !is_first {
            self.hold_up(shown);
        }
        if opens_in == Some(Duration::ZERO) {
            let passed_over = self.passed_over_since;
            let long_enough = passed_over.is_some_and(|since| now >= since + HEAD_START);
            if !is_first && !long_enough {
                let since = *self.passed_over_since.get_or_insert(now);
                return self.look_by(since + HEAD_START);
            }
            self.passed_over_since = None;
            self.wake(first, actions);
            if mode == TicketMode::Reader {
                self.wake_readers(shown, view, actions);
            }
            return;
        }
        if !view.is_free(mode) {
            self.passed_over_since = None;
        }
        let is_told = self.tell_of_others.len() >= self.quorum.needed();
        if self.is_foreign && is_first && !is_told {
            self.tracked = Some(first);
            actions.push(QueueAction::Track);
        }
        let next = self.next_look_after(view, mode, is_first, opens_in, share);
        self.look_by(now + next);
    }

    fn hold_up(&mut self, shown: &[WaiterId]) {
        for id in shown {
            if let Some(waiter) = self.waiters.get_mut(id) {
                waiter.is_held_up = true;
            }
        }
    }

    /// How long to wait before the next look at a lock that is not free for us.
    fn next_look_after(
        &mut self,
        view: &QueueView,
        mode: TicketMode,
        is_first: bool,
        opens_in: Option<Duration>,
        share: f64,
    ) -> Duration {
        let is_told = self.tell_of_others.len() >= self.quorum.needed();
        let poll = match view.holder() {
            Some(holder) if !holder.value.is_ours() && !is_told => POLL_FOREIGN,
            _ if self.must_poll => POLL_FOREIGN,
            _ => POLL,
        };
        // A waiter far behind has nothing to gain by looking soon.
        if view.is_split(mode) && self.is_near {
            let soon = self.pause(share);
            // The first waiter is there when a majority is free, however long some nodes have been.
            let opens_in = opens_in.filter(|_| is_first).unwrap_or(soon);
            return soon.min(opens_in.max(SOON));
        }
        self.soon.reset();
        if is_first || view.is_free(mode) {
            // Not more often than that, also when the nodes' clocks say that it is time all the time.
            let soonest = if is_first { SOON } else { HEAD_START };
            opens_in.unwrap_or(poll).clamp(soonest, spread(poll, share))
        } else {
            spread(POLL, share)
        }
    }

    /// The waiter with the smallest ticket of those that were shown and still wait, and which of the
    /// tickets that was.
    fn first_shown(&self, shown: &[WaiterId]) -> Option<(usize, WaiterId)> {
        // They were shown in the order of their own numbers.
        let place = |(id, _)| Some((shown.binary_search(&id).ok()?, id));
        self.waiting_in_order().find_map(place)
    }

    fn wake(&mut self, id: WaiterId, actions: &mut Vec<QueueAction>) {
        if let Some(waiter) = self.waiters.get_mut(&id) {
            waiter.wake(id, actions);
        }
    }

    /// Wakes together all readers that no holder and no writer keeps out.
    fn wake_readers(
        &mut self,
        shown: &[WaiterId],
        view: &QueueView,
        actions: &mut Vec<QueueAction>,
    ) {
        for (n, id) in shown.iter().enumerate() {
            let may_go = view.place(n) == Some(1)
                && view.opens_in(n, TicketMode::Reader) == Some(Duration::ZERO);
            if let Some(waiter) = self.waiters.get_mut(id)
                && may_go
                && waiter.is_waiting()
                && waiter.id.is_reader()
            {
                waiter.wake(*id, actions);
            }
        }
    }
}

fn outcome<T>(answer: &Result<T, NodeError>) -> NodeOutcome {
    match answer {
        Ok(_) => NodeOutcome::Agreed,
        Err(error) => NodeOutcome::Failed(error.clone()),
    }
}

#[cfg(test)]
mod tests;
