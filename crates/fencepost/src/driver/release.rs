//! A release on the nodes, awaited or in the background.
//!
//! The release of a node goes behind whatever else is in flight there. A node that is away gets its
//! release when it comes back, with a tombstone that refuses what arrives late. When a tombstone is
//! needed is decided by [`Unresolved`].

use std::pin::{Pin, pin};
use std::sync::Arc;

use tokio::time::{Sleep, sleep};

use super::calls::{Answer, Calls};
use super::coordinator::{Claim, Coordinator};
use super::in_flight::InFlight;
use crate::store::Request;
use fencepost_core::lock::TicketDisposition;
use fencepost_core::quorum::NodeSet;
use fencepost_core::quorum::unresolved::{Followup, Sent, Unresolved};
use fencepost_core::ticket::ClientId;

/// A release in flight. Dropped before all nodes have answered, it goes on by itself.
pub(super) struct ReleaseTask(Option<Delivery>);

impl ReleaseTask {
    pub(super) fn begin(
        coordinator: &Arc<Coordinator>,
        claim: Claim,
        ticket: TicketDisposition,
        follower: Option<ClientId>,
        nodes: NodeSet,
        late: InFlight,
    ) -> Self {
        let (in_flight, mut unresolved) = late.into_parts();
        let mut round = Calls::default();
        // First, so that whatever they still have to send goes before the releases.
        round.append(in_flight, |node| (Sent::Claim, node));
        let left_out = unresolved.released(nodes);
        let request = |tombstone| {
            let command = claim.release(tombstone, ticket.clone(), follower.clone());
            Request::new(&claim.name, command)
        };
        // Most often none needs a tombstone.
        let without = request(false);
        for index in nodes.iter() {
            let node = &coordinator.nodes[index];
            let call = match unresolved.needs_tombstone(index) {
                true => node.send(&request(true)),
                false => node.send(&without),
            };
            round.add((Sent::Release, index), call);
        }
        let delivery = Delivery {
            coordinator: coordinator.clone(),
            claim,
            round,
            unresolved,
        };
        for index in left_out.iter() {
            delivery.defer(index);
        }
        Self(Some(delivery))
    }

    /// Sends it without waiting for the answers.
    pub(super) fn start(&mut self) {
        if let Some(delivery) = &mut self.0 {
            delivery.round.start();
        }
    }

    /// The next node's answer to its release.
    pub(super) async fn next(&mut self, mut timer: Pin<&mut Sleep>) -> (usize, Answer) {
        loop {
            match &mut self.0 {
                Some(delivery) => {
                    let ((sent, node), answer) = delivery.next(timer.as_mut()).await;
                    if sent == Sent::Release {
                        return (node, answer);
                    }
                }
                // Only `drop` takes it.
                None => std::future::pending().await,
            }
        }
    }
}

impl Drop for ReleaseTask {
    fn drop(&mut self) {
        let Some(mut delivery) = self.0.take() else {
            return;
        };
        while let Some((tag, answer)) = delivery.round.try_next() {
            delivery.note(tag, &answer);
        }
        if !delivery.round.is_empty() {
            let coordinator = delivery.coordinator.clone();
            coordinator.in_background(delivery.finish());
        }
    }
}

/// What was sent, and to which node.
type Tag = (Sent, usize);

/// The commands of a release. Unlike [`ReleaseTask`], it may be dropped for good: that happens when
/// the runtime shuts down.
struct Delivery {
    coordinator: Arc<Coordinator>,
    claim: Claim,
    round: Calls<Tag>,
    unresolved: Unresolved,
}

impl Delivery {
    async fn next(&mut self, timer: Pin<&mut Sleep>) -> (Tag, Answer) {
        let (tag, answer) = self.round.next(timer, self.coordinator.node_timeout).await;
        self.note(tag, &answer);
        (tag, answer)
    }

    fn note(&mut self, (sent, node): Tag, answer: &Answer) {
        match self.unresolved.ended(node, sent, answer.as_ref().err()) {
            Followup::Nothing => {}
            Followup::Tombstone => self.defer(node),
        }
    }

    /// Sends a release with a tombstone once the node can be asked.
    fn defer(&self, node: usize) {
        let coordinator = &*self.coordinator;
        let outbox = &coordinator.deferred[node];
        let until = coordinator.clock.now() + self.claim.ttl.get();
        if outbox.put(
            self.claim.name.clone(),
            self.claim.release(true, TicketDisposition::Stays, None),
            until,
        ) {
            let (clock, randomness) = (&coordinator.clock, &coordinator.randomness);
            coordinator.in_background(outbox.deliver(clock.clone(), randomness.clone()));
        }
    }

    async fn finish(mut self) {
        let mut timer = pin!(sleep(self.coordinator.node_timeout));
        while !self.round.is_empty() {
            let _ = self.next(timer.as_mut()).await;
        }
    }
}
