//! What every node promises, whatever it is made of: each behaviour is written once and run on
//! each engine.
//!
//! Deadlines here are checked against the test's own clock, and only in the direction that a slow
//! machine cannot spoil: a lock may be found free later than its TTL, never earlier.
//!
//! Here: one lock and one attempt after the other. Beside it: `conformance_steal`, `conformance_names`,
//! `conformance_calls` and `conformance_queue`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fencepost::FencingToken;
use fencepost::internals::Node;
use fencepost_core::lock::{Reply, Snapshot};

use crate::attempt::*;
use crate::engines::every_node_shows_that;

every_node_shows_that! {
    a_free_lock_is_granted_with_the_token_that_was_proposed,
    a_held_lock_is_refused_with_its_holder_and_the_time_that_is_left,
    a_refused_acquire_changes_nothing,
    the_same_value_again_is_granted_the_same_and_prolongs_nothing,
    tokens_grow_whatever_is_proposed,
    a_proposal_from_the_far_future_is_cut_to_the_largest_skew,
    a_counter_at_its_end_is_not_passed,
    fifty_at_once_are_one_grant,
    a_lock_expires_after_its_ttl_and_not_before,
    a_counter_outlives_expiry_and_release,
    only_the_holder_raises_the_counter,
    a_counter_is_never_lowered,
    an_extension_counts_from_when_it_was_made,
    an_extension_never_shortens,
    what_stands_for_all_readers_is_nobodys_value,
    an_extension_by_another_is_refused_and_prolongs_nothing,
    an_extension_of_a_forgotten_lock_repairs_it,
    an_extension_after_a_later_grant_is_refused,
    only_the_holder_releases,
    a_withdrawn_attempt_is_refused_and_nobody_else,
    a_withdrawn_attempt_neither_extends_nor_steals,
    a_withdrawal_ends_when_its_time_is_up,
    a_release_can_withdraw_what_it_frees,
    a_look_changes_nothing,
}

// ---- acquire ------------------------------------------------------------------------------------

async fn a_free_lock_is_granted_with_the_token_that_was_proposed(node: &Arc<dyn Node>) {
    let (a, b) = (on(node, "n", "a"), on(node, "m", "b"));
    assert_eq!(a.acquire(1000).await, granted(1000));
    assert!(a.holds().await);
    assert_eq!(b.acquire(0).await, granted(1), "the first token is one");
}

async fn a_held_lock_is_refused_with_its_holder_and_the_time_that_is_left(node: &Arc<dyn Node>) {
    let (a, b) = (on(node, "n", "a"), on(node, "n", "b"));
    let begun = Instant::now();
    a.acquire(1).await;
    let reply = b.acquire(1).await;
    assert_held_by(&a, &reply);
    let Reply::Held(holder) = reply else {
        panic!("{reply:?}");
    };
    let left = holder.remaining.unwrap();
    assert!(left + begun.elapsed() + GRAIN >= LONG, "{left:?}");
}

async fn a_refused_acquire_changes_nothing(node: &Arc<dyn Node>) {
    let (a, b) = (on(node, "n", "a").for_ttl(SHORT), on(node, "n", "b"));
    let last = Instant::now();
    a.acquire(7).await;
    assert_held_by(&a, &b.acquire(1_000_000).await);
    assert_eq!(a.register().await, 7);
    assert!(b.wait().await - last < LATE, "b's TTL did not become a's");
    assert_eq!(b.register().await, 8);
}

async fn the_same_value_again_is_granted_the_same_and_prolongs_nothing(node: &Arc<dyn Node>) {
    let a = on(node, "n", "a").for_ttl(Duration::from_secs(10));
    assert_eq!(a.acquire(7).await, granted(7));
    assert_eq!(a.clone().for_ttl(LONG).acquire(9).await, granted(7));
    let holder = a.look().await.holder.unwrap();
    assert!(a.is_holder_in(&holder));
}

async fn tokens_grow_whatever_is_proposed(node: &Arc<dyn Node>) {
    let mut last = 0;
    for (i, proposed) in [5, 5, 0, 100, 99, 101, 1].into_iter().enumerate() {
        let a = on(node, "n", &format!("value-{i}"));
        let Reply::Granted { register, .. } = a.acquire(proposed).await else {
            panic!("not granted");
        };
        assert_eq!(register.get(), proposed.max(last + 1));
        last = register.get();
        assert_eq!(a.release().await, Reply::Released);
    }
}

