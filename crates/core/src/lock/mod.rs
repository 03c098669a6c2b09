//! The pure state machine of one lock on one node: no I/O, no clock, no randomness.
//!
//! The `memory` and `sqlite` nodes run this code; the Lua scripts of the `redis` node are its
//! second implementation, and a property test compares the two reply by reply. The simulation and
//! the model check run it as it is.
//!
//! It must never decide anything from a time that was not handed to it, and its counter must never
//! fall while it is kept: the growth of tokens rests on that.

use std::time::Duration;

use crate::words::ticket::{Place, Standing, Ticket, TicketId, TicketNumber, Wake};
use crate::words::token::FencingToken;
use crate::words::ttl::Ttl;
use crate::words::value::{AttemptValue, LeaseId, Stored};
pub use command::{
    Command, Holder, NodeQueue, Precedence, Repair, Reply, Snapshot, TicketDisposition,
};

/// How long a counter is kept after its lock was last held, so that idle names do not pile up.
pub const COUNTER_RETENTION: Duration = Duration::from_secs(24 * 60 * 60);

/// How far a proposed token may lie ahead of the node's own wall clock. A client whose clock is
/// years ahead would otherwise use the numbers up for everybody.
pub const MAX_SKEW: Duration = Duration::from_secs(60 * 60);

/// The most tombstones of one lock. The oldest makes room: what comes later than a thousand others may be
/// granted for nobody, until its TTL ends.
pub const MOST_TOMBSTONES: usize = 1000;

/// The node's two clocks at the moment of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Since the node's own beginning; never jumps. Everything expires by this.
    pub elapsed: Duration,
    /// Microseconds since 1970. Only bounds what token may be proposed.
    pub wall_micros: u64,
}

/// One lock on one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct LockState {
    holder: Option<Held>,
    /// Who reads: never anybody while there is a holder.
    #[cfg_attr(
        feature = "serde",
        serde(default, skip_serializing_if = "Vec::is_empty")
    )]
    readers: Vec<Held>,
    counter: FencingToken,
    counter_until: Duration,
    /// Given-up attempts, whose late commands are refused until then.
    tombstones: Vec<(AttemptValue, Duration)>,
    /// Who waits, the next one first.
    #[cfg_attr(
        feature = "serde",
        serde(default, skip_serializing_if = "Vec::is_empty")
    )]
    queue: Vec<Waiting>,
    /// The latest steal, for the holder that it evicted.
    #[cfg_attr(
        feature = "serde",
        serde(default, skip_serializing_if = "Option::is_none")
    )]
    stolen: Option<Stolen>,
}

/// Whom a steal evicted. Kept for as long as they could have gone on without asking: afterwards they know by
/// their own clock that it is over.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
struct Stolen {
    from: Vec<AttemptValue>,
    by: AttemptValue,
    until: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
struct Held {
    value: AttemptValue,
    /// What `value` was granted, or has raised its token to since. Others may lift the counter above it.
    #[cfg_attr(feature = "serde", serde(default))]
    token: FencingToken,
    until: Duration,
}

/// Sorted by number, and by id where two have the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
struct Waiting {
    number: TicketNumber,
    id: TicketId,
    until: Duration,
}

impl LockState {
    /// Carries out one command at that time.
    pub fn apply(&mut self, command: &Command, now: Now) -> Reply {
        self.apply_and_wake(command, now, |_| {})
    }

    /// Carries out one command at that time, and says who is to be told that it is their turn.
    pub fn apply_and_wake(&mut self, command: &Command, now: Now, wake: impl FnMut(Wake)) -> Reply {
        self.drop_expired(now.elapsed);
        let before = self.called();
        let reply = self.carry_out(command, now);
        // Only these let others go: they free the lock, or change who is first.
        let may_wake = matches!(
            command,
            Command::Release { .. }
                | Command::ReleaseLease { .. }
                | Command::Leave { .. }
                | Command::Enqueue { .. }
                | Command::ExtendShared { .. }
        );
        if may_wake {
            self.wake_next(command, &before, wake);
        }
        reply
    }

