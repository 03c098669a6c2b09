//! A lock that is one slot of a semaphore. All slots share one queue.

use std::mem::swap;

use super::{Command, LockState, Now, Precedence, Reply};
use crate::words::ticket::Wake;

impl LockState {
    /// Applies one command to the slot with this number. Waiters for any slot are enqueued at
    /// `whole`, and are woken with the number of the released slot.
    ///
    /// A grant leaves the ticket in the queue. Its waiter leaves by a command on `whole`, which
    /// wakes the next one, whichever slots are free.
    pub fn apply_to_slot(
        &mut self,
        whole: &mut Self,
        slot: usize,
        command: &Command,
        now: Now,
        mut wake: impl FnMut(Wake),
    ) -> Reply {
        swap(&mut self.queue, &mut whole.queue);
        let ticket = match command {
            Command::Acquire {
                turn: Precedence::Ticket(id),
                ..
            } => self.queue.iter().find(|waiting| waiting.id == *id).cloned(),
            _ => None,
        };
        let slot = Some(slot);
        let reply = self.apply_and_wake(command, now, |told| wake(Wake { slot, ..told }));
        if let (Reply::Granted { .. }, Some(waiting)) = (&reply, ticket)
            && waiting.until > now.elapsed
        {
            self.insert_waiter(waiting);
        }
        swap(&mut self.queue, &mut whole.queue);
        reply
    }
}
