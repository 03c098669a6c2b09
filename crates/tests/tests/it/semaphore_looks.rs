//! What is to be seen of a semaphore on real servers: who has which slot, and how a wait goes on.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use fencepost::Progress;
use fencepost_tests::{Cluster, wait_until};

const SOON: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_secs(30);
const LONG: Duration = Duration::from_secs(60);

#[tokio::test]
async fn the_status_of_every_slot_is_told_also_while_a_node_is_away() {
    let mut cluster = Cluster::start(3);
    let locks = cluster.client().await;
    let pool = locks.semaphore("pool", 3);
    let permit = pool.acquire().await.unwrap();
    // A permit is ours as soon as a majority has it, and the node that goes away may be one of that.
    let key = format!("{{pool}}:semaphore:{}", permit.slot());
    cluster.all_have(&key).await;
    cluster.servers[1].kill();
    let slots = pool.status().await.unwrap();
    assert_eq!(slots.len(), 3);
    for (number, slot) in slots.iter().enumerate() {
        assert_eq!(slot.name.as_str(), format!("{{pool}}:semaphore:{number}"));
        assert_eq!(slot.holder.is_some(), number == permit.slot());
        let away: Vec<_> = slot.nodes.iter().map(|node| node.lock.is_err()).collect();
        assert_eq!(away, [false, true, false]);
    }
    assert_eq!(slots[permit.slot()].token, Some(permit.token()));
    permit.release().await.unwrap();
    assert!(locks.semaphore("pool", 0).status().await.is_err());
}

/// The latest that a waiter was told.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Option<Progress>>>);

impl Told {
    fn note(&self) -> impl Fn(Progress) + Send + Sync + 'static {
        let latest = Arc::clone(&self.0);
        move |progress| *latest.lock().unwrap() = Some(progress)
    }

    /// Whether it is this place, settled, behind the holder of the shorter TTL.
    fn is(&self, place: usize) -> bool {
        let latest = self.0.lock().unwrap();
        latest.as_ref().is_some_and(|told| {
            let owner = told.holder.as_ref().map(ToString::to_string);
            told.is_settled
                && told.place == Some(place)
                && owner.as_deref() == Some("short")
                && told.remaining.is_some_and(|left| left <= SHORT)
        })
    }
}

#[tokio::test]
async fn whoever_waits_is_told_who_ends_first_and_its_place() {
    let cluster = Cluster::start(3);
    let client = async |owner: &str| cluster.connect(cluster.builder().owner(owner)).await;
    let hold = async |owner: &str, ttl| {
        let locks = client(owner).await;
        let request = locks.semaphore("pool", 2).acquire();
        request.ttl(ttl).renew(false).await.unwrap()
    };
    let _held = [hold("long", LONG).await, hold("short", SHORT).await];
    let mut waiting = Vec::new();
    for place in 1..=2 {
        let (locks, told) = (client("waiter").await, Told::default());
        let request = locks.semaphore("pool", 2).acquire();
        let request = request.fair(true).on_progress(told.note());
        let wait = tokio::spawn(request.into_future());
        wait_until("it is told its place", SOON, || told.is(place)).await;
        waiting.push(wait);
    }
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
}