    fn carry_out(&mut self, command: &Command, now: Now) -> Reply {
        if command.value().is_some_and(AttemptValue::is_shared) {
            // What stands for all readers is no holder's value: a command that sends it has no claim.
            return match command.may_take() {
                true => Reply::Tombstoned,
                false => Reply::NotHeld(None),
            };
        }
        match command {
            Command::Acquire {
                value,
                ttl,
                proposed,
                turn,
            } => {
                if let Some(other) = self.who_is_in_the_way(value, turn, now.elapsed) {
                    return Reply::Held(other);
                }
                let reply = self.grant(value, *ttl, *proposed, now);
                if let (Reply::Granted { .. }, Precedence::Ticket(id)) = (&reply, turn) {
                    self.leave(id);
                }
                reply
            }
            Command::Share {
                value,
                ttl,
                proposed,
                turn,
            } => self.share(value, *ttl, *proposed, turn, now),
            Command::Steal {
                value,
                ttl,
                proposed,
                from,
            } => match self.held_by(now.elapsed) {
                Some(holder)
                    if !from.is_empty()
                        && holder.value != *value
                        && !from.contains(&holder.value) =>
                {
                    Reply::Held(holder)
                }
                _ => self.steal(value, *ttl, *proposed, now),
            },
            Command::Raise { value, to } => {
                if !self.holds_or_reads(value) {
                    return Reply::NotHeld(self.held_by(now.elapsed));
                }
                if let Some(held) = &mut self.holder {
                    held.token = held.token.max(*to);
                }
                if self.counter >= *to {
                    return Reply::NotRaised(self.counter);
                }
                self.counter = *to;
                Reply::Raised(*to)
            }
            Command::Extend {
                value,
                ttl,
                token,
                repair,
                ..
            } => self.extend(value, *ttl, *token, *repair, now.elapsed),
            Command::ExtendShared { value, ttl, token } => {
                self.extend_shared(value, *ttl, *token, now.elapsed)
            }
            Command::Release {
                value,
                tombstone,
                ticket,
                ..
            } => {
                if let Some(time) = tombstone {
                    self.bury(value, now.elapsed.saturating_add(*time));
                }
                match ticket {
                    TicketDisposition::Stays => {}
                    TicketDisposition::Leaves(id) => self.leave(id),
                    TicketDisposition::Returns { id, number, lease } => {
                        self.queue(id, Standing::Agreed(*number), *lease, now);
                    }
                }
                if !self.holds_or_reads(value) {
                    return self.not_held(value, self.held_by(now.elapsed));
                }
                self.holder = None;
                self.stop_reading(value);
                Reply::Released
            }
            Command::ReleaseLease { lease, tombstone } => {
                self.release_lease(*lease, now.elapsed.saturating_add(*tombstone), now.elapsed)
            }
            Command::Enqueue { tickets, lease } => {
                for ticket in tickets {
                    self.queue(&ticket.id, ticket.number, *lease, now);
                }
                Reply::Queue(self.line_seen_by(tickets, now.elapsed))
            }
            Command::Leave { tickets } => {
                for id in tickets {
                    self.leave(id);
                }
                Reply::Left
            }
            Command::Inspect => Reply::Snapshot(Snapshot {
                holder: self.held_by(now.elapsed),
                readers: self.readers_seen_at(now.elapsed),
                counter: self.counter,
                waiting: self.queue.len(),
            }),
        }
    }

    /// Who waits at that time, the next one first.
    pub fn waiting_at(&self, now: Duration) -> impl Iterator<Item = (&TicketId, TicketNumber)> {
        let waits = move |waiter: &&Waiting| waiter.until > now;
        let waiting = self.queue.iter().filter(waits);
        waiting.map(|waiter| (&waiter.id, waiter.number))
    }

