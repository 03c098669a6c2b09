//! A forked process shares its parent's connections, and must not use them.
//!
//! What went wrong: the child of a fork dropped the parent's lease, and it was released; and a child
//! that used the client made its parent read the child's answers as its own, so that it was granted a
//! lock that another client held. And a child that dropped the runtime took the parent's timer out of the `epoll` that they
//! share: nothing was renewed any more, and no loss told.

use std::process::Command;
use std::time::Duration;

use fencepost_tests::{Cluster, RedisServer};

const TTL: Duration = Duration::from_secs(30);

#[tokio::test]
async fn a_forked_child_neither_releases_nor_acquires_nor_disturbs_its_parent() {
    for nodes in [1, 3] {
        let cluster = Cluster::start(nodes);
        let other = cluster.client().await;
        let _held = other.lock("taken").ttl(TTL).await.unwrap();
        cluster.all_have("taken").await;
        let urls = cluster.urls();
        let forker = tokio::task::spawn_blocking(move || {
            Command::new(env!("CARGO_BIN_EXE_forker"))
                .args([&urls, "mine", "taken", "40"])
                .output()
        });
        let output = forker.await.unwrap().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(
            said.trim(),
            "children 0 parent 0 kept true renewed true",
            "{nodes} nodes: {errors}"
        );
        let by_children = |server: &RedisServer| server.cli(&["KEYS", "*child-*"]);
        for server in &cluster.servers {
            assert_eq!(by_children(server), "", "something was sent");
        }
    }
}
