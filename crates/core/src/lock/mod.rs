//! The pure state machine of one lock on one node: no I/O, no clock, no randomness.
//!
//! The `memory` and `sqlite` nodes run this code. The Lua scripts of the `redis` node are a second
//! implementation, and a property test compares the two reply by reply. The simulation and the
//! model check run it unchanged.
//!
//! It decides only by the time that the caller passes in. Its register must never decrease while it
//! is kept: growing tokens depend on that.

use std::time::Duration;

use crate::words::lease_id::LeaseId;
use crate::words::stored::Stored;
use crate::words::ticket::{Place, Standing, Ticket, TicketId, TicketNumber, Wake};
use crate::words::token::FencingToken;
use crate::words::ttl::Ttl;
use crate::words::value::AttemptValue;
pub use command::{
    Command, Holder, NodeQueue, Precedence, Repair, Reply, Snapshot, TicketDisposition,
};

/// How long a register is kept after its lock was last held, so that idle names do not accumulate.
pub const REGISTER_RETENTION: Duration = Duration::from_secs(24 * 60 * 60);

/// How far a proposed token may be ahead of the node's own wall clock. A client whose clock is
/// years ahead would otherwise exhaust the numbers for all clients.
pub const MAX_SKEW: Duration = Duration::from_secs(60 * 60);

/// The maximum number of tombstones per lock. The oldest is dropped first: a command that arrives
/// after a thousand other releases may acquire a lock that no lease holds, until its TTL ends.
pub(crate) const MOST_TOMBSTONES: usize = 1000;

/// The node's two clocks at the time of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Time since the node started; never jumps. All expiry uses this clock.
    pub elapsed: Duration,
    /// Microseconds since 1970. Only limits the proposed token.
    pub wall_micros: u64,
}

/// One lock on one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "stored", derive(serde::Serialize, serde::Deserialize))]
pub struct LockState {
    holder: Option<Held>,
    /// The readers. Empty while there is an exclusive holder.
    #[cfg_attr(
        feature = "stored",
        serde(default, skip_serializing_if = "Vec::is_empty")
    )]
    readers: Vec<Held>,
    /// The fence register. Lock files use an older name for it.
    #[cfg_attr(
        feature = "stored",
        serde(rename = "counter", with = "serialized::token")
    )]
    register: FencingToken,
    #[cfg_attr(feature = "stored", serde(rename = "counter_until"))]
    register_until: Duration,
    /// Released attempts, whose late commands are refused until then.
    #[cfg_attr(feature = "stored", serde(with = "serialized::tombstones"))]
    tombstones: Vec<(AttemptValue, Duration)>,
    /// The waiters, head first.
    #[cfg_attr(
        feature = "stored",
        serde(default, skip_serializing_if = "Vec::is_empty")
    )]
    queue: Vec<Waiting>,
    /// The latest steal, so that its victim can be told.
    #[cfg_attr(
        feature = "stored",
        serde(default, skip_serializing_if = "Option::is_none")
    )]
    stolen: Option<Stolen>,
}

/// The victims of a steal. Kept as long as they could rely on their lease without asking; after
/// that their own clock tells them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "stored", derive(serde::Serialize, serde::Deserialize))]
struct Stolen {
    #[cfg_attr(feature = "stored", serde(with = "serialized::values"))]
    from: Vec<AttemptValue>,
    #[cfg_attr(feature = "stored", serde(with = "serialized::value"))]
    by: AttemptValue,
    until: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "stored", derive(serde::Serialize, serde::Deserialize))]
struct Held {
    #[cfg_attr(feature = "stored", serde(with = "serialized::value"))]
    value: AttemptValue,
    /// The token that `value` was granted, or has raised since. Others may raise the register above
    /// it.
    #[cfg_attr(feature = "stored", serde(default, with = "serialized::token"))]
    token: FencingToken,
    until: Duration,
}

/// Ordered by number, then by id.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "stored", derive(serde::Serialize, serde::Deserialize))]
struct Waiting {
    number: TicketNumber,
    id: TicketId,
    until: Duration,
}

impl LockState {
    /// Applies one command.
    pub fn apply(&mut self, command: &Command, now: Now) -> Reply {
        self.apply_and_wake(command, now, |_| {})
    }