    fn steal(&mut self, value: &AttemptValue, ttl: Ttl, proposed: FencingToken, now: Now) -> Reply {
        let before = (self.holder.clone(), self.readers.clone());
        let other = |holder: &Holder| holder.value != *value;
        let thrown_out = self.held_by(now.elapsed).filter(other);
        let mut stolen = None;
        if let Some(left) = thrown_out.as_ref().and_then(|holder| holder.remaining) {
            stolen = Some(Stolen {
                from: self.holders().cloned().collect(),
                by: value.clone(),
                until: now.elapsed + left,
            });
            self.holder = None;
            self.readers.clear();
        }
        match self.grant(value, ttl, proposed, now) {
            Reply::Granted { counter, .. } => {
                self.stolen = stolen.or_else(|| self.stolen.take());
                Reply::Granted {
                    counter,
                    evicted: thrown_out.map(|holder| holder.value),
                }
            }
            refused => {
                (self.holder, self.readers) = before;
                refused
            }
        }
    }

    /// Grants to `value`, which holds the lock already or finds it free.
    fn grant(&mut self, value: &AttemptValue, ttl: Ttl, proposed: FencingToken, now: Now) -> Reply {
        if self.has_tombstone(value) {
            return Reply::Tombstoned;
        }
        if self.holder.is_none() {
            if !self.lift_counter(proposed, now) {
                return Reply::Exhausted;
            }
            self.hold(value, ttl, self.counter, now.elapsed);
        }
        Reply::Granted {
            counter: self.counter,
            evicted: None,
        }
    }

    /// The next number, or the proposed one if that is larger and not too far ahead. False when
    /// there is none any more.
    fn lift_counter(&mut self, proposed: FencingToken, now: Now) -> bool {
        let Some(next) = self.counter.next() else {
            return false;
        };
        let latest = now.wall_micros.saturating_add(MAX_SKEW.as_micros() as u64);
        self.counter = next.max(proposed.min(FencingToken::saturating(latest)));
        true
    }

    fn extend(
        &mut self,
        value: &AttemptValue,
        ttl: Ttl,
        token: FencingToken,
        repair: Repair,
        now: Duration,
    ) -> Reply {
        let reply = match &self.holder {
            Some(held) if held.value == *value => Reply::Extended,
            None if self.may_repair(value, token, repair) && self.readers.is_empty() => {
                Reply::Repaired
            }
            _ => return self.not_held(value, self.held_by(now)),
        };
        self.counter = self.counter.max(token);
        self.hold(value, ttl, token, now);
        reply
    }

    /// Whether a value that this node has forgotten may have had the lock ever since.
    fn may_repair(&self, value: &AttemptValue, token: FencingToken, repair: Repair) -> bool {
        let is_overtaken = repair == Repair::UnlessOvertaken && self.counter > token;
        !is_overtaken && !self.has_tombstone(value) && !self.was_evicted(value)
    }

    /// Whether a steal took the lock from this value: it must not have it again by a repair.
    fn was_evicted(&self, value: &AttemptValue) -> bool {
        let steal = self.stolen.as_ref();
        steal.is_some_and(|steal| steal.from.contains(value))
    }

    /// Keeps the lock for `value`, which has it already or finds it free, for at least that long: a late
    /// extension with a shorter TTL takes away nothing that its holder was promised.
    fn hold(&mut self, value: &AttemptValue, ttl: Ttl, token: FencingToken, now: Duration) {
        let until = self.promised_to(value).max(now + ttl.get());
        let known = self.holder.as_ref().map(|held| held.token);
        self.counter_until = until + COUNTER_RETENTION;
        self.holder = Some(Held {
            value: value.clone(),
            token: token.max(known.unwrap_or_default()),
            until,
        });
    }

    /// The end of what `value` has been promised, as holder or reader.
    fn promised_to(&self, value: &AttemptValue) -> Duration {
        let mut holds = self.holder.iter().chain(&self.readers);
        let hold = holds.find(|held| held.value == *value);
        hold.map_or(Duration::ZERO, |held| held.until)
    }

