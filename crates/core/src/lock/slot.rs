//! A lock that is one of the slots of a semaphore: all of them have one queue.

use std::mem::swap;

use super::{Command, LockState, Now, Precedence, Reply};
use crate::words::ticket::Wake;

impl LockState {
    /// Carries out one command on the slot of that number, at that time. A waiter for any slot
    /// waits in the queue of `whole`, and is woken with the number of the slot that was released.
    ///
    /// A grant leaves the ticket in the queue: its waiter leaves by a command on `whole`, and that
    /// wakes the next, whichever slots may be free.
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
            self.stand(waiting);
        }
        swap(&mut self.queue, &mut whole.queue);
        reply
    }
}