    /// Applies one command, and returns the waiters to wake.
    pub fn apply_and_wake(&mut self, command: &Command, now: Now, wake: impl FnMut(Wake)) -> Reply {
        self.drop_expired(now.elapsed);
        let before = self.called();
        let reply = self.carry_out(command, now);
        // Only these commands free the lock or change the head of the queue.
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
            // The value that stands for all readers belongs to no holder: a command with it has no
            // claim.
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
                if self.register >= *to {
                    return Reply::NotRaised(self.register);
                }
                self.register = *to;
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
                    self.leave_tombstone(value, now.elapsed.saturating_add(*time));
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
                Reply::Queue(self.queue_seen_by(tickets, now.elapsed))
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
                register: self.register,
                waiting: self.queue.len(),
            }),
        }
    }

    /// The waiters at this time, head first.
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
            Reply::Granted { register, .. } => {
                self.stolen = stolen.or_else(|| self.stolen.take());
                Reply::Granted {
                    register,
                    evicted: thrown_out.map(|holder| holder.value),
                }
            }
            refused => {
                (self.holder, self.readers) = before;
                refused
            }
        }
    }

    /// Grants the lock to `value`, which already holds it or finds it free.
    fn grant(&mut self, value: &AttemptValue, ttl: Ttl, proposed: FencingToken, now: Now) -> Reply {
        if self.has_tombstone(value) {
            return Reply::Tombstoned;
        }
        if self.holder.is_none() {
            if !self.raise_register(proposed, now) {
                return Reply::Exhausted;
            }
            self.hold(value, ttl, self.register, now.elapsed);
        }
        Reply::Granted {
            register: self.register,
            evicted: None,
        }
    }

    /// The next number, or the proposed one if it is larger and not too far ahead. False when the
    /// numbers are exhausted.
    fn raise_register(&mut self, proposed: FencingToken, now: Now) -> bool {
        let Some(next) = self.register.next() else {
            return false;
        };
        let latest = now.wall_micros.saturating_add(MAX_SKEW.as_micros() as u64);
        self.register = next.max(proposed.min(FencingToken::saturating(latest)));
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
        self.register = self.register.max(token);
        self.hold(value, ttl, token, now);
        reply
    }

    /// Whether a value that this node has forgotten may have held the lock without interruption.
    fn may_repair(&self, value: &AttemptValue, token: FencingToken, repair: Repair) -> bool {
        let may = match repair {
            Repair::Always => true,
            Repair::UnlessOvertaken => self.register <= token,
            Repair::Never => false,
        };
        may && !self.has_tombstone(value) && !self.was_evicted(value)
    }

    /// Whether this value was evicted by a steal: a repair must not bring it back.
    fn was_evicted(&self, value: &AttemptValue) -> bool {
        let steal = self.stolen.as_ref();
        steal.is_some_and(|steal| steal.from.contains(value))
    }

    /// Extends the lock for `value`, which holds it or finds it free. Never shortens: a late
    /// extension with a smaller TTL must not take away what its holder was promised.
    fn hold(&mut self, value: &AttemptValue, ttl: Ttl, token: FencingToken, now: Duration) {
        let until = self.promised_to(value).max(now + ttl.get());
        let known = self.holder.as_ref().map(|held| held.token);
        self.register_until = until + REGISTER_RETENTION;
        self.holder = Some(Held {
            value: value.clone(),
            token: token.max(known.unwrap_or_default()),
            until,
        });
    }

    /// The expiry promised to `value`, as holder or reader.
    fn promised_to(&self, value: &AttemptValue) -> Duration {
        let mut holds = self.holder.iter().chain(&self.readers);
        let hold = holds.find(|held| held.value == *value);
        hold.map_or(Duration::ZERO, |held| held.until)
    }

    fn leave_tombstone(&mut self, value: &AttemptValue, until: Duration) {
        self.tombstones.retain(|(other, _)| other != value);
        if self.tombstones.len() == MOST_TOMBSTONES {
            self.tombstones.remove(0);
        }
        self.tombstones.push((value.clone(), until));
    }

    /// Whether this attempt, or its lease, was released.
    fn has_tombstone(&self, value: &AttemptValue) -> bool {
        let is_its = |(other, _): &(AttemptValue, _)| other == value;
        self.tombstones.iter().any(is_its) || self.has_released_lease_of(value)
    }

    /// Whether the lease of this attempt was released.
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
        // Nodes store no token for a reader.
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
        // An id chosen by the service is never used again.
        let attempt = |stored: &Stored| stored.value.lease_attempt().map(|of| of.attempt);
        if !released.iter().any(|stored| attempt(stored) == Some(0)) {
            self.leave_tombstone(&mark, until);
        }
        match (released.is_empty(), was_released) {
            (false, _) => Reply::LeaseReleased(released),
            (true, true) => Reply::Tombstoned,
            (true, false) => Reply::NotHeld(self.held_by(now)),
        }
    }

    /// The holder; if the lock is free, the waiter that comes before the caller.
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
                // Also behind those that were granted the lock and may return: see `Precedence`.
                let granted = TicketNumber::saturating(self.register.get());
                tail.unwrap_or_default().max(granted.next()).max(proposed)
            }
        };
        self.insert_waiter(Waiting {
            number,
            id: id.clone(),
            until: now.elapsed.saturating_add(lease),
        });
    }

    fn insert_waiter(&mut self, waiting: Waiting) {
        let place = self.queue.partition_point(|other| *other < waiting);
        self.queue.insert(place, waiting);
    }

    fn leave(&mut self, id: &TicketId) {
        self.queue.retain(|waiting| waiting.id != *id);
    }

    fn queue_seen_by(&self, tickets: &[Ticket], now: Duration) -> NodeQueue {
        let readers_in_front = self.readers_in_front();
        let place = |ticket: &Ticket| {
            let mut line = self.queue.iter().enumerate();
            let (ahead, waiting) = line.find(|(_, waiting)| waiting.id == ticket.id)?;
            // Readers do not block each other.
            let ahead = if ahead < readers_in_front { 0 } else { ahead };
            let number = waiting.number;
            Some(Place { number, ahead })
        };
        let head = self.queue.first().map(|first| {
            let is_shown = tickets.iter().any(|ticket| ticket.id == first.id);
            let some_fair = tickets.iter().any(|ticket| ticket.id.is_fair());
            let left = match is_shown || some_fair || first.id.is_fair() {
                true => first.until.saturating_sub(now),
                false => Duration::ZERO,
            };
            (first.id.clone(), left)
        });
        NodeQueue {
            holder: self.held_by(now),
            head,
            places: tickets.iter().filter_map(place).collect(),
        }
    }

    /// The reply to a caller that does not hold the lock while this other client does.
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
        if self.register_until <= now {
            self.register = FencingToken::ZERO;
        }
    }

    /// Frees the lock because its holder's process is known to be dead. Readers stay.
    pub fn evict_holder(&mut self) {
        self.holder = None;
    }

    /// The exclusive holder, expired or not.
    #[must_use]
    pub fn holder(&self) -> Option<&AttemptValue> {
        self.holder.as_ref().map(|held| &held.value)
    }

    /// After a reboot `elapsed` starts again: every lock is free, and the register stays.
    pub fn after_reboot(&mut self, now: Duration) {
        self.holder = None;
        self.readers.clear();
        self.tombstones.clear();
        self.queue.clear();
        self.stolen = None;
        self.register_until = now + REGISTER_RETENTION;
    }

    /// Whether there is neither a holder nor a reader.
    #[must_use]
    pub fn is_free(&self, now: Duration) -> bool {
        let mut held = self.holder.iter().chain(&self.readers);
        !held.any(|held| held.until > now)
    }

    /// Whether this lock can be forgotten without losing anything.
    #[must_use]
    pub fn is_forgettable(&self, now: Duration) -> bool {
        let held = !self.is_free(now);
        let refusing = self.tombstones.iter().any(|(_, until)| *until > now);
        let waited_for = self.queue.iter().any(|waiting| waiting.until > now);
        !held && !refusing && !waited_for && self.register_until <= now
    }
}

impl Waiting {
    /// As the holder of a lock reserved for it.
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
#[cfg(feature = "stored")]
mod serialized;
mod shared;
mod slot;
#[cfg(test)]
mod tests;
mod wake;
