//! A plain lock and a reentrant one are stored in different ways: on a name that both want, neither is ever
//! taken for the other.

use fencepost::NodeError;
use fencepost::internals::redis::RedisNode;
use fencepost_core::lock::{Reply, Snapshot};
use fencepost_tests::RedisServer;

use crate::on_redis::{Lock, open};

#[tokio::test]
async fn a_lock_of_one_kind_is_never_granted_as_one_of_the_other() {
    let server = RedisServer::start();
    let node = open(&server.url());
    let (plain, reentrant) = (Lock::new("job"), Lock::reentrant("job"));
    for (holder, other, kind, advice) in [
        (&plain, &reentrant, "string", "without a session"),
        (&reentrant, &plain, "hash", "by a session"),
    ] {
        server.cli(&["FLUSHALL"]);
        holder.granted(&node).await;
        is_refused(&node, other, advice).await;
        for call in [
            other.raise(&node),
            other.extend(&node),
            other.release(&node),
        ] {
            let reply = call.await.unwrap();
            assert!(
                matches!(&reply, Reply::NotHeld(Some(by)) if by.value.as_str() == holder.value()),
                "{reply:?}"
            );
        }
        let seen = other.inspect(&node).await.unwrap();
        let Reply::Snapshot(Snapshot {
            holder: Some(by), ..
        }) = &seen
        else {
            panic!("{seen:?}");
        };
        assert_eq!(by.value.as_str(), holder.value());
        assert_eq!(server.cli(&["TYPE", "job"]), kind);
        assert_eq!(holder.release(&node).await, Ok(Reply::Released));
        other.granted(&node).await;
    }
}

#[tokio::test]
async fn a_hash_that_is_no_lock_is_left_alone() {
    let server = RedisServer::start();
    let node = open(&server.url());
    // A read-write lock of Redisson's, or somebody's data.
    server.cli(&["HSET", "job", "mode", "read", "x", "1"]);
    is_refused(&node, &Lock::reentrant("job"), "2 fields").await;
    is_refused(&node, &Lock::new("job"), "another name").await;
    assert_eq!(server.cli(&["HGETALL", "job"]), "mode\nread\nx\n1");
}

async fn is_refused(node: &RedisNode, lock: &Lock, advice: &str) {
    for call in [lock.acquire(node), lock.steal(node)] {
        let error = call.await.unwrap_err();
        assert!(matches!(error, NodeError::WrongType(_)), "{error}");
        assert!(error.to_string().contains(advice), "{error}");
    }
}
