//! The [latch](crate::Latch) and the [barrier](crate::Barrier) for threads.

use std::time::Duration;

use super::Client;
use crate::error::Error;
use crate::rendezvous::{Counted, Passage};

impl Client {
    /// A latch: opens when it has been counted down `counts` times, by whomever.
    ///
    /// ```
    /// # fn main() -> Result<(), fencepost::Error> {
    /// # let locks = fencepost::blocking::Client::memory()?;
    /// let latch = locks.latch("ready", 2);
    /// latch.count_down()?;
    /// assert_eq!(latch.remaining()?, 1);
    /// latch.count_down()?;
    /// latch.wait()?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn latch(&self, name: impl AsRef<str>, counts: usize) -> Latch {
        Latch {
            latch: self.locks.latch(name, counts),
            client: self.clone(),
        }
    }

    /// A barrier: lets `parties` pass when all of them are there.
    ///
    /// ```
    /// # fn main() -> Result<(), fencepost::Error> {
    /// # let locks = fencepost::blocking::Client::memory()?;
    /// let barrier = locks.barrier("phase-1", 2);
    /// let other = barrier.clone();
    /// let other = std::thread::spawn(move || other.wait());
    /// let passage = barrier.wait()?;
    /// assert!(passage.place() < 2);
    /// # other.join().unwrap()?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn barrier(&self, name: impl AsRef<str>, parties: usize) -> Barrier {
        Barrier {
            barrier: self.locks.barrier(name, parties),
            client: self.clone(),
        }
    }
}

/// Opens when it has been counted down k times: the [async latch](crate::Latch), with the same
/// promises, for threads.
#[derive(Clone, Debug)]
pub struct Latch {
    // Before the client, and with it the thread, so that it goes first.
    latch: crate::Latch,
    client: Client,
}

impl Latch {
    /// How long a count counts: see [`Latch::keep`](crate::Latch::keep).
    #[must_use]
    pub fn keep(mut self, time: Duration) -> Self {
        self.latch = self.latch.keep(time);
        self
    }

    /// Counts one down.
    ///
    /// # Errors
    /// As [`Latch::count_down`](crate::Latch::count_down).
    pub fn count_down(&self) -> Result<Counted, Error> {
        self.client.background.run(self.latch.count_down())
    }

    /// Counts down for the party of that number, once however often it is called.
    ///
    /// # Errors
    /// As [`Latch::count_down_as`](crate::Latch::count_down_as).
    pub fn count_down_as(&self, party: usize) -> Result<(), Error> {
        let counting = self.latch.count_down_as(party);
        self.client.background.run(counting)
    }

    /// Blocks until the latch is open.
    ///
    /// # Errors
    /// As [`Latch::wait`](crate::Latch::wait).
    pub fn wait(&self) -> Result<(), Error> {
        self.client.background.run(self.latch.wait())
    }

    /// Blocks until the latch is open, but no longer than that.
    ///
    /// # Errors
    /// As [`Latch::wait_at_most`](crate::Latch::wait_at_most).
    pub fn wait_at_most(&self, time: Duration) -> Result<(), Error> {
        self.client.background.run(self.latch.wait_at_most(time))
    }

    /// How many counts are still to come.
    ///
    /// # Errors
    /// As [`Latch::remaining`](crate::Latch::remaining).
    pub fn remaining(&self) -> Result<usize, Error> {
        self.client.background.run(self.latch.remaining())
    }
}

/// Lets k pass when all of them are there: the [async barrier](crate::Barrier), with the same
/// promises, for threads.
#[derive(Clone, Debug)]
pub struct Barrier {
    // Before the client, and with it the thread, so that it goes first.
    barrier: crate::Barrier,
    client: Client,
}

impl Barrier {
    /// How long a round is remembered: see [`Barrier::keep`](crate::Barrier::keep).
    #[must_use]
    pub fn keep(mut self, time: Duration) -> Self {
        self.barrier = self.barrier.keep(time);
        self
    }

    /// How long a place is kept for a party that is silent: see [`Barrier::ttl`](crate::Barrier::ttl).
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.barrier = self.barrier.ttl(ttl);
        self
    }

    /// Blocks until all are there, and passes.
    ///
    /// # Errors
    /// As [`Barrier::wait`](crate::Barrier::wait).
    pub fn wait(&self) -> Result<Passage, Error> {
        self.client.background.run(self.barrier.wait())
    }

    /// Blocks until all are there, but no longer than that, and passes.
    ///
    /// # Errors
    /// As [`Barrier::wait_at_most`](crate::Barrier::wait_at_most).
    pub fn wait_at_most(&self, time: Duration) -> Result<Passage, Error> {
        let waiting = self.barrier.wait_at_most(time);
        self.client.background.run(waiting)
    }

    /// How many are still to come.
    ///
    /// # Errors
    /// As [`Barrier::missing`](crate::Barrier::missing).
    pub fn missing(&self) -> Result<usize, Error> {
        self.client.background.run(self.barrier.missing())
    }
}
