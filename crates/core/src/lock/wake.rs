//! Which waiters a node wakes.
//!
//! No waiter is woken twice for the same release: with five hundred waiters, that keeps a release
//! cheap.

use std::time::Duration;

use super::{Command, LockState, Waiting};
use crate::words::ticket::{TicketId, Wake};

impl LockState {
    /// The waiters that may acquire the lock now: the head of the queue, or all readers ahead of
    /// the first writer.
    pub(super) fn called(&self) -> Vec<TicketId> {
        let called = &self.queue[..self.how_many_are_called()];
        called.iter().map(|waiting| waiting.id.clone()).collect()
    }

    /// Wakes the waiters that may acquire the lock from now on, and the one after them; not those
    /// that see it in the reply to their own command.
    pub(super) fn wake_next(
        &self,
        command: &Command,
        before: &[TicketId],
        mut wake: impl FnMut(Wake),
    ) {
        let sees_by_itself = |id: &TicketId| match command {
            Command::Release {
                ticket, follower, ..
            } => {
                let is_of_follower = follower.as_ref().is_some_and(|client| id.is_of(client));
                is_of_follower || ticket.returns() == Some(id)
            }
            Command::Enqueue { tickets, .. } => tickets.iter().any(|ticket| ticket.id == *id),
            _ => false,
        };
        let everywhere = match command {
            Command::Release { is_lease, .. } => *is_lease,
            Command::ReleaseLease { .. } => true,
            _ => false,
        };
        let called = self.how_many_are_called();
        let is_new = |waiting: &&Waiting| !before.contains(&waiting.id);
        let first = self.queue[..called].iter().filter(is_new);
        let mut first = first.map(|next| (next, true)).peekable();
        let second = first.peek().and(self.queue.get(called));
        for (next, first) in first.chain(second.map(|next| (next, false))) {
            if !sees_by_itself(&next.id) {
                wake(Wake {
                    ticket: next.id.clone(),
                    first,
                    everywhere: first && everywhere,
                    slot: None,
                });
            }
        }
    }

    /// The head of the queue and the one after it: for a node that notices by itself that the lock
    /// is free.
    #[must_use]
    pub fn next_waiters(&self, now: Duration) -> Vec<Wake> {
        let mut state = self.clone();
        state.drop_expired(now);
        let mut next = Vec::new();
        state.wake_next(&Command::Inspect, &[], |wake| next.push(wake));
        next
    }

    /// How many waiters may acquire the lock now.
    fn how_many_are_called(&self) -> usize {
        match self.queue.first() {
            Some(first) if self.holder.is_none() && first.id.is_reader() => self.readers_in_front(),
            Some(_) if self.holder.is_none() && self.readers.is_empty() => 1,
            _ => 0,
        }
    }

    /// The number of readers ahead of the first writer.
    pub(super) fn readers_in_front(&self) -> usize {
        let writer = self.queue.iter().position(|next| !next.id.is_reader());
        writer.unwrap_or(self.queue.len())
    }
}