async fn a_proposal_from_the_far_future_is_cut_to_the_largest_skew(node: &Arc<dyn Node>) {
    let a = on(node, "n", "a");
    assert_cut_to_skew(&a.acquire(FencingToken::MAX.get()).await);
    a.release().await;
    let before = a.register().await;
    let b = on(node, "n", "b");
    let Reply::Granted { register, .. } = b.acquire(FencingToken::MAX.get()).await else {
        panic!("not granted");
    };
    assert!(register.get() > before, "it grows all the same");
    let c = on(node, "m", "c");
    let soon = wall_micros() + 1_000_000;
    assert_eq!(c.acquire(soon).await, granted(soon), "a little is no harm");
}

async fn a_counter_at_its_end_is_not_passed(node: &Arc<dyn Node>) {
    let (a, b) = (on(node, "n", "a"), on(node, "n", "b"));
    a.acquire(1).await;
    let end = FencingToken::MAX;
    assert_eq!(a.raise(end.get()).await, Reply::Raised(end));
    assert_eq!(b.steal(1).await, Reply::Exhausted);
    assert!(
        a.holds().await,
        "a thief who gets no token throws nobody out"
    );
    a.release().await;
    assert_eq!(b.acquire(1).await, Reply::Exhausted);
    assert_eq!(b.look().await.holder, None);
}

async fn fifty_at_once_are_one_grant(node: &Arc<dyn Node>) {
    let mut tasks = tokio::task::JoinSet::new();
    for i in 0..50 {
        let node = Arc::clone(node);
        tasks.spawn(async move {
            let a = on(&node, "n", &format!("value-{i}"));
            (a.value.clone(), a.acquire(i).await)
        });
    }
    let replies = tasks.join_all().await;
    let won = replies
        .iter()
        .filter(|(_, reply)| matches!(reply, Reply::Granted { .. }));
    let won: Vec<_> = won.map(|(value, _)| value).collect();
    assert_eq!(won.len(), 1, "{replies:?}");
    for (value, reply) in &replies {
        match reply {
            Reply::Held(holder) => assert_eq!(holder.value, *won[0]),
            _ => assert_eq!(value, won[0]),
        }
    }
}

// ---- expiry -------------------------------------------------------------------------------------

async fn a_lock_expires_after_its_ttl_and_not_before(node: &Arc<dyn Node>) {
    let (a, b) = (on(node, "n", "a").for_ttl(SHORT), on(node, "n", "b"));
    let begun = Instant::now();
    assert_eq!(a.acquire(1).await, granted(1));
    let freed = b.wait().await;
    assert!(freed + GRAIN >= begun + SHORT, "{:?}", freed - begun);
    assert_not_held_but_by(&b, &a.release().await);
    assert_not_held_but_by(&b, &a.extend(1).await);
}

async fn a_counter_outlives_expiry_and_release(node: &Arc<dyn Node>) {
    let (a, b, c) = (
        on(node, "n", "a").for_ttl(SHORT),
        on(node, "n", "b"),
        on(node, "n", "c"),
    );
    assert_eq!(a.acquire(41).await, granted(41));
    b.wait().await;
    assert_eq!(b.register().await, 42);
    b.release().await;
    assert_eq!(b.register().await, 42);
    assert_eq!(c.acquire(1).await, granted(43));
}

// ---- raise --------------------------------------------------------------------------------------

async fn only_the_holder_raises_the_counter(node: &Arc<dyn Node>) {
    let (a, b) = (on(node, "n", "a"), on(node, "n", "b"));
    assert_eq!(a.raise(9).await, Reply::NotHeld(None));
    assert_eq!(a.register().await, 0);
    a.acquire(1).await;
    assert_not_held_but_by(&a, &b.raise(9).await);
    assert_eq!(a.register().await, 1);
    assert_eq!(a.raise(9).await, Reply::Raised(token(9)));
    a.release().await;
    assert_eq!(b.acquire(1).await, granted(10));
}

