//! A waiter of the same client follows a release by itself, and the nodes tell nobody of that client.

use std::future::IntoFuture;

use super::*;

/// It was chosen, and has left the line when the release comes. What a release does, with a pause in it.
#[tokio::test(start_paused = true)]
async fn a_follower_that_leaves_before_the_release_costs_the_next_a_moment() {
    let locks = Client::memory().unwrap();
    let lease = locks.lock(NAME).await.unwrap();
    let mut first = locks.lock(NAME).into_future();
    assert!(timeout(TICK, &mut first).await.is_err());
    let next = tokio::spawn(locks.lock(NAME).into_future());
    sleep(TICK).await;
    let follower = lease.follower();
    assert!(follower.is_some());
    drop(first);
    sleep(TICK).await;
    let begin = Instant::now();
    let late = lease.end().unwrap();
    let coordinator = &lease.shared.coordinator;
    let client = lease.client_of(&follower);
    let release = coordinator.release(lease.held.claim.clone(), None, client, late);
    release.await.unwrap();
    lease.call(follower);
    drop(next.await.unwrap().unwrap());
    assert!(begin.elapsed() < ms(100), "{:?}", begin.elapsed());
}
