//! Many readers or one writer: the shared mode of [`LockState`].
//!
//! A reader is never admitted while a writer holds the lock, nor ahead of a writer that was
//! enqueued before it. Each reader has its own expiry: a dead reader blocks writers for its own TTL
//! at most.

use std::time::Duration;

use super::{Held, Holder, LockState, Now, Precedence, REGISTER_RETENTION, Repair, Reply};
use crate::words::token::FencingToken;
use crate::words::ttl::Ttl;
use crate::words::value::AttemptValue;

impl LockState {
    /// Admits a reader. The first one raises the register, as a writer does. Readers that join get
    /// the same number, so a reader's token is never below the last writer's.
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
            let is_first = self.readers.is_empty() || self.register == FencingToken::ZERO;
            if is_first && !self.raise_register(proposed, now) {
                return Reply::Exhausted;
            }
            self.hold_shared(value, ttl, now.elapsed);
        }
        if let Precedence::Ticket(id) = turn {
            self.leave(id);
        }
        Reply::Granted {
            register: self.register,
            evicted: None,
        }
    }

    /// The writer that holds the lock, or else the writer that comes before the caller.
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
            // Other readers have taken nothing from this one.
            other => {
                let other = other.as_ref().map(|held| held.seen_at(now));
                return self.not_held(value, other);
            }
        };
        self.register = self.register.max(token);
        self.hold_shared(value, ttl, now);
        self.holder = None;
        reply
    }

    fn hold_shared(&mut self, value: &AttemptValue, ttl: Ttl, now: Duration) {
        let until = self.promised_to(value).max(now + ttl.get());
        self.stop_reading(value);
        self.register_until = until + REGISTER_RETENTION;
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

    /// Every holder and reader, expired or not.
    pub fn holders(&self) -> impl Iterator<Item = &AttemptValue> {
        let holders = self.holder.iter().chain(&self.readers);
        holders.map(|held| &held.value)
    }

    /// The holder. All readers together count as one.
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
            // They share the register, and nodes store no token for each of them.
            token: None,
            ..held.seen_at(now)
        };
        readers.iter().map(seen).collect()
    }
}
