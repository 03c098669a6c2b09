//! What is different where many may read: who reads, and writers that become readers.

use std::cell::Cell;

use fencepost::{Error, Lease, LockRequest};
use fencepost_checks::{Event, LeaseId, LeaseRef, Step};

use crate::fickle::fickle;
use crate::workload::{Client, Session, Wish};

/// What tells the leases of readers from the others.
const READER: u64 = 1 << 32;

/// The number of a lease that is to read or not.
pub(crate) fn lease_id(number: u64, reads: bool) -> LeaseId {
    LeaseId(if reads { number | READER } else { number })
}

/// Whether it is the lease of one who only reads.
pub(crate) fn is_reader(of: &LeaseRef) -> bool {
    of.lease.0 & READER != 0
}

impl Client {
    /// The request, for a lock of the kind that this run has.
    pub(crate) fn ask_for(&self, wish: &Wish) -> LockRequest {
        let lock = &wish.of.lock;
        match (self.world.plan.is_shared, wish.reads) {
            (false, _) => self.locks.lock(lock),
            (true, false) => self.locks.read_write(lock).write(),
            (true, true) => self.locks.read_write(lock).read(),
        }
    }
}

impl Session {
    /// Whether the next request is to read.
    pub(crate) fn reads(&mut self) -> bool {
        // Not asked where nobody shares: those seeds are what they were.
        self.client.world.plan.is_shared && self.dice.per_mille(600)
    }

    /// Whether a writer that has had enough goes on as a reader.
    pub(crate) fn stops_writing(&mut self, wish: &Wish) -> bool {
        !wish.reads && self.client.world.plan.is_shared && self.dice.per_mille(400)
    }

    /// Goes on as a reader, whose lease is valid from the moment at which the writer's ends: a writer
    /// that came in between would be found.
    pub(crate) async fn become_reader(&mut self, wish: &Wish, lease: Lease) {
        let client = self.client.clone();
        let reader = Wish {
            of: client.new_lease(wish.name, true),
            reads: true,
            known: Cell::new(wish.known.get()),
            ..*wish
        };
        let (token, valid_until) = (lease.token().get(), wish.known.get());
        let was_valid = lease.is_valid();
        client.record(&wish.of, Step::Releasing);
        if was_valid {
            client.record(&reader.of, Step::Acquired { token, valid_until });
        }
        match fickle(lease.downgrade(), self.patience()).await {
            Some(Ok(lease)) if was_valid => {
                client.note_validity(&reader, &lease);
                self.hold(&reader, &lease).await;
                self.end(&reader.of, lease).await;
            }
            Some(Err(Error::Lost { .. })) | None => {
                // Nobody used it meanwhile, however late the answer came.
                let at = client.world.now().min(valid_until);
                let dropped = Event::lease(at, &reader.of, Step::Dropped);
                client.world.inside().record(dropped);
            }
            Some(outcome) => {
                let what = format!("a lease that was over became a reader: {outcome:?}");
                client.world.inside().object("sharing", what, Vec::new());
            }
        }
    }
}
