//! A lease that is left for good.

use super::*;
use fencepost_core::lock::Reply;
use fencepost_core::ttl::Ttl;

/// A server that had forgotten the script of a renewal was sent it again when the seal was there already,
/// and kept what was sealed for no longer than a lease.
#[tokio::test(start_paused = true)]
async fn a_renewal_that_is_sent_again_does_not_shorten_what_is_sealed() {
    let scene = Scene::of(3);
    let lease = scene.lock().await.unwrap();
    let late = &scene.nodes[2];
    late.extends(Manner::Again(ms(50)));
    sleep(THIRD + ms(100)).await;
    assert_eq!(late.extended_at().len(), 1, "it is under way");
    late.extends(Manner::Well);
    lease.seal(Ttl::new(EVER).unwrap()).await.unwrap();
    for node in &scene.nodes {
        let name = LockName::new(NAME).unwrap();
        let seen = node.memory.call(&name, Command::Inspect).await;
        let Ok(Reply::Snapshot(seen)) = seen else {
            panic!("{seen:?}");
        };
        let left = seen.holder.unwrap().remaining.unwrap();
        assert!(left > EVER / 2, "{left:?}");
    }
}
