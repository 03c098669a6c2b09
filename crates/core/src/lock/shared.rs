//! Many readers, or one writer: what [`LockState`] does for readers.
//!
//! A reader is never let in while a writer holds the lock, nor before a writer that was in the queue
//! before it. Each has an expiry of its own: a dead reader keeps writers out for its own TTL and not
//! longer.

use std::time::Duration;

use super::{COUNTER_RETENTION, Held, Holder, LockState, Now, Precedence, Repair, Reply};
use crate::words::token::FencingToken;
use crate::words::ttl::Ttl;
use crate::words::value::AttemptValue;

impl LockState {
    /// Lets a reader in. The first one moves the counter, as a writer does; one that joins it gets
    /// the same number, so that a reader's token is never below the last writer's.
    pub(super) fn share(
        &mut self,
        value: &AttemptValue,
        ttl: Ttl,
        proposed: FencingToken,
        turn: &Precedence,
        now: Now,
    ) -> Reply {
        let reads_already = self.reads(value);
        if !reads_already && let Some(other) = self.who_keeps_readers_out(turn, now.elapsed) {
            return Reply::Held(other);
        }
        if self.has_tombstone(value) {
            return Reply::Tombstoned;
        }
        if !reads_already {
            let is_first = self.readers.is_empty() || self.counter == FencingToken::ZERO;
            if is_first && !self.lift_counter(proposed, now) {
                return Reply::Exhausted;
            }
            self.hold_shared(value, ttl, now.elapsed);
        }
        if let Precedence::Ticket(id) = turn {
            self.leave(id);
        }
        Reply::Granted {
            counter: self.counter,
            evicted: None,
        }
    }

    /// The writer that holds the lock; where none does, the writer to be served before the caller.
    fn who_keeps_readers_out(&self, turn: &Precedence, now: Duration) -> Option<Holder> {
        if let Some(held) = &self.holder {
            return Some(held.seen_at(now));
        }
        let before = match turn {
            Precedence::Ticket(id) => self.queue.iter().position(|waiting| waiting.id == *id),
            Precedence::MayPass | Precedence::PassNobody => None,
        };
        let before = &self.queue[..before.unwrap_or(self.queue.len())];
        let writer = before.iter().find(|waiting| !waiting.id.is_reader())?;
        Some(writer.seen_at(now))
    }

    pub(super) fn extend_shared(
        &mut self,
        value: &AttemptValue,
        ttl: Ttl,
        token: FencingToken,
        now: Duration,
    ) -> Reply {
        let reply = match &self.holder {
            _ if self.holds_or_reads(value) => Reply::Extended,
            None if self.may_repair(value, token, Repair::UnlessOvertaken) => Reply::Repaired,
            // Others who read have taken nothing from this one.
            other => {
                let other = other.as_ref().map(|held| held.seen_at(now));
                return self.not_held(value, other);
            }
        };
        self.counter = self.counter.max(token);
        self.hold_shared(value, ttl, now);
        self.holder = None;
        reply
    }

    fn hold_shared(&mut self, value: &AttemptValue, ttl: Ttl, now: Duration) {
        let until = self.promised_to(value).max(now + ttl.get());
        self.stop_reading(value);
        self.counter_until = until + COUNTER_RETENTION;
        self.readers.push(Held {
            value: value.clone(),
            token: FencingToken::ZERO,
            until,
        });
    }

    pub(super) fn stop_reading(&mut self, value: &AttemptValue) {
        self.readers.retain(|held| held.value != *value);
    }

    pub(super) fn holds_or_reads(&self, value: &AttemptValue) -> bool {
        match &self.holder {
            Some(held) => held.value == *value,
            None => self.reads(value),
        }
    }

    fn reads(&self, value: &AttemptValue) -> bool {
        self.readers.iter().any(|held| held.value == *value)
    }

    /// Who holds the lock or reads it, expired or not.
    pub fn holders(&self) -> impl Iterator<Item = &AttemptValue> {
        let holders = self.holder.iter().chain(&self.readers);
        holders.map(|held| &held.value)
    }

    /// Who has the lock. All readers together are one holder.
    pub(super) fn held_by(&self, now: Duration) -> Option<Holder> {
        if let Some(held) = &self.holder {
            return Some(held.seen_at(now));
        }
        let last = self.readers.iter().map(|held| held.until).max()?;
        Some(Holder {
            value: AttemptValue::shared(),
            token: None,
            remaining: Some(last.saturating_sub(now)),
        })
    }

    pub(super) fn readers_seen_at(&self, now: Duration) -> Vec<Holder> {
        let mut readers: Vec<_> = self.readers.iter().collect();
        readers.sort_by_key(|held| held.until);
        let seen = |held: &&Held| Holder {
            // They share the counter, and no node keeps one for each of them.
            token: None,
            ..held.seen_at(now)
        };
        readers.iter().map(seen).collect()
    }
}
