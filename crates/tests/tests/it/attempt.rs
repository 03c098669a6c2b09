//! [`Attempt`]: one value's dealings with one lock of one node, in the words of the tests.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use fencepost::internals::{Call, Node};
use fencepost::{AttemptValue, FencingToken, LockName};
use fencepost_core::Ttl;
use fencepost_core::lock::{Command, Holder, MAX_SKEW, Repair, Reply, Snapshot};

/// One attempt on one lock of one node.
#[derive(Clone)]
pub(crate) struct Attempt<'a> {
    pub(crate) node: &'a Arc<dyn Node>,
    pub(crate) name: LockName,
    pub(crate) value: AttemptValue,
    pub(crate) ttl: Ttl,
}

/// Longer than any test takes.
pub(crate) const LONG: Duration = Duration::from_secs(60);
/// Short enough to wait for, and long enough for a few commands in between on a busy machine.
pub(crate) const SHORT: Duration = Duration::from_millis(600);
/// What a node's clock may be coarser than ours: the fixed part of the drift.
pub(crate) const GRAIN: Duration = Duration::from_millis(2);
/// How late something may happen on a busy machine.
pub(crate) const LATE: Duration = Duration::from_secs(10);

pub(crate) fn on<'a>(node: &'a Arc<dyn Node>, name: &str, value: &str) -> Attempt<'a> {
    Attempt {
        node,
        name: LockName::new(name).unwrap(),
        value: AttemptValue::reported(value),
        ttl: Ttl::new(LONG).unwrap(),
    }
}

pub(crate) fn token(number: u64) -> FencingToken {
    FencingToken::new(number).unwrap()
}

pub(crate) fn granted(register: u64) -> Reply {
    Reply::Granted {
        register: token(register),
        evicted: None,
    }
}

pub(crate) fn wall_micros() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(since.as_micros()).unwrap()
}

/// The largest token that a node may give now: by its clock, which is this machine's.
pub(crate) fn assert_cut_to_skew(reply: &Reply) {
    let Reply::Granted { register, .. } = reply else {
        panic!("{reply:?}");
    };
    let ahead = Duration::from_micros(register.get().saturating_sub(wall_micros()));
    assert!(ahead <= MAX_SKEW, "{ahead:?} ahead");
    assert!(ahead + LATE >= MAX_SKEW, "only {ahead:?} ahead");
}

impl<'a> Attempt<'a> {
    pub(crate) fn for_ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Ttl::new(ttl).unwrap();
        self
    }

    pub(crate) fn call(&self, command: Command) -> Call {
        self.node.call(&self.name, command)
    }

    pub(crate) fn acquire_command(&self, proposed: u64) -> Command {
        Command::Acquire {
            value: self.value.clone(),
            ttl: self.ttl,
            proposed: token(proposed),
            turn: Default::default(),
        }
    }

    pub(crate) fn release_command(&self, tombstone: Option<Duration>) -> Command {
        Command::Release {
            value: self.value.clone(),
            tombstone,
            ticket: Default::default(),
            follower: None,
            is_lease: false,
        }
    }

    pub(crate) async fn acquire(&self, proposed: u64) -> Reply {
        self.call(self.acquire_command(proposed)).await.unwrap()
    }

    pub(crate) async fn steal(&self, proposed: u64) -> Reply {
        let steal = Command::Steal {
            value: self.value.clone(),
            ttl: self.ttl,
            proposed: token(proposed),
            from: Vec::new(),
        };
        self.call(steal).await.unwrap()
    }

    pub(crate) async fn raise(&self, to: u64) -> Reply {
        let raise = Command::Raise {
            value: self.value.clone(),
            to: token(to),
        };
        self.call(raise).await.unwrap()
    }

    pub(crate) async fn extend(&self, own: u64) -> Reply {
        let extend = Command::Extend {
            value: self.value.clone(),
            ttl: self.ttl,
            token: token(own),
            entries: NonZeroU32::MIN,
            repair: Repair::UnlessOvertaken,
        };
        self.call(extend).await.unwrap()
    }

    pub(crate) async fn share(&self, proposed: u64) -> Reply {
        let share = Command::Share {
            value: self.value.clone(),
            ttl: self.ttl,
            proposed: token(proposed),
            turn: Default::default(),
        };
        self.call(share).await.unwrap()
    }

    pub(crate) async fn extend_shared(&self, own: u64) -> Reply {
        let extend = Command::ExtendShared {
            value: self.value.clone(),
            ttl: self.ttl,
            token: token(own),
        };
        self.call(extend).await.unwrap()
    }

    pub(crate) async fn release(&self) -> Reply {
        self.call(self.release_command(None)).await.unwrap()
    }

    pub(crate) async fn withdraw(&self, tombstone: Duration) -> Reply {
        self.call(self.release_command(Some(tombstone)))
            .await
            .unwrap()
    }

    pub(crate) async fn look(&self) -> Snapshot {
        match self.call(Command::Inspect).await.unwrap() {
            Reply::Snapshot(snapshot) => snapshot,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn register(&self) -> u64 {
        self.look().await.register.get()
    }

    /// Whether this attempt has the lock, as the node sees it.
    pub(crate) async fn holds(&self) -> bool {
        let holder = self.look().await.holder;
        holder.is_some_and(|holder| holder.value == self.value)
    }

    /// Tries until granted, and returns when that was.
    pub(crate) async fn wait(&self) -> Instant {
        let end = Instant::now() + LATE;
        while !matches!(self.acquire(1).await, Reply::Granted { .. }) {
            assert!(Instant::now() < end, "still held after {LATE:?}");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Instant::now()
    }

    pub(crate) fn is_holder_in(&self, holder: &Holder) -> bool {
        let left = holder.remaining.expect("an end");
        assert!(left <= self.ttl.get(), "{left:?} left of {:?}", self.ttl);
        holder.value == self.value
    }
}

/// Panics unless the reply is `Held` by that attempt.
pub(crate) fn assert_held_by(attempt: &Attempt<'_>, reply: &Reply) {
    match reply {
        Reply::Held(holder) if attempt.is_holder_in(holder) => (),
        other => panic!("not held by {:?}: {other:?}", attempt.value),
    }
}

/// Panics unless the reply is `NotHeld`, because that attempt has the lock.
pub(crate) fn assert_not_held_but_by(attempt: &Attempt<'_>, reply: &Reply) {
    match reply {
        Reply::NotHeld(Some(holder)) if attempt.is_holder_in(holder) => (),
        other => panic!("not held by {:?}: {other:?}", attempt.value),
    }
}
