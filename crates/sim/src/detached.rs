//! Locks that outlive their lease: extended by several TTLs at once, which arrive in any order.
//!
//! Its holder has no lease that tells the end. It trusts what the last extension said, by its own clock, and
//! stops at that moment.

use std::time::Duration;

use fencepost::{DetachedLock, Error, LossReason};
use fencepost_checks::{Outcome, Step};
use futures_util::future::join_all;
use tokio::time::{sleep, sleep_until};

use crate::client::{SimClient, Wish, word};
use crate::fickle::fickle;
use crate::net::nanos;
use crate::workload::Session;

/// How long before its end it is let go.
const NOTICE: Duration = Duration::from_millis(2);
/// How many extensions are on their way at the same time.
const AT_ONCE: u64 = 3;
/// How often it is extended at the most.
const ROUNDS: u64 = 4;

impl Session {
    /// Acquires a lock, detaches it, extends it in several ways, and releases it or leaves it behind.
    pub(crate) async fn detached(&mut self) {
        let mut wish = self.wish(false);
        wish.renews = false;
        let client = self.client.clone();
        client.asks(&wish);
        let asking = client.locks.try_lock(&wish.names[0]);
        let asking = asking.ttl(wish.ttl).renew(false).into_future();
        let lease = match fickle(asking, self.patience()).await {
            Some(Ok(lease)) => lease,
            Some(Err(error)) => {
                let error = word(&error).to_owned();
                return client.record(&wish, &Step::Failed { error });
            }
            None => {
                self.note_cancel();
                return client.record(&wish, &Step::Dropped);
            }
        };
        client.note_acquired(&wish, &lease);
        let using = async {
            let lock = lease.detach().await.ok()?;
            self.extend_in_any_order(&wish, &lock).await;
            Some(lock)
        };
        let lock = tokio::select! {
            biased;
            () = until_its_end(&client, &wish) => None,
            lock = using => lock,
        };
        match lock {
            Some(lock) if self.dice.per_mille(700) => self.release_detached(&wish, &lock).await,
            Some(_) => client.record(&wish, &Step::Dropped),
            None => {
                let reason = "expired".to_owned();
                client.record(&wish, &Step::LossTold { reason });
                client.record(&wish, &Step::Dropped);
            }
        }
    }

    async fn extend_in_any_order(&mut self, wish: &Wish, lock: &DetachedLock) {
        let client = self.client.clone();
        for _ in 0..self.dice.below(ROUNDS + 1) {
            let how_many = 1 + self.dice.below(AT_ONCE);
            let ttls: Vec<_> = (0..how_many).map(|_| self.any_ttl()).collect();
            let extensions = ttls.into_iter().map(async |ttl| {
                match client.locks.extend_detached(lock, ttl).await {
                    Ok(left) => client.note_end(wish, left),
                    Err(error) => client.judge_end(wish, &error),
                }
            });
            join_all(extensions).await;
            sleep(self.dice.time(Duration::ZERO, wish.ttl)).await;
        }
    }

    /// Short ones and the longest: the more they differ, the more would be lost by a wrong order.
    fn any_ttl(&mut self) -> Duration {
        let longest = self.client.world.plan.max_ttl;
        match self.dice.per_mille(400) {
            true => longest,
            false => self.ttl(),
        }
    }

    async fn release_detached(&mut self, wish: &Wish, lock: &DetachedLock) {
        self.client.record(wish, &Step::Releasing);
        let client = self.client.clone();
        let release = client.locks.release_detached(lock);
        let outcome = match fickle(release, self.patience()).await {
            Some(Ok(())) => Outcome::Released,
            Some(Err(error)) if error.is_lost() => Outcome::Lost,
            Some(Err(_)) => Outcome::Unknown,
            None => return self.note_cancel(),
        };
        self.client.record(wish, &Step::Released { outcome });
    }
}

impl SimClient {
    /// Writes down that a lock is ours for so much longer, by our own clock.
    fn note_end(&self, wish: &Wish, left: Duration) {
        let left = self.world.clocks[self.number].in_true_time(left);
        let valid_until = self.world.now().after(left);
        if valid_until > wish.known.get() {
            wish.known.set(valid_until);
            self.record(wish, &Step::Extended { valid_until });
        }
    }

    /// Nodes that have forgotten a lock say nothing of it while it is promised. That an answer came late says nothing of
    /// it either.
    fn judge_end(&self, wish: &Wish, error: &Error) {
        let is_seen_gone = matches!(
            error.loss(),
            Some(LossReason::Unknown | LossReason::Stolen { .. })
        );
        if is_seen_gone && self.world.now() < wish.known.get() {
            self.object(wish, "a lock was said to be lost while it was promised");
        }
    }
}

/// Until the moment before which the lock is known to be ours. A timer is late by a millisecond.
async fn until_its_end(client: &SimClient, wish: &Wish) {
    loop {
        let end = wish.known.get().0.saturating_sub(nanos(NOTICE));
        if client.world.now().0 >= end {
            return;
        }
        sleep_until(client.world.time.at(end)).await;
    }
}
