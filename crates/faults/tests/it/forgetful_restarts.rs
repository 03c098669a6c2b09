//! A server that was restarted may have forgotten the lock it shares with two majorities. Without
//! quarantine that makes two holders, and the checker finds them; with it there is never more than
//! one. Redlock's own description names the remedy ("delayed restarts") and leaves it to the operator.
//!
//! The story: the holder has the lock on just a majority of the nodes; one of those forgets it; the
//! contender asks for as long as the holder's lease is valid.

use fencepost::RestartPolicy;
use fencepost_faults::cluster::Layout;
use fencepost_faults::node::{Node, NodeOptions, Persistence};

use crate::stage::{Stage, TTL};

/// How the server comes back.
#[derive(Clone, Copy, Debug)]
enum Forgetful {
    Empty,
    OlderCopy,
    StaleReplica,
}

impl Forgetful {
    fn layout(self, nodes: usize, policy: RestartPolicy) -> Layout {
        let mut layout = Layout {
            nodes,
            policy,
            ..Layout::default()
        };
        match self {
            Self::Empty => {}
            Self::OlderCopy => layout.options.persistence = Persistence::EverySecond,
            Self::StaleReplica => {
                layout.proxied = true;
                let at_once = ["--repl-diskless-sync-delay", "0"];
                layout.options.words = at_once.map(str::to_owned).to_vec();
            }
        }
        layout
    }
}

/// Whether the contender got the lock while the holder's lease was valid.
async fn two_hold(how: Forgetful, nodes: usize, policy: RestartPolicy) -> bool {
    let mut stage = Stage::set(how.layout(nodes, policy)).await;
    let shared = stage.shared_node();
    let replica = match how {
        Forgetful::StaleReplica => Some(lagging_replica(&stage, shared)),
        _ => None,
    };
    stage.cluster.nodes[shared].back_up().unwrap();
    let held = stage.hold_on_just_a_majority().await;
    match how {
        Forgetful::Empty => stage.restart(shared, |_| Ok(())),
        Forgetful::OlderCopy => stage.restart(shared, Node::restore_backup),
        Forgetful::StaleReplica => {
            let replica = replica.unwrap();
            stage.cluster.nodes[shared].kill().unwrap();
            replica.tell(&["REPLICAOF", "NO", "ONE"]).unwrap();
            stage.cluster.proxies[shared].lead_to(&replica.socket());
            stage.cluster.nodes[shared] = replica;
        }
    }
    let (second, while_valid) = stage.contend(&held).await;
    assert_eq!(!stage.overlaps().is_empty(), while_valid);
    assert!(second.token() > held.token(), "tokens grow either way");
    assert!(stage.bad_tokens().is_empty());
    while_valid
}

/// A replica that has all its master has, and hears no more of it from now on.
fn lagging_replica(stage: &Stage, node: usize) -> Node {
    let cluster = &stage.cluster;
    let master = cluster.nodes[node].address();
    let replicaof = ["--replicaof", "127.0.0.1", &master.port().to_string()].map(str::to_owned);
    let options = NodeOptions {
        words: replicaof.to_vec(),
        ..cluster.layout.options.clone()
    };
    let folder = cluster.folder().join("replica");
    let replica = Node::start(&cluster.network, node, &folder, options).unwrap();
    let end = std::time::Instant::now() + TTL * 5;
    while !replica
        .ask::<String>(&["INFO", "replication"])
        .unwrap()
        .contains("master_link_status:up")
    {
        assert!(
            std::time::Instant::now() < end,
            "the replica is not in step"
        );
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    replica.tell(&["REPLICAOF", "127.0.0.1", "1"]).unwrap();
    replica
}

macro_rules! stories {
    ($($trusted:ident, $delayed:ident, $how:expr, $nodes:literal;)+) => { $(
        #[tokio::test]
        async fn $trusted() {
            assert!(two_hold($how, $nodes, RestartPolicy::Trust).await, "the checker finds it");
        }

        #[tokio::test]
        async fn $delayed() {
            assert!(!two_hold($how, $nodes, RestartPolicy::Delay).await);
        }
    )+ };
}

stories! {
    of_three_trusted_one_that_comes_back_empty_makes_two_holders,
    of_three_one_that_comes_back_empty_does_not_vote_until_it_is_safe,
    Forgetful::Empty, 3;

    of_five_trusted_one_that_comes_back_empty_makes_two_holders,
    of_five_one_that_comes_back_empty_does_not_vote_until_it_is_safe,
    Forgetful::Empty, 5;

    of_three_trusted_one_with_an_older_copy_makes_two_holders,
    of_three_one_with_an_older_copy_does_not_vote_until_it_is_safe,
    Forgetful::OlderCopy, 3;

    of_five_trusted_one_with_an_older_copy_makes_two_holders,
    of_five_one_with_an_older_copy_does_not_vote_until_it_is_safe,
    Forgetful::OlderCopy, 5;

    of_three_trusted_a_stale_replica_makes_two_holders,
    of_three_a_stale_replica_does_not_vote_until_it_is_safe,
    Forgetful::StaleReplica, 3;

    of_five_trusted_a_stale_replica_makes_two_holders,
    of_five_a_stale_replica_does_not_vote_until_it_is_safe,
    Forgetful::StaleReplica, 5;
}
