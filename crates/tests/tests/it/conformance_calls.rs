//! What every node promises of calls that are dropped or begun in some order, whatever it is made of.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use fencepost::internals::{Call, Node};
use fencepost_core::lock::Reply;

use crate::attempt::*;
use crate::engines::every_node_shows_that;

every_node_shows_that! {
    a_call_that_was_never_polled_does_nothing,
    a_call_that_was_dropped_half_way_can_be_undone,
    commands_are_carried_out_in_the_order_in_which_they_were_first_polled,
}

/// Polls a call for the first time.
async fn begin(call: &mut Call) -> Option<Reply> {
    match poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx))).await {
        Poll::Ready(reply) => Some(reply.unwrap()),
        Poll::Pending => None,
    }
}

async fn a_call_that_was_never_polled_does_nothing(node: &Arc<dyn Node>) {
    let a = on(node, "n", "a");
    drop(a.call(a.acquire_command(1)));
    assert_eq!(a.look().await.holder, None);
    a.acquire(1).await;
    drop(a.call(a.release_command(None)));
    assert!(a.holds().await);
}

async fn a_call_that_was_dropped_half_way_can_be_undone(node: &Arc<dyn Node>) {
    for i in 0..200 {
        let (a, b) = (on(node, "n", &format!("a-{i}")), on(node, "n", "b"));
        let mut call = a.call(a.acquire_command(1));
        begin(&mut call).await;
        drop(call);
        // Whether the acquire took effect is not known; after this it is known not to.
        let undone = a.withdraw(LONG).await;
        assert!(
            matches!(undone, Reply::Released | Reply::NotHeld(None)),
            "{undone:?}"
        );
        assert!(matches!(b.acquire(1).await, Reply::Granted { .. }));
        assert_eq!(b.release().await, Reply::Released);
    }
}

async fn commands_are_carried_out_in_the_order_in_which_they_were_first_polled(
    node: &Arc<dyn Node>,
) {
    const ROUNDS: u64 = 2500;
    // A few, of which the last is awaited first, so that what was put off until then would show.
    for first in (0..ROUNDS).step_by(8) {
        assert_in_order(node, first..(first + 8).min(ROUNDS), |calls| calls.rev()).await;
    }
    // Many, more than any buffer on the way holds.
    assert_in_order(node, ROUNDS..2 * ROUNDS, |calls| calls).await;
}

/// Begins four commands for each number in one go, without a pause for the runtime in between;
/// awaits them in an order of the caller's; and checks that they ran in the first order.
async fn assert_in_order<I>(
    node: &Arc<dyn Node>,
    numbers: std::ops::Range<u64>,
    order: impl Fn(std::ops::Range<usize>) -> I,
) where
    I: Iterator<Item = usize>,
{
    let attempts = numbers
        .clone()
        .map(|i| on(node, "n", &format!("value-{i}")));
    let attempts: Vec<_> = attempts.collect();
    let mut calls = Vec::new();
    for a in &attempts {
        calls.push(a.call(a.acquire_command(1)));
        calls.push(a.call(a.acquire_command(1)));
        calls.push(a.call(a.release_command(None)));
        calls.push(a.call(a.release_command(None)));
    }
    let mut replies = Vec::new();
    for call in &mut calls {
        replies.push(begin(call).await);
    }
    for i in order(0..calls.len()) {
        if replies[i].is_none() {
            replies[i] = Some(calls[i].as_mut().await.unwrap());
        }
    }
    let expected = numbers.flat_map(|number| {
        let granted = granted(number + 1);
        [
            granted.clone(),
            granted,
            Reply::Released,
            Reply::NotHeld(None),
        ]
    });
    for (i, (reply, expected)) in replies.into_iter().zip(expected).enumerate() {
        assert_eq!(reply, Some(expected), "command {i}");
    }
}