    fn bury(&mut self, value: &AttemptValue, until: Duration) {
        self.tombstones.retain(|(other, _)| other != value);
        if self.tombstones.len() == MOST_TOMBSTONES {
            self.tombstones.remove(0);
        }
        self.tombstones.push((value.clone(), until));
    }

    /// Whether this attempt was given up, or the lease that it is for was released.
    fn has_tombstone(&self, value: &AttemptValue) -> bool {
        let is_its = |(other, _): &(AttemptValue, _)| other == value;
        self.tombstones.iter().any(is_its) || self.has_released_lease_of(value)
    }

    /// Whether the lease was released that this attempt is for.
    fn has_released_lease_of(&self, value: &AttemptValue) -> bool {
        if self.tombstones.is_empty() {
            return false;
        }
        let Some(of) = value.lease_attempt() else {
            return false;
        };
        let mark = AttemptValue::of_lease(of.lease);
        self.tombstones.iter().any(|(other, _)| *other == mark)
    }

    fn release_lease(&mut self, lease: LeaseId, until: Duration, now: Duration) -> Reply {
        let of_lease = |held: &Held| {
            let of = held.value.lease_attempt();
            of.is_some_and(|of| of.lease == lease)
        };
        // Of a reader no node keeps a token.
        let stored = |held: &Held, token| Stored {
            value: held.value.clone(),
            token,
        };
        let mark = AttemptValue::of_lease(lease);
        let was_released = self.has_tombstone(&mark);
        let holder = self.holder.take_if(|held| of_lease(held));
        let written = holder.iter().map(|held| stored(held, Some(held.token)));
        let mut released: Vec<_> = written.collect();
        let (mut its, others): (Vec<_>, Vec<_>) = self.readers.drain(..).partition(of_lease);
        self.readers = others;
        its.sort_by_key(|held| held.until);
        released.extend(its.iter().map(|held| stored(held, None)));
        // Nobody acquires again under an id that the service made.
        let attempt = |stored: &Stored| stored.value.lease_attempt().map(|of| of.attempt);
        if !released.iter().any(|stored| attempt(stored) == Some(0)) {
            self.bury(&mark, until);
        }
        match (released.is_empty(), was_released) {
            (false, _) => Reply::LeaseReleased(released),
            (true, true) => Reply::Tombstoned,
            (true, false) => Reply::NotHeld(self.held_by(now)),
        }
    }

    /// Who has the lock; where it is free, who is to be served before the one who asks.
    fn who_is_in_the_way(
        &self,
        value: &AttemptValue,
        turn: &Precedence,
        now: Duration,
    ) -> Option<Holder> {
        if let Some(held) = &self.holder {
            return (held.value != *value).then(|| held.seen_at(now));
        }
        if !self.readers.is_empty() {
            return self.held_by(now);
        }
        let first = self.queue.first()?;
        let goes_before = match turn {
            Precedence::MayPass => first.id.is_fair(),
            Precedence::PassNobody => true,
            Precedence::Ticket(id) => first.id != *id && (id.is_fair() || first.id.is_fair()),
        };
        goes_before.then(|| first.seen_at(now))
    }

    fn queue(&mut self, id: &TicketId, number: Standing, lease: Duration, now: Now) {
        let known = self.queue.iter().position(|other| other.id == *id);
        let known = known.map(|place| self.queue.remove(place).number);
        let number = match (known, number) {
            (Some(known), Standing::Proposed(_)) => known,
            (_, Standing::Agreed(number)) => number,
            (None, Standing::Proposed(number)) => {
                let latest = now.wall_micros.saturating_add(MAX_SKEW.as_micros() as u64);
                let proposed = number.min(TicketNumber::saturating(latest));
                let tail = self.queue.last().map(|last| last.number.next());
                // Also behind those who were granted the lock, and may come back: see `Precedence`.
                let granted = TicketNumber::saturating(self.counter.get());
                tail.unwrap_or_default().max(granted.next()).max(proposed)
            }
        };
        self.stand(Waiting {
            number,
            id: id.clone(),
            until: now.elapsed.saturating_add(lease),
        });
    }

