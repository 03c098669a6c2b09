//! One attempt to acquire, in flight on all nodes. Dropped before it succeeded, it releases what it may have got.

use std::num::NonZeroU32;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Sleep, timeout};

use super::calls::Calls;
use super::claim::{AcquireMode, Claim, Grant};
use super::coordinator::{Coordinator, REPORT_PATIENCE};
use super::in_flight::InFlight;
use super::release::{ReleaseTask, Terms};
use crate::error::{Error, HeldBy, HolderStatus, NodeError};
use crate::runtime::clock::Moment;
use crate::store::Request;
use fencepost_core::lock::{Command, Holder, Reply, TicketDisposition};
use fencepost_core::quorum::{AcquireStep, AcquireTally, Denial, NodeSet};
use fencepost_core::token::FencingToken;

/// An attempt in flight. Dropped before it succeeded, it releases what it may have got.
pub(super) struct Attempt<'a> {
    coordinator: &'a Arc<Coordinator>,
    claim: Claim,
    proposed: FencingToken,
    votes: AcquireTally,
    pub(super) round: Calls,
    late: InFlight,
    /// Whether its caller goes on waiting if it fails.
    goes_on: bool,
    /// It has succeeded, or has been released.
    over: bool,
}

impl<'a> Attempt<'a> {
    pub(super) fn begin(
        coordinator: &'a Arc<Coordinator>,
        claim: Claim,
        mode: &AcquireMode,
        now: Moment,
    ) -> Self {
        let proposed = coordinator.proposal(&claim, now);
        let mut round = Calls::default();
        let command = match mode {
            AcquireMode::Free { turn, .. } => claim.acquire(proposed, turn.clone()),
            AcquireMode::Stolen => claim.steal(proposed, Vec::new()),
            AcquireMode::Over(from) => claim.steal(proposed, from.clone()),
        };
        let goes_on = matches!(mode, AcquireMode::Free { goes_on: true, .. });
        let request = Request::new(&claim.name, command).needs_expiry(!goes_on);
        let nodes = coordinator.nodes.iter().map(|node| &**node).enumerate();
        round.send(&request, now, nodes, coordinator.quorum.decisive());
        Self {
            coordinator,
            claim,
            proposed,
            votes: AcquireTally::new(coordinator.quorum),
            round,
            late: InFlight::default(),
            goes_on,
            over: false,
        }
    }

    pub(super) fn answered(
        &mut self,
        node: usize,
        answer: Result<Reply, NodeError>,
    ) -> AcquireStep {
        self.late.answered(node, &answer);
        if let Ok(Reply::Held(Holder {
            token: Some(token), ..
        })) = &answer
            && *token >= self.proposed
        {
            // The holder's clock is ahead of ours. The next attempt need not find that out by a raise.
            self.coordinator.overtaken.note(&self.claim.name, *token);
        }
        self.votes.answered(node, answer)
    }

    pub(super) fn raise(&mut self, nodes: NodeSet, to: FencingToken) {
        self.coordinator.overtaken.note(&self.claim.name, to);
        for index in nodes.iter() {
            let value = self.claim.value.clone();
            let call =
                self.coordinator.nodes[index].call(&self.claim.name, Command::Raise { value, to });
            self.round.add(index, call);
        }
    }

    /// Acquires the lock also on nodes where the last holder still had it. Its release is in flight
    /// there, and a free node would let other attempts succeed in vain.
    fn fill_in(&mut self, token: FencingToken) {
        for index in self.votes.refused().iter() {
            let command = self.claim.extend(token, NonZeroU32::MIN);
            let call = self.coordinator.nodes[index].call(&self.claim.name, command);
            self.round.add(index, call);
        }
        self.round.start();
    }

    /// Hears the nodes that have not answered yet for a moment, if there is no quorum and somebody will be told
    /// of each of them. What is decided stays so.
    pub(super) async fn hear_others(&mut self, mut timer: Pin<&mut Sleep>, limit: Duration) {
        if self.goes_on || !matches!(self.votes.denial(), Denial::NoQuorum) {
            return;
        }
        let hear = async {
            while !self.round.is_empty() {
                let (node, answer) = self.round.next(timer.as_mut(), limit).await;
                self.answered(node, answer);
            }
        };
        let _ = timeout(REPORT_PATIENCE, hear).await;
    }

    pub(super) fn denied(&self) -> Error {
        let name = self.claim.name.clone();
        match self.votes.denial() {
            Denial::Held { by, .. } if self.goes_on => Error::not_free(name, HeldBy::Unasked(by)),
            Denial::Held {
                by: owner,
                token,
                remaining,
            } => {
                let holder = HolderStatus {
                    owner,
                    token,
                    remaining,
                };
                Error::held(name, holder)
            }
            Denial::Split { between } => Error::not_free(name, HeldBy::Split(between)),
            Denial::Overtaken => Error::not_free(name, HeldBy::Overtaken),
            Denial::NoQuorum => self.coordinator.no_quorum(name, self.votes.outcomes()),
        }
    }

    pub(super) fn succeeded(mut self, token: FencingToken, deadline: Moment) -> Grant {
        self.over = true;
        self.fill_in(token);
        Grant {
            claim: self.claim.clone(),
            token,
            deadline,
            late: self.take_late(),
            evicted: self.votes.evicted().cloned(),
        }
    }

    /// Releases what was granted now instead of on drop.
    pub(super) fn ends(mut self, ticket: TicketDisposition) {
        self.release_granted(ticket);
    }

    fn release_granted(&mut self, ticket: TicketDisposition) {
        self.over = true;
        let (nodes, late) = (self.votes.may_hold(), self.take_late());
        let claim = self.claim.clone();
        let terms = Terms::of(ticket);
        drop(ReleaseTask::begin(
            self.coordinator,
            claim,
            terms,
            nodes,
            late,
        ));
    }

    fn take_late(&mut self) -> InFlight {
        let mut late = std::mem::take(&mut self.late);
        late.take_over(std::mem::take(&mut self.round));
        late
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if !self.over {
            // Its waiter, if there is one, is gone too, and takes its ticket out of the queue.
            self.release_granted(TicketDisposition::Stays);
        }
    }
}