async fn a_counter_is_never_lowered(node: &Arc<dyn Node>) {
    let a = on(node, "n", "a");
    a.acquire(9).await;
    assert_eq!(a.raise(3).await, Reply::NotRaised(token(9)));
    assert_eq!(
        a.raise(9).await,
        Reply::NotRaised(token(9)),
        "equal is no vote"
    );
    assert_eq!(a.extend(3).await, Reply::Extended);
    assert_eq!(a.register().await, 9);
    assert_eq!(a.extend(12).await, Reply::Extended);
    assert_eq!(a.register().await, 12);
}

// ---- extend -------------------------------------------------------------------------------------

async fn an_extension_counts_from_when_it_was_made(node: &Arc<dyn Node>) {
    let (a, b) = (on(node, "n", "a").for_ttl(SHORT), on(node, "n", "b"));
    a.acquire(1).await;
    let begun = Instant::now();
    assert_eq!(a.extend(1).await, Reply::Extended);
    let freed = b.wait().await;
    assert!(freed + GRAIN >= begun + SHORT, "{:?}", freed - begun);
    assert_eq!(b.register().await, 2, "an extension leaves the token alone");
    let long = b.clone().for_ttl(2 * LONG);
    assert_eq!(long.extend(2).await, Reply::Extended);
    let left = long.look().await.holder.unwrap().remaining.unwrap();
    assert!(left > LONG, "{left:?}");
}

async fn an_extension_never_shortens(node: &Arc<dyn Node>) {
    let a = on(node, "n", "a");
    a.acquire(1).await;
    assert_eq!(a.clone().for_ttl(SHORT).extend(1).await, Reply::Extended);
    let left = a.look().await.holder.unwrap().remaining.unwrap();
    assert!(left + LATE >= LONG, "{left:?}");
    // A writer that becomes a reader, and a reader.
    for _ in 0..2 {
        let extended = a.clone().for_ttl(SHORT).extend_shared(1).await;
        assert_eq!(extended, Reply::Extended);
        let left = a.look().await.readers[0].remaining.unwrap();
        assert!(left + LATE >= LONG, "{left:?}");
    }
}

/// A writer ran beside a reader once: anybody could release and extend readers by what marks them.
async fn what_stands_for_all_readers_is_nobodys_value(node: &Arc<dyn Node>) {
    let (reader, writer) = (on(node, "n", "r"), on(node, "n", "w"));
    let mark = on(node, "n", "fencepost:shared");
    assert_eq!(reader.share(1).await, granted(1));
    assert_eq!(mark.release().await, Reply::NotHeld(None));
    assert_eq!(mark.withdraw(LONG).await, Reply::NotHeld(None));
    assert_eq!(mark.extend(1).await, Reply::NotHeld(None));
    assert_eq!(mark.extend_shared(1).await, Reply::NotHeld(None));
    assert_eq!(mark.raise(9).await, Reply::NotHeld(None));
    assert_eq!(mark.acquire(9).await, Reply::Tombstoned);
    assert!(matches!(writer.acquire(1).await, Reply::Held(_)));
    assert_eq!(reader.look().await.readers.len(), 1);
    assert_eq!(reader.register().await, 1);
    assert_eq!(reader.release().await, Reply::Released);
    let taken = [
        mark.acquire(9).await,
        mark.share(9).await,
        mark.steal(9).await,
    ];
    for taken in taken {
        assert_eq!(taken, Reply::Tombstoned);
    }
    assert_eq!(mark.extend(9).await, Reply::NotHeld(None));
    assert_eq!(writer.acquire(1).await, granted(2));
}

async fn an_extension_by_another_is_refused_and_prolongs_nothing(node: &Arc<dyn Node>) {
    let a = on(node, "n", "a");
    let b = on(node, "n", "b").for_ttl(2 * LONG);
    a.acquire(1).await;
    assert_not_held_but_by(&a, &b.extend(99).await);
    assert!(a.is_holder_in(&a.look().await.holder.unwrap()));
    assert_eq!(a.register().await, 1);
}

async fn an_extension_of_a_forgotten_lock_repairs_it(node: &Arc<dyn Node>) {
    let (a, b) = (on(node, "n", "a"), on(node, "n", "b"));
    assert_eq!(a.extend(100).await, Reply::Repaired);
    assert_held_by(&a, &b.acquire(1).await);
    assert_eq!(a.register().await, 100);
    assert_eq!(a.extend(100).await, Reply::Extended);
    a.release().await;
    assert_eq!(a.extend(100).await, Reply::Repaired, "nobody came between");
    a.release().await;
    assert_eq!(b.acquire(1).await, granted(101));
}

