//! What is different where many may read: who reads, and writers that become readers.
//!
//! A reader may never write to the guarded resource. The checkers tell readers from writers by what is
//! written down of a lease, so its number says which of the two it is.

use std::time::Duration;

use fencepost::{DetachedLock, Error, FencingToken, Lease, WriteLease};
use fencepost_checks::{LeaseId, LeaseRef, Step};
use tokio::time::sleep;

use crate::client::{SimClient, Wish};
use crate::fickle::fickle;
use crate::held::Held;
use crate::plan::Work;
use crate::workload::{Session, judge_loss, while_held};

/// What nodes store in the place of a holder where some read.
const MARK: &str = "fencepost:shared";

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

impl SimClient {
    /// The request for one lock, of the kind that this run has.
    pub(crate) async fn ask_for(&self, wish: &Wish) -> Result<Held, Error> {
        let (lock, options, tell) = (&wish.names[0], wish.options, self.watcher(wish));
        let read_write = self.locks.read_write(lock);
        match (self.world.plan.work, wish.reads) {
            (Work::ReadWrite, true) => {
                let request = read_write.read().options(options);
                request.on_progress(tell).await.map(Held::Reader)
            }
            (Work::ReadWrite, false) => {
                let request = read_write.write().options(options);
                request.on_progress(tell).await.map(Held::Writer)
            }
            _ => {
                let request = self.locks.lock(lock).options(options);
                request.on_progress(tell).await.map(Held::Lock)
            }
        }
    }

    /// What a writer wants that goes on as a reader.
    fn to_read(&self, writer: &Wish) -> Wish {
        let names = writer.names.clone();
        let mut reader = self.wish(names, writer.ttl, writer.options, true);
        (reader.max_hold, reader.wait, reader.renews) =
            (writer.max_hold, writer.wait, writer.renews);
        reader.known.set(writer.known.get());
        reader
    }
}

impl Session {
    /// Whether the next request is to read.
    pub(crate) fn reads(&mut self) -> bool {
        // Nothing is drawn where nobody shares: those seeds are what they were.
        self.client.world.plan.work == Work::ReadWrite && self.dice.per_mille(600)
    }

    /// Whether a writer that has had enough goes on as a reader.
    pub(crate) fn stops_writing(&mut self, wish: &Wish) -> bool {
        let may = self.client.world.plan.work == Work::ReadWrite && !wish.reads;
        may && self.dice.per_mille(400)
    }

    /// Extends or releases what stands for all readers, as if it were somebody's value.
    pub(crate) async fn misuse_the_mark(&mut self) {
        let wish = self.wish(true);
        let token = FencingToken::try_from(1u64).expect("not zero");
        let mark = DetachedLock::new(&wish.names[0], MARK, token).expect("a name and a value");
        let client = self.client.clone();
        let outcome = match self.dice.per_mille(500) {
            true => {
                let release = client.locks.release_detached(&mark);
                fickle(release, self.patience()).await
            }
            false => {
                let extend = async {
                    let extend = client.locks.extend_detached(&mark, wish.ttl);
                    extend.await.map(drop)
                };
                fickle(extend, self.patience()).await
            }
        };
        match outcome {
            Some(Ok(())) => client.object(&wish, "what marks readers was taken for a value"),
            Some(Err(_)) => {}
            None => self.note_cancel(),
        }
    }

    /// Holds on until a renewal may be under way: what was sent for the writer must not hurt the
    /// reader.
    async fn await_a_renewal(&mut self, wish: &Wish, lease: &Lease) {
        let client = self.client.clone();
        let (plan, ttl) = (&client.world.plan, wish.ttl);
        // It begins when a third of the TTL is over.
        let left_then = (ttl * 2 / 3).saturating_sub(ttl.mul_f64(plan.drift));
        let begins_in = lease.remaining().saturating_sub(left_then);
        let begun_for = self.dice.time(Duration::ZERO, plan.node_timeout);
        while_held(&client, wish, lease, sleep(begins_in + begun_for)).await;
    }

    /// Goes on as a reader, whose lease is valid from the moment at which the writer's ends: a writer
    /// that came in between would be found.
    pub(crate) async fn become_reader(&mut self, wish: &Wish, lease: WriteLease) {
        let while_renewed = wish.renews && lease.is_valid() && self.dice.per_mille(500);
        if while_renewed {
            self.await_a_renewal(wish, &lease).await;
        }
        let client = self.client.clone();
        let reader = client.to_read(wish);
        let (token, valid_until) = (lease.token().get(), wish.known.get());
        let was_valid = lease.is_valid();
        client.record(wish, &Step::Releasing);
        if was_valid {
            client.record(&reader, &Step::Acquired { token, valid_until });
        }
        let (number, readers) = (client.number, reader.of.borrow().clone());
        client
            .world
            .becoming()
            .insert(number, (readers, valid_until));
        let outcome = fickle(lease.downgrade(), self.patience()).await;
        client.world.becoming().remove(&number);
        match &outcome {
            Some(Err(_)) if was_valid => judge_loss(&client, &reader),
            None => self.note_cancel(),
            Some(_) => {}
        }
        let nobody_used_it = || {
            // However late the answer came.
            let at = client.world.now().min(valid_until);
            client.record_at(at, &reader, &Step::Dropped);
        };
        match outcome {
            Some(Ok(lease)) if was_valid => {
                client.note_validity(&reader, &*lease);
                match while_renewed {
                    // For long enough to be hurt by what comes late.
                    true => while_held(&client, &reader, &*lease, sleep(reader.ttl)).await,
                    false => self.hold(&reader, &*lease).await,
                }
                self.end(&reader, Held::Reader(lease)).await;
            }
            None => nobody_used_it(),
            Some(Err(error)) if error.is_lost() => nobody_used_it(),
            Some(outcome) => {
                let what = format!("a lease that was over became a reader: {outcome:?}");
                client.world.inside().object("sharing", what, Vec::new());
            }
        }
    }
}
