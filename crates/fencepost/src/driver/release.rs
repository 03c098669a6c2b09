//! A release on the nodes, awaited or in the background.
//!
//! The release of a node goes behind whatever else is in flight there. A node that is away gets its
//! release when it comes back, with a tombstone that refuses what arrives late. When a tombstone is
//! needed is decided by [`Unresolved`].

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::unconstrained;
use tokio::time::{Instant, Sleep, sleep};

use super::calls::{Answer, Calls};
use super::claim::Claim;
use super::coordinator::Coordinator;
use super::in_flight::InFlight;
use crate::error::NodeError;
use crate::store::Request;
use fencepost_core::lock::TicketDisposition;
use fencepost_core::quorum::NodeSet;
use fencepost_core::quorum::unresolved::{Followup, Sent, Unresolved};
use fencepost_core::ticket::ClientId;
use fencepost_core::token::FencingToken;

/// What a release brings along.
pub(super) struct Terms {
    /// What becomes of the ticket of the claim.
    pub(super) ticket: TicketDisposition,
    /// The client whose waiter follows the release by itself.
    pub(super) follower: Option<ClientId>,
    /// The token of the lease, where the answers are awaited. A release that is not awaited must take effect by one command:
    /// the process may end before the node can be asked again.
    pub(super) held_with: Option<FencingToken>,
    /// Whether it is that of a lease, and not of a failed attempt.
    pub(super) is_lease: bool,
}

impl Terms {
    /// Of what a failed attempt was granted.
    pub(super) fn of(ticket: TicketDisposition) -> Self {
        Self {
            ticket,
            follower: None,
            held_with: None,
            is_lease: false,
        }
    }
}

/// A release in flight. Dropped before all nodes have answered, it goes on by itself.
pub(super) struct ReleaseTask(Option<Delivery>);

impl ReleaseTask {
    pub(super) fn begin(
        coordinator: &Arc<Coordinator>,
        claim: Claim,
        terms: Terms,
        nodes: NodeSet,
        late: InFlight,
    ) -> Self {
        let (in_flight, mut unresolved) = late.into_parts();
        let mut round = Calls::default();
        // First, so that whatever they still have to send goes before the releases.
        round.append(in_flight, |node| (Sent::Claim, node));
        let left_out = unresolved.released(nodes);
        let request = |tombstone| {
            let (ticket, follower) = (terms.ticket.clone(), terms.follower.clone());
            let command = claim.release(tombstone, ticket, follower, terms.is_lease);
            Request::new(&claim.name, command).held_with(terms.held_with)
        };
        // Sent before what follows, if they have something left to send.
        round.start();
        let to = |index: usize| ((Sent::Release, index), &*coordinator.nodes[index]);
        // Most often none needs a tombstone.
        let mut without = nodes;
        for index in nodes
            .iter()
            .filter(|node| unresolved.needs_tombstone(*node))
        {
            without.remove(index);
            let (tag, node) = to(index);
            round.add(tag, node.send(&request(true)));
        }
        let now = coordinator.clock.now();
        let decisive = match without == coordinator.all() {
            true => coordinator.quorum.decisive(),
            false => 1,
        };
        round.send(&request(false), now, without.iter().map(to), decisive);
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
            coordinator.finish(Rest::Release(delivery));
        }
    }
}

impl Coordinator {
    /// Lets these calls be sent and answered in the background, each at most for one node time-out. What they
    /// are answered is of no interest.
    pub(crate) fn look_after(&self, mut round: Calls) {
        while round.try_next().is_some() {}
        if !round.is_empty() {
            self.finish(Rest::Calls(round));
        }
    }

    fn finish(&self, rest: Rest) {
        if self.unfinished.add(rest, self.node_timeout) {
            let unfinished = Arc::clone(&self.unfinished);
            // One that is answered must not look as if it were not, because many are.
            self.in_background(unconstrained(unfinished.finish()));
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
            self.claim
                .release(true, TicketDisposition::Stays, None, false),
            until,
        ) {
            let (clock, randomness) = (&coordinator.clock, &coordinator.randomness);
            coordinator.in_background(outbox.deliver(clock.clone(), randomness.clone()));
        }
    }

