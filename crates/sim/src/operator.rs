//! Somebody who replaces the list of nodes while clients are at work: closes the cluster on a majority of its
//! nodes, waits until no lock of it can be held, and makes the new one, all by the core's own rules.

use std::sync::Arc;
use std::time::Duration;

use fencepost_core::quorum::Quorum;
use fencepost_core::quorum::membership::{Marker, Proposal, Stage};
use tokio::time::sleep;

use crate::dice::Dice;
use crate::faults::Fault;
use crate::member::{Membership, Standing, terms};
use crate::world::{Inside, World};

/// How often nodes are tried that are away.
const AGAIN: Duration = Duration::from_millis(50);
/// How often in a row a marker may change before the others have their turn.
const MOST_CHANGES: usize = 4;

/// Replaces the first list by all nodes.
pub(crate) async fn replace_list(world: Arc<World>, first: usize, mut dice: Dice) {
    let Some(quorum) = Quorum::of(first) else {
        return;
    };
    let (begins, until) = (world.plan.faults_until / 10, world.plan.faults_until / 2);
    sleep(dice.time(begins, until)).await;
    {
        let mut inside = world.inside();
        inside.counts.note(Fault::ListChange);
        inside.log(|| "! the list of nodes is replaced".into());
    }
    let old = loop {
        let closed = world.act(|inside| {
            (0..first)
                .filter_map(|n| inside.close(n))
                .collect::<Vec<_>>()
        });
        if closed.len() >= quorum.needed()
            && let Some(marker) = closed.first()
        {
            break Proposal::from(marker);
        }
        sleep(AGAIN).await;
    };
    sleep(world.plan.max_ttl).await;
    let mut members = Membership::new(terms(&world.plan, world.plan.nodes));
    members.old = Some(old);
    while !members.is_complete() {
        world.act(|inside| {
            for node in 0..inside.plan.nodes {
                inside.make_cluster(&mut members, node);
            }
        });
        sleep(AGAIN).await;
    }
    world.inside().log(|| "! the new list votes".into());
}

impl Inside {
    /// From now on the node does not vote for its cluster: its marker, if it could be reached.
    fn close(&mut self, node: usize) -> Option<Marker> {
        let server = &self.servers[node];
        let marker = server
            .marker()
            .filter(|_| server.is_up && !server.is_paused)?;
        if marker.stage == Stage::Closing {
            return Some(marker);
        }
        let incarnation = format!("closing-{node}");
        let closing = server
            .sight()
            .rewritten(&marker, Stage::Closing, incarnation);
        self.write_marker(node, Some(closing.clone()));
        Some(closing)
    }

    /// Takes the steps that are due on a node.
    fn make_cluster(&mut self, members: &mut Membership, node: usize) {
        for _ in 0..MOST_CHANGES {
            let server = &self.servers[node];
            if !server.is_up || server.is_paused {
                return members.lost_sight(node);
            }
            let (marker, sight, look) = (server.marker(), server.sight(), members.looks());
            let incarnation = format!("operator-{node}-{look}");
            match members.vet(node, &marker, &sight, look, None, incarnation) {
                Standing::Write(new) => self.write_marker(node, new),
                Standing::In(_) | Standing::Waiting | Standing::Refused(_) => return,
            }
        }
    }
}
