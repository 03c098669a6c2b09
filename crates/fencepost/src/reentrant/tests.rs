#![allow(clippy::unwrap_used, reason = "a test panics where it fails")]

use std::sync::Mutex;

use super::*;
use crate::error::LossReason;
use crate::store::memory::MemoryNode;
use crate::store::{Call, Node};
use crate::{Client, LockOptions};
use fencepost_core::lock::Command;

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A node that remembers what it was asked.
struct Witness {
    node: MemoryNode,
    asked: Mutex<Vec<Command>>,
}

impl Node for Witness {
    fn call(&self, name: &LockName, command: Command) -> Call {
        self.asked.lock().unwrap().push(command.clone());
        self.node.call(name, command)
    }

    fn address(&self) -> &str {
        "witness"
    }
}

impl Witness {
    fn new() -> (Arc<Self>, Client) {
        let node = Arc::new(Self {
            node: MemoryNode::new(),
            asked: Mutex::default(),
        });
        let shared: Arc<dyn Node> = node.clone();
        let locks = Client::builder().shared_node(shared).build().unwrap();
        (node, locks)
    }

    fn count(&self, what: impl Fn(&Command) -> bool) -> usize {
        let asked = self.asked.lock().unwrap();
        asked.iter().filter(|command| what(command)).count()
    }

    fn acquisitions(&self) -> usize {
        self.count(|command| matches!(command, Command::Acquire { .. }))
    }

    fn releases(&self) -> usize {
        self.count(|command| matches!(command, Command::Release { .. }))
    }
}

#[tokio::test(start_paused = true)]
async fn entering_again_asks_no_node_and_the_last_to_leave_gives_back() {
    let (node, locks) = Witness::new();
    let lock = locks.reentrant("job");
    let first = lock.lock().await.unwrap();
    let mut guards: Vec<_> = Vec::new();
    for _ in 0..9 {
        guards.push(lock.lock().await.unwrap());
    }
    assert_eq!((node.acquisitions(), first.entries()), (1, 10));
    assert!(guards.iter().all(|guard| guard.token() == first.token()));
    first.release().await.unwrap();
    while guards.len() > 1 {
        drop(guards.remove(guards.len() / 2));
    }
    assert_eq!((node.releases(), guards[0].entries()), (0, 1));
    assert!(guards[0].is_valid());
    guards.remove(0).release().await.unwrap();
    assert_eq!((node.acquisitions(), node.releases()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn two_tasks_of_an_owner_that_enter_at_once_share_one_acquisition() {
    let (node, locks) = Witness::new();
    let held = locks.reentrant("job").lock().await.unwrap();
    let lock = locks.reentrant("job");
    let enter = || tokio::spawn(lock.lock().into_future());
    let (one, two) = (enter(), enter());
    tokio::time::sleep(ms(300)).await;
    assert_eq!(locks.status("job").await.unwrap().waiting, 1);
    held.release().await.unwrap();
    let (one, two) = (one.await.unwrap().unwrap(), two.await.unwrap().unwrap());
    assert_eq!((one.token(), one.entries()), (two.token(), 2));
    drop((one, two));
    // Theirs, and what it took to wait for it.
    let granted = node.acquisitions();
    assert!(granted <= 4, "{granted} attempts");
}

#[tokio::test(start_paused = true)]
async fn a_first_entry_that_is_dropped_leaves_the_door_to_the_others() {
    let locks = Client::memory().unwrap();
    let held = locks.reentrant("job").lock().await.unwrap();
    let lock = locks.reentrant("job");
    let first = tokio::spawn(lock.lock().into_future());
    tokio::time::sleep(ms(100)).await;
    let second = tokio::spawn(lock.lock().into_future());
    tokio::time::sleep(ms(100)).await;
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    drop(held);
    let guard = second.await.unwrap().unwrap();
    assert_eq!(guard.entries(), 1);
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_for_its_own_owner_waits_no_longer_than_it_said() {
    let locks = Client::memory().unwrap();
    let held = locks.reentrant("job").lock().await.unwrap();
    let lock = locks.reentrant("job");
    let _first = tokio::spawn(lock.lock().into_future());
    tokio::time::sleep(ms(10)).await;
    let start = Instant::now();
    let limit = ms(500) * 3;
    let error = lock.lock().timeout(limit).await.unwrap_err();
    assert!(error.is_timeout(), "{error}");
    assert_eq!(error.holder().unwrap().owner.as_str(), held.value());
    let took = start.elapsed();
    assert!(took >= limit && took < limit + ms(50), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_lost_lease_lets_nobody_in_and_its_guards_stay_lost() {
    let locks = Client::memory().unwrap();
    let lock = locks.reentrant("job");
    let short = LockOptions::new().ttl(ms(200)).renew(false);
    let outer = lock.lock().options(short).await.unwrap();
    assert_eq!(outer.lost().await, LossReason::Expired);
    let inner = lock.lock().await.unwrap();
    assert!(inner.token() > outer.token());
    assert_eq!((inner.entries(), outer.entries()), (1, 1));
    let lost = outer.release().await.unwrap_err();
    assert!(lost.is_lost(), "{lost}");
    assert!(
        inner.is_valid(),
        "the old guard has not ended the new lease"
    );
    let again = lock.lock().await.unwrap();
    assert_eq!(again.token(), inner.token());
}

#[tokio::test(start_paused = true)]
async fn a_guard_that_is_not_the_last_tells_the_loss_too() {
    let locks = Client::memory().unwrap();
    let lock = locks.reentrant("job");
    let one = lock.lock().await.unwrap();
    let two = lock.lock().await.unwrap();
    let _stolen = locks.steal("job", ms(10_000)).await.unwrap();
    assert!(two.extend().await.unwrap_err().is_lost());
    assert!(one.release().await.unwrap_err().is_lost());
    assert!(two.release().await.unwrap_err().is_lost());
}

#[tokio::test]
async fn an_extension_tells_how_often_it_was_entered() {
    let (node, locks) = Witness::new();
    let lock = locks.reentrant("job");
    let guard = lock.lock().await.unwrap();
    let more = [lock.lock().await.unwrap(), lock.lock().await.unwrap()];
    guard.extend().await.unwrap();
    drop(more);
    guard.extend().await.unwrap();
    let asked = node.asked.lock().unwrap().clone();
    let told = asked.iter().filter_map(|command| match command {
        Command::Extend { entries, .. } => Some(entries.get()),
        _ => None,
    });
    assert_eq!(told.collect::<Vec<_>>(), [3, 1]);
}

#[tokio::test(start_paused = true)]
async fn two_handles_are_two_owners_and_clones_are_one() {
    let locks = Client::memory().unwrap();
    let (one, two) = (locks.reentrant("job"), locks.reentrant("job"));
    let guard = one.lock().await.unwrap();
    assert!(two.try_lock().await.unwrap_err().is_held());
    let again = one.clone().try_lock().await.unwrap();
    assert_eq!(again.token(), guard.token());
    drop((guard, again));
    assert!(two.try_lock().await.is_ok());
    assert!(locks.reentrant("a\nb").lock().await.is_err());
}