    fn stand(&mut self, waiting: Waiting) {
        let place = self.queue.partition_point(|other| *other < waiting);
        self.queue.insert(place, waiting);
    }

    fn leave(&mut self, id: &TicketId) {
        self.queue.retain(|waiting| waiting.id != *id);
    }

    fn line_seen_by(&self, tickets: &[Ticket], now: Duration) -> NodeQueue {
        let readers_in_front = self.readers_in_front();
        let place = |ticket: &Ticket| {
            let mut line = self.queue.iter().enumerate();
            let (ahead, waiting) = line.find(|(_, waiting)| waiting.id == ticket.id)?;
            // Those who read together are not in each other's way.
            let ahead = if ahead < readers_in_front { 0 } else { ahead };
            let number = waiting.number;
            Some(Place { number, ahead })
        };
        let head = self.queue.first();
        NodeQueue {
            holder: self.held_by(now),
            head: head.map(|first| (first.id.clone(), first.until.saturating_sub(now))),
            places: tickets.iter().filter_map(place).collect(),
        }
    }

    /// The answer to a caller that does not hold the lock, while that other one does.
    fn not_held(&self, value: &AttemptValue, other: Option<Holder>) -> Reply {
        match &self.stolen {
            Some(steal) if other.is_none() && self.was_evicted(value) => {
                Reply::Stolen(steal.by.clone())
            }
            _ => Reply::NotHeld(other),
        }
    }

    fn drop_expired(&mut self, now: Duration) {
        self.holder.take_if(|held| held.until <= now);
        self.readers.retain(|held| held.until > now);
        self.tombstones.retain(|(_, until)| *until > now);
        self.queue.retain(|waiting| waiting.until > now);
        self.stolen.take_if(|steal| steal.until <= now);
        if self.counter_until <= now {
            self.counter = FencingToken::ZERO;
        }
    }

    /// Frees the lock because its holder is known to be gone: its process died. Readers stay.
    pub fn evict_holder(&mut self) {
        self.holder = None;
    }

    /// Who holds the lock for itself, expired or not.
    #[must_use]
    pub fn holder(&self) -> Option<&AttemptValue> {
        self.holder.as_ref().map(|held| &held.value)
    }

    /// After a reboot `elapsed` begins again: nothing is held, the counter stays.
    pub fn after_reboot(&mut self, now: Duration) {
        self.holder = None;
        self.readers.clear();
        self.tombstones.clear();
        self.queue.clear();
        self.stolen = None;
        self.counter_until = now + COUNTER_RETENTION;
    }

    /// Whether it has neither a holder nor a reader.
    #[must_use]
    pub fn is_free(&self, now: Duration) -> bool {
        let mut held = self.holder.iter().chain(&self.readers);
        !held.any(|held| held.until > now)
    }

    /// Whether nothing would be lost by forgetting this lock.
    #[must_use]
    pub fn is_forgettable(&self, now: Duration) -> bool {
        let held = !self.is_free(now);
        let refusing = self.tombstones.iter().any(|(_, until)| *until > now);
        let waited_for = self.queue.iter().any(|waiting| waiting.until > now);
        !held && !refusing && !waited_for && self.counter_until <= now
    }
}

impl Waiting {
    /// As the one for whom a lock is kept.
    fn seen_at(&self, now: Duration) -> Holder {
        Holder {
            value: AttemptValue::reported(self.id.as_str()),
            token: None,
            remaining: Some(self.until.saturating_sub(now)),
        }
    }
}

impl Held {
    fn seen_at(&self, now: Duration) -> Holder {
        Holder {
            value: self.value.clone(),
            token: self.value.has_token().then_some(self.token),
            remaining: Some(self.until.saturating_sub(now)),
        }
    }
}

mod command;
pub mod plain;
mod shared;
mod slot;
#[cfg(test)]
mod tests;
mod wake;
