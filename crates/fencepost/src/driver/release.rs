//! Giving a lock back on the nodes, with or without somebody who waits for it.
//!
//! The release of a node goes behind whatever else is on its way there. A node that is away gets
//! its release when it comes back, with the request to refuse what may arrive late.

use std::pin::{Pin, pin};
use std::sync::Arc;

use tokio::time::{Sleep, sleep};

use super::calls::{Answer, Calls};
use super::coordinator::{Claim, Coordinator};
use super::in_flight::InFlight;
use fencepost_core::lock::TicketDisposition;
use fencepost_core::quorum::NodeSet;
use fencepost_core::ticket::ClientId;

/// A release under way. Dropped before all nodes have answered, it goes on by itself.
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
        let (late, lost) = late.into_parts();
        let mut round = Calls::default();
        // First, so that whatever they still have to send goes before the releases.
        round.append(late, Errand::InFlight);
        for index in nodes.iter() {
            let command = claim.release(lost.contains(index), ticket.clone(), follower.clone());
            let call = coordinator.nodes[index].call(&claim.name, command);
            round.add(Errand::Release(index), call);
        }
        let mut delivery = Delivery {
            coordinator: coordinator.clone(),
            claim,
            round,
            sent_again: NodeSet::NONE,
        };
        for index in lost.iter().filter(|index| !nodes.contains(*index)) {
            delivery.send_again(index);
        }
        Self(Some(delivery))
    }

    /// Puts it on its way, before anybody waits for the answers.
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
                    if let (Errand::Release(node), answer) = delivery.next(timer.as_mut()).await {
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
        while let Some((errand, answer)) = delivery.round.try_next() {
            delivery.note(errand, &answer);
        }
        if !delivery.round.is_empty() {
            let coordinator = delivery.coordinator.clone();
            coordinator.in_background(delivery.finish());
        }
    }
}

/// One command that is on its way to a node.
#[derive(Clone, Copy)]
enum Errand {
    /// Sent before the release, and not answered then.
    InFlight(usize),
    Release(usize),
}

/// The commands of a release. Unlike [`ReleaseTask`], it may be dropped for good: that happens when
/// the runtime shuts down.
struct Delivery {
    coordinator: Arc<Coordinator>,
    claim: Claim,
    round: Calls<Errand>,
    sent_again: NodeSet,
}

impl Delivery {
    async fn next(&mut self, timer: Pin<&mut Sleep>) -> (Errand, Answer) {
        let (errand, answer) = self.round.next(timer, self.coordinator.node_timeout).await;
        self.note(errand, &answer);
        (errand, answer)
    }

    /// Sees to it that a node that has not answered is asked again once it can be, in a way that
    /// also stops what arrives late.
    fn note(&mut self, errand: Errand, answer: &Answer) {
        let (node, again) = match (errand, answer) {
            (Errand::InFlight(node), Err(error)) => (node, error.is_uncertain()),
            (Errand::Release(node), Err(error)) => (node, error.may_pass()),
            (_, Ok(_)) => return,
        };
        if again {
            self.send_again(node);
        }
    }

    fn send_again(&mut self, node: usize) {
        if self.sent_again.contains(node) {
            return;
        }
        self.sent_again.insert(node);
        let coordinator = &*self.coordinator;
        let outbox = &coordinator.outboxes[node];
        let until = coordinator.clock.now() + self.claim.ttl.get();
        if outbox.put(
            self.claim.name.clone(),
            self.claim.release(true, TicketDisposition::Stays, None),
            until,
        ) {
            coordinator.in_background(outbox.deliver(coordinator.clock.clone()));
        }
    }

    async fn finish(mut self) {
        let mut timer = pin!(sleep(self.coordinator.node_timeout));
        while !self.round.is_empty() {
            let _ = self.next(timer.as_mut()).await;
        }
    }
}