    /// Notes what has been answered meanwhile, without waiting. Whether all is answered, or was given up.
    fn settles(&mut self, is_over: bool) -> bool {
        while let Some((tag, answer)) = self.round.try_next() {
            self.note(tag, &answer);
        }
        if is_over {
            let timeout = Err(NodeError::Timeout(self.coordinator.node_timeout));
            while let Some(tag) = self.round.give_up_oldest() {
                self.note(tag, &timeout);
            }
        }
        self.round.is_empty()
    }
}

/// The interval between looks at releases that are not awaited: after that, nearly all are answered.
const PAUSE: Duration = Duration::from_millis(2);

/// What goes on without its caller.
enum Rest {
    Release(Delivery),
    /// Calls that only have to be sent.
    Calls(Calls),
}

impl Rest {
    /// Notes what has been answered meanwhile, without waiting. Whether all is answered, or was given up.
    fn settles(&mut self, is_over: bool) -> bool {
        match self {
            Self::Release(delivery) => delivery.settles(is_over),
            Self::Calls(round) => {
                while round.try_next().is_some() {}
                is_over || round.is_empty()
            }
        }
    }
}

/// Releases that are sent, and of which some nodes have not answered yet; and other calls that nobody waits for. One
/// task looks after all of them, now and then, and only while there are any: a task for each would cost more than the
/// release.
#[derive(Default)]
pub(super) struct Unfinished {
    rests: Mutex<Rests>,
    /// A caller awaits them.
    hurry: Notify,
}

#[derive(Default)]
struct Rests {
    /// And when each is given up.
    open: VecDeque<(Instant, Rest)>,
    are_looked_after: bool,
}

impl Unfinished {
    /// Returns true when no task looks after them: then the caller must spawn [`finish`](Self::finish).
    #[must_use]
    fn add(&self, rest: Rest, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        let mut rests = self.rests();
        rests.open.push_back((until, rest));
        !std::mem::replace(&mut rests.are_looked_after, true)
    }

    /// They are waited for.
    pub(super) fn hurry(&self) {
        self.hurry.notify_one();
    }

    /// Looks after them until none is left.
    async fn finish(self: Arc<Self>) {
        // They keep their client alive, so they must not stay behind when the runtime drops this.
        let mut guard = ForgetOnDrop(Some(Arc::clone(&self)));
        let mut pause = PAUSE;
        while !self.settle() {
            tokio::select! {
                () = sleep(pause) => {}
                () = self.hurry.notified() => pause = Duration::from_millis(1),
            }
        }
        // Others may have come since, with a task of their own.
        guard.0 = None;
    }

    /// Whether none is left.
    fn settle(&self) -> bool {
        let mut open = std::mem::take(&mut self.rests().open);
        let now = Instant::now();
        open.retain_mut(|(until, rest)| !rest.settles(now >= *until));
        let mut rests = self.rests();
        open.append(&mut rests.open);
        rests.open = open;
        rests.are_looked_after = !rests.open.is_empty();
        !rests.are_looked_after
    }

    fn rests(&self) -> MutexGuard<'_, Rests> {
        // A panic while it was locked cannot have left it half changed.
        self.rests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Drops all of them with the task that looks after them.
struct ForgetOnDrop(Option<Arc<Unfinished>>);

impl Drop for ForgetOnDrop {
    fn drop(&mut self) {
        let Some(unfinished) = &self.0 else {
            return;
        };
        // Not while they are locked: to drop a client is much.
        let open = {
            let mut rests = unfinished.rests();
            rests.are_looked_after = false;
            std::mem::take(&mut rests.open)
        };
        drop(open);
    }
}
