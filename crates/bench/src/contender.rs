//! [`Contender`]: one task's hold on a contender. What it does is timed from outside.

use std::time::Duration;

/// The TTL that every contender asks for.
pub(crate) const TTL: Duration = Duration::from_secs(10);

/// One task with a lock name of its own, so that nobody ever waits for anybody.
pub(crate) trait Contender: Send + 'static {
    /// What an acquisition gives, and a release takes.
    type Held: Send;

    /// Takes the lock.
    fn acquire(&mut self) -> impl Future<Output = Self::Held> + Send;

    /// Gives it back, and waits for as much of an answer as the contender does by default.
    fn release(&mut self, held: Self::Held) -> impl Future<Output = ()> + Send;
}
