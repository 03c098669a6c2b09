//! What every node promises of a steal, whatever it is made of.

use std::sync::Arc;
use std::time::Instant;

use fencepost::FencingToken;
use fencepost::internals::Node;
use fencepost_core::lock::Reply;

use crate::attempt::*;
use crate::engines::every_node_shows_that;

every_node_shows_that! {
    stealing_throws_the_holder_out,
    whoever_was_stolen_from_is_told_so_when_the_thief_is_gone,
    who_was_stolen_from_is_told_for_what_it_had_left,
    stealing_what_is_free_or_ours_throws_nobody_out,
    a_thief_gets_no_token_from_the_far_future,
}

async fn stealing_throws_the_holder_out(node: &Arc<dyn Node>) {
    let (a, b) = (on(node, "n", "a"), on(node, "n", "b").for_ttl(SHORT));
    a.acquire(1).await;
    let begun = Instant::now();
    let stolen = Reply::Granted {
        register: token(7),
        evicted: Some(a.value.clone()),
    };
    assert_eq!(b.steal(7).await, stolen);
    assert_not_held_but_by(&b, &a.release().await);
    assert_not_held_but_by(&b, &a.extend(1).await);
    let freed = a.wait().await;
    assert!(freed + GRAIN >= begun + SHORT, "the thief's own TTL");
    let stolen = Reply::Granted {
        register: token(9),
        evicted: Some(a.value.clone()),
    };
    assert_eq!(b.steal(1).await, stolen, "tokens grow");
}

/// It was told that nobody had the lock, and called it expired.
async fn whoever_was_stolen_from_is_told_so_when_the_thief_is_gone(node: &Arc<dyn Node>) {
    let (a, b, c) = (on(node, "n", "a"), on(node, "n", "b"), on(node, "n", "c"));
    a.acquire(1).await;
    b.steal(7).await;
    assert_eq!(b.release().await, Reply::Released);
    let stolen = Reply::Stolen(b.value.clone());
    assert_eq!(a.extend(1).await, stolen);
    assert_eq!(a.release().await, stolen);
    assert_eq!(a.release().await, stolen, "asking changes nothing");
    assert_eq!(c.release().await, Reply::NotHeld(None), "nobody else is");
    assert_eq!(b.release().await, Reply::NotHeld(None), "nor the thief");
    c.acquire(1).await;
    assert_not_held_but_by(&c, &a.release().await);
    // Readers are stolen from together.
    let (reader, other) = (on(node, "m", "a"), on(node, "m", "b"));
    reader.share(1).await;
    other.share(1).await;
    let thief = on(node, "m", "c");
    thief.steal(7).await;
    thief.release().await;
    let stolen = Reply::Stolen(thief.value.clone());
    assert_eq!(reader.extend_shared(1).await, stolen);
    assert_eq!(other.release().await, stolen);
}

/// Afterwards it knows by its own clock that it is over.
async fn who_was_stolen_from_is_told_for_what_it_had_left(node: &Arc<dyn Node>) {
    let (a, b) = (on(node, "n", "a").for_ttl(SHORT), on(node, "n", "b"));
    a.acquire(1).await;
    b.steal(7).await;
    b.release().await;
    tokio::time::sleep(SHORT + GRAIN).await;
    assert_eq!(a.release().await, Reply::NotHeld(None));
}

async fn stealing_what_is_free_or_ours_throws_nobody_out(node: &Arc<dyn Node>) {
    let a = on(node, "n", "a");
    assert_eq!(a.steal(7).await, granted(7));
    assert_eq!(a.steal(9).await, granted(7));
    assert!(a.holds().await);
}

async fn a_thief_gets_no_token_from_the_far_future(node: &Arc<dyn Node>) {
    let (a, b) = (on(node, "n", "a"), on(node, "n", "b"));
    a.acquire(1).await;
    assert_cut_to_skew(&b.steal(FencingToken::MAX.get()).await);
}
