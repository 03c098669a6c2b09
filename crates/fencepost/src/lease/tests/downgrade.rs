//! A writer that becomes a reader, at the worst moments.

use super::*;

/// What a node has been told that keeps a reader.
fn kept_shared(node: &Scripted) -> usize {
    let seen = node.seen.lock().unwrap();
    let shared =
        |(_, command): &&(Duration, Command)| matches!(command, Command::ExtendShared { .. });
    seen.iter().filter(shared).count()
}

/// The writer's renewal that nobody waits for any more gave the value back, and with it the reader's
/// lock.
#[tokio::test(start_paused = true)]
async fn a_renewal_that_is_under_way_takes_nothing_from_the_reader() {
    let scene = Scene::of(3);
    let lease = scene.lock().await.unwrap();
    scene.all_extend(Manner::Never);
    sleep(THIRD + ms(10)).await;
    assert_eq!(scene.nodes[0].extended_at().len(), 1, "it is under way");
    scene.all_extend(Manner::Well);
    let reader = lease.downgrade().await.unwrap();
    assert_eq!(reader.remaining(), VALID, "extended by it");
    sleep(TTL * 2).await;
    assert!(reader.is_valid(), "and renewed as a reader");
    for node in &scene.nodes {
        assert_eq!(node.releases(), []);
        assert_eq!(node.extended_at().len(), 1, "nothing for the writer");
        assert!(kept_shared(node) > 3, "{}", kept_shared(node));
    }
    reader.release().await.unwrap();
    scene.locks.clone().shutdown().await;
    // What was never answered may still arrive, and is refused.
    assert!(scene.nodes[0].releases().contains(&Some(TTL)));
}

#[tokio::test(start_paused = true)]
async fn without_a_majority_the_reader_has_what_the_writer_had() {
    let scene = Scene::of(3);
    let lease = scene.lock().await.unwrap();
    scene.all_extend(Manner::Never);
    sleep(ms(100)).await;
    let reader = lease.downgrade().await.unwrap();
    assert_eq!(scene.clock.elapsed(), ms(100) + NODE_TIMEOUT);
    assert!(reader.is_shared());
    assert_eq!(reader.remaining(), VALID - scene.clock.elapsed());
    let others = scene.locks.read_write(NAME);
    let error = others.read().timeout(Duration::ZERO).await.unwrap_err();
    assert!(error.is_held(), "the nodes have not heard of it: {error}");
    // They hear of it with the next renewal.
    scene.all_extend(Manner::Well);
    let _other = others.read().timeout(TTL).await.unwrap();
    assert!(reader.is_valid() && reader.remaining() > VALID - THIRD);
}

#[tokio::test(start_paused = true)]
async fn without_a_majority_for_too_long_the_reader_is_told_at_the_writers_end() {
    let scene = Scene::of(3);
    let lease = scene.lock().await.unwrap();
    scene.all_extend(Manner::Never);
    let reader = lease.downgrade().await.unwrap();
    assert_eq!(reader.lost().await, LossReason::NoQuorum);
    assert!(scene.clock.elapsed() <= VALID);
    assert!(scene.clock.elapsed() >= VALID - ms(50));
}

/// A lease was handed out whose end had come while it waited for the nodes.
#[tokio::test(start_paused = true)]
async fn a_reader_whose_end_has_come_meanwhile_is_not_handed_out() {
    let scene = Scene::of(3);
    let lease = scene.lock().renew(false).await.unwrap();
    scene.all_extend(Manner::Never);
    sleep(VALID - ms(50) + Duration::from_micros(500)).await;
    let error = lease.downgrade().await.unwrap_err();
    assert!(error.is_lost(), "{error}");
}

#[tokio::test(start_paused = true)]
async fn the_limits_of_the_writer_are_the_readers() {
    let scene = Scene::of(3);
    let lease = scene.lock().max_hold(ms(1200)).await.unwrap();
    sleep(ms(600)).await;
    let reader = lease.downgrade().await.unwrap();
    assert_eq!(reader.lost().await, LossReason::MaxHold);
    assert!(scene.clock.elapsed() <= ms(1200));
    assert!(scene.clock.elapsed() >= ms(1100));
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_over_becomes_nothing() {
    let scene = Scene::of(1);
    let lease = scene.lock().renew(false).await.unwrap();
    sleep(TTL).await;
    assert!(lease.downgrade().await.unwrap_err().is_lost());
}

#[tokio::test(start_paused = true)]
async fn a_change_that_is_dropped_half_way_gives_the_lock_back() {
    let scene = Scene::of(3);
    for millis in 0..8 {
        let lease = scene.lock().await.unwrap();
        scene.all_extend(Manner::After(ms(5)));
        let _ = timeout(ms(millis), lease.downgrade()).await;
        scene.all_extend(Manner::Well);
        let _next = scene.lock().timeout(ms(50)).await.unwrap();
    }
}