async fn an_extension_after_a_later_grant_is_refused(node: &Arc<dyn Node>) {
    let (a, b) = (on(node, "n", "a"), on(node, "n", "b"));
    a.acquire(1).await;
    a.release().await;
    b.acquire(1).await;
    b.release().await;
    assert_eq!(a.extend(1).await, Reply::NotHeld(None));
    assert_eq!(a.look().await.holder, None);
}

// ---- release ------------------------------------------------------------------------------------

async fn only_the_holder_releases(node: &Arc<dyn Node>) {
    let (a, b) = (on(node, "n", "a"), on(node, "n", "b"));
    assert_eq!(a.release().await, Reply::NotHeld(None));
    a.acquire(1).await;
    assert_not_held_but_by(&a, &b.release().await);
    assert!(a.holds().await);
    assert_eq!(a.release().await, Reply::Released);
    assert_eq!(a.release().await, Reply::NotHeld(None));
    assert_eq!(b.acquire(1).await, granted(2));
    assert_not_held_but_by(&b, &a.release().await);
}

async fn a_withdrawn_attempt_is_refused_and_nobody_else(node: &Arc<dyn Node>) {
    let (a, b) = (on(node, "n", "a"), on(node, "n", "b"));
    assert_eq!(a.withdraw(LONG).await, Reply::NotHeld(None));
    assert_eq!(a.acquire(1).await, Reply::Tombstoned);
    assert_eq!(a.register().await, 0, "no token was used up");
    assert_eq!(on(node, "m", "a").acquire(1).await, granted(1));
    assert_eq!(b.acquire(1).await, granted(1));
    assert_not_held_but_by(&b, &a.withdraw(LONG).await);
    assert_eq!(b.release().await, Reply::Released);
    assert_eq!(a.acquire(1).await, Reply::Tombstoned);
}

async fn a_withdrawn_attempt_neither_extends_nor_steals(node: &Arc<dyn Node>) {
    let (a, b) = (on(node, "n", "a"), on(node, "n", "b"));
    a.withdraw(LONG).await;
    assert_eq!(a.extend(100).await, Reply::NotHeld(None));
    assert_eq!(a.steal(1).await, Reply::Tombstoned);
    b.acquire(1).await;
    assert_eq!(a.steal(1).await, Reply::Tombstoned);
    assert!(b.holds().await);
}

async fn a_withdrawal_ends_when_its_time_is_up(node: &Arc<dyn Node>) {
    let a = on(node, "n", "a");
    let begun = Instant::now();
    a.withdraw(SHORT).await;
    let granted = a.wait().await;
    assert!(granted + GRAIN >= begun + SHORT, "{:?}", granted - begun);
}

async fn a_release_can_withdraw_what_it_frees(node: &Arc<dyn Node>) {
    let (a, b) = (on(node, "n", "a"), on(node, "n", "b"));
    a.acquire(1).await;
    assert_eq!(a.withdraw(LONG).await, Reply::Released);
    assert_eq!(a.acquire(1).await, Reply::Tombstoned);
    assert_eq!(a.extend(1).await, Reply::NotHeld(None));
    assert_eq!(b.acquire(1).await, granted(2));
}

// ---- inspect ------------------------------------------------------------------------------------

async fn a_look_changes_nothing(node: &Arc<dyn Node>) {
    let (a, b) = (on(node, "n", "a").for_ttl(SHORT), on(node, "n", "b"));
    let nothing = Snapshot {
        holder: None,
        readers: Vec::new(),
        register: FencingToken::ZERO,
        waiting: 0,
    };
    assert_eq!(a.look().await, nothing);
    a.acquire(5).await;
    let end = Instant::now() + LATE;
    while let Some(holder) = b.look().await.holder {
        assert!(a.is_holder_in(&holder));
        assert!(Instant::now() < end, "looking keeps it alive");
    }
    assert_eq!(b.register().await, 5);
    assert_eq!(b.acquire(1).await, granted(6));
}
