//! What sends: all nodes of one client, asked at once, each answer handed to the pure decisions.
//!
//! Nothing here decides. And whatever is dropped here, at whatever await, leaves nothing behind:
//! an attempt that nobody wants any more is released on every node that may have granted it, by a
//! task of its own.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tokio_util::task::TaskTracker;

use super::departure::Departure;
use super::late::Late;
use super::outbox::Outbox;
use super::round::Round;
use super::{
    AcquireStep, Acquisition, Denial, ExtendStep, Extension, Handover, HandoverStep, NodeSet,
    Quorum,
};
use crate::clock::{Clock, Moment};
use crate::error::{Error, LossReason, NodeError, NodeOutcome, NodeReport};
use crate::name::LockName;
use crate::node::Node;
use crate::state::{Command, Reply};
use crate::tasks::Tasks;
use crate::token::FencingToken;
use crate::ttl::{Drift, Ttl};
use crate::value::{AttemptValue, Owner};

/// All nodes of one client, and what it takes to ask them.
pub(crate) struct Fleet {
    pub(crate) quorum: Quorum,
    pub(crate) clock: Arc<dyn Clock>,
    pub(super) nodes: Vec<Arc<dyn Node>>,
    drift: Drift,
    pub(super) node_timeout: Duration,
    pub(super) outboxes: Vec<Outbox>,
    tasks: Tasks,
    /// Releases that go on after their caller has gone.
    background: TaskTracker,
}

/// How to take a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Take {
    /// If it is free.
    Free,
    /// From whoever has it.
    Stolen,
}

/// One value's claim to one lock: what is sent to the nodes to keep it or to give it back.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub(crate) name: LockName,
    pub(crate) value: AttemptValue,
    pub(crate) ttl: Ttl,
}

impl Claim {
    pub(super) fn release(&self, may_still_arrive: bool) -> Command {
        Command::Release {
            value: self.value.clone(),
            refuse_for: may_still_arrive.then(|| self.ttl.get()),
        }
    }
}

/// A lock that was acquired.
#[derive(Debug)]
pub(crate) struct Grant {
    pub(crate) claim: Claim,
    pub(crate) token: FencingToken,
    pub(crate) deadline: Moment,
    /// What was still on its way when it was decided.
    pub(crate) late: Late,
    /// Whom a steal threw out.
    pub(crate) evicted: Option<Owner>,
}

/// Why a lease was not extended.
#[derive(Debug)]
pub(crate) enum NotExtended {
    /// It is over: a majority says so.
    Lost(LossReason),
    /// It is over: its time had run out before a majority had answered.
    TooLate,
    /// It goes on as it was, until its old deadline.
    NoQuorum(Vec<NodeReport>),
}

impl Fleet {
    pub(crate) fn new(
        quorum: Quorum,
        nodes: Vec<Arc<dyn Node>>,
        clock: Arc<dyn Clock>,
        drift: Drift,
        node_timeout: Duration,
        tasks: Tasks,
    ) -> Arc<Self> {
        let outbox = |node: &Arc<dyn Node>| Outbox::new(node.clone(), node_timeout);
        Arc::new(Self {
            quorum,
            clock,
            outboxes: nodes.iter().map(outbox).collect(),
            nodes,
            drift,
            node_timeout,
            tasks,
            background: TaskTracker::new(),
        })
    }

    /// One attempt to take a lock. Dropping the future takes the attempt back everywhere.
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        claim: &Claim,
        take: Take,
    ) -> Result<Grant, Error> {
        let start = self.clock.now();
        let deadline = self.drift.deadline(start, claim.ttl);
        let mut attempt = Attempt::begin(self, claim.clone(), take);
        let limit = self.node_timeout.min(deadline.since(start));
        let mut timer = pin!(sleep(limit));
        let token = loop {
            let (node, answer) = attempt.round.next(timer.as_mut(), limit).await;
            match attempt.answered(node, answer) {
                AcquireStep::Wait => {}
                AcquireStep::Raise { nodes, to } => {
                    attempt.raise(nodes, to);
                    timer.as_mut().reset(Instant::now() + limit);
                }
                AcquireStep::Certified(token) => break token,
                AcquireStep::Blocked => return Err(attempt.denied()),
            }
        };
        // After the last answer was read: what counts is the time that is left now.
        let now = self.clock.now();
        if now >= deadline {
            return Err(Error::TooLate {
                name: attempt.claim.name.clone(),
                took: now.since(start),
                ttl: attempt.claim.ttl.get(),
            });
        }
        Ok(attempt.succeeded(token, deadline))
    }

    /// One round of extending a lease that ends at `until`; the new deadline if it worked. Waits
    /// no longer than `limit`. Whatever is still on its way in the end, also when the future is
    /// dropped, goes to `late`.
    pub(crate) async fn extend(
        &self,
        claim: &Claim,
        token: FencingToken,
        until: Moment,
        limit: Duration,
        late: impl FnMut(Late),
    ) -> Result<Moment, NotExtended> {
        let start = self.clock.now();
        if start >= until {
            return Err(NotExtended::TooLate);
        }
        let mut votes = Extension::new(self.quorum);
        let mut under_way = UnderWay::new(late);
        let round = &mut under_way.round;
        for (index, node) in self.nodes.iter().enumerate() {
            let command = Command::Extend {
                value: claim.value.clone(),
                ttl: claim.ttl,
                token,
            };
            round.add(index, node.call(&claim.name, command));
        }
        let limit = self.node_timeout.min(limit);
        let mut timer = pin!(sleep(limit));
        loop {
            let (node, answer) = round.next(timer.as_mut(), limit).await;
            if is_uncertain(&answer) {
                under_way.lost.lose(node);
            }
            match votes.answered(node, answer) {
                ExtendStep::Wait => {}
                ExtendStep::Extended => break,
                ExtendStep::Lost(why) => return Err(NotExtended::Lost(why)),
                ExtendStep::NoQuorum => {
                    return Err(NotExtended::NoQuorum(self.report(votes.outcomes())));
                }
            }
        }
        if self.clock.now() >= until {
            return Err(NotExtended::TooLate);
        }
        Ok(self.drift.deadline(start, claim.ttl))
    }

    /// Gives a lock back on all nodes and returns when a majority has answered; the rest goes on by
    /// itself, also when this future is dropped.
    pub(crate) async fn release(self: &Arc<Self>, claim: Claim, late: Late) -> Result<(), Error> {
        let name = claim.name.clone();
        let mut departure = Departure::begin(self, claim, self.all(), late);
        let mut votes = Handover::new(self.quorum);
        let mut timer = pin!(sleep(self.node_timeout));
        loop {
            let (node, answer) = departure.next(timer.as_mut()).await;
            match votes.answered(node, answer) {
                HandoverStep::Wait => {}
                HandoverStep::Released => return Ok(()),
                HandoverStep::Lost => {
                    return Err(Error::Lost {
                        name,
                        why: LossReason::Expired,
                    });
                }
                HandoverStep::NoQuorum => return Err(self.no_quorum(name, votes.outcomes())),
            }
        }
    }

    /// Gives a lock back on these nodes without anybody waiting for it.
    pub(crate) fn let_go(self: &Arc<Self>, claim: Claim, nodes: NodeSet, late: Late) {
        drop(Departure::begin(self, claim, nodes, late));
    }

    pub(crate) fn all(&self) -> NodeSet {
        NodeSet::all(self.quorum.nodes())
    }

    /// Asks every node the same harmless thing and waits for all of them, each at most for one
    /// node time-out.
    pub(crate) async fn ask_all(
        &self,
        name: &LockName,
        command: &Command,
    ) -> Vec<Result<Reply, NodeError>> {
        let mut round = Round::default();
        for (index, node) in self.nodes.iter().enumerate() {
            round.add(index, node.call(name, command.clone()));
        }
        let mut timer = pin!(sleep(self.node_timeout));
        let timeout = NodeError::Timeout(self.node_timeout);
        let mut answers = vec![Err(timeout); self.nodes.len()];
        while !round.is_empty() {
            let (node, answer) = round.next(timer.as_mut(), self.node_timeout).await;
            answers[node] = answer;
        }
        answers
    }

    /// Waits until nothing goes on in the background.
    pub(crate) async fn settled(&self) {
        self.background.close();
        self.background.wait().await;
    }

    /// Lets something go on that nobody waits for.
    pub(super) fn in_background(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(self.background.track_future(task));
    }

    pub(crate) fn nodes(&self) -> &[Arc<dyn Node>] {
        &self.nodes
    }

    pub(crate) fn no_quorum(
        &self,
        name: LockName,
        outcomes: impl Iterator<Item = NodeOutcome>,
    ) -> Error {
        Error::NoQuorum {
            name,
            needed: self.quorum.needed(),
            nodes: self.report(outcomes),
        }
    }

    pub(crate) fn report(&self, outcomes: impl Iterator<Item = NodeOutcome>) -> Vec<NodeReport> {
        let addresses = self.nodes.iter().map(|node| node.address().to_owned());
        let pairs = addresses.zip(outcomes);
        pairs
            .map(|(node, outcome)| NodeReport { node, outcome })
            .collect()
    }
}

fn is_uncertain(answer: &Result<Reply, NodeError>) -> bool {
    matches!(answer, Err(error) if error.is_uncertain())
}

/// A round that hands over what it leaves open, however it ends.
struct UnderWay<F: FnMut(Late)> {
    round: Round,
    lost: Late,
    hand_over: F,
}

impl<F: FnMut(Late)> UnderWay<F> {
    fn new(hand_over: F) -> Self {
        Self {
            round: Round::default(),
            lost: Late::default(),
            hand_over,
        }
    }
}

impl<F: FnMut(Late)> Drop for UnderWay<F> {
    fn drop(&mut self) {
        let mut late = std::mem::take(&mut self.lost);
        late.take_over(std::mem::take(&mut self.round));
        (self.hand_over)(late);
    }
}

/// An attempt under way. Dropped before it succeeded, it releases what it may have got.
struct Attempt<'a> {
    fleet: &'a Arc<Fleet>,
    claim: Claim,
    votes: Acquisition,
    round: Round,
    late: Late,
    succeeded: bool,
}

impl<'a> Attempt<'a> {
    fn begin(fleet: &'a Arc<Fleet>, claim: Claim, take: Take) -> Self {
        let proposed = fleet.clock.proposal();
        let mut round = Round::default();
        for (index, node) in fleet.nodes.iter().enumerate() {
            let (value, ttl) = (claim.value.clone(), claim.ttl);
            let command = match take {
                Take::Free => Command::Acquire {
                    value,
                    ttl,
                    proposed,
                },
                Take::Stolen => Command::Steal {
                    value,
                    ttl,
                    proposed,
                },
            };
            round.add(index, node.call(&claim.name, command));
        }
        Self {
            fleet,
            claim,
            votes: Acquisition::new(fleet.quorum),
            round,
            late: Late::default(),
            succeeded: false,
        }
    }

    fn answered(&mut self, node: usize, answer: Result<Reply, NodeError>) -> AcquireStep {
        if is_uncertain(&answer) {
            self.late.lose(node);
        }
        self.votes.answered(node, answer)
    }

    fn raise(&mut self, nodes: NodeSet, to: FencingToken) {
        for index in nodes.iter() {
            let value = self.claim.value.clone();
            let call = self.fleet.nodes[index].call(&self.claim.name, Command::Raise { value, to });
            self.round.add(index, call);
        }
    }

    fn denied(&self) -> Error {
        let name = self.claim.name.clone();
        match self.votes.denial() {
            Denial::Held { by, remaining } => Error::Held {
                name,
                by,
                remaining,
            },
            Denial::NoQuorum => self.fleet.no_quorum(name, self.votes.outcomes()),
        }
    }

    fn succeeded(mut self, token: FencingToken, deadline: Moment) -> Grant {
        self.succeeded = true;
        Grant {
            claim: self.claim.clone(),
            token,
            deadline,
            late: self.take_late(),
            evicted: self.votes.evicted().cloned(),
        }
    }

    fn take_late(&mut self) -> Late {
        let mut late = std::mem::take(&mut self.late);
        late.take_over(std::mem::take(&mut self.round));
        late
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if !self.succeeded {
            let (nodes, late) = (self.votes.may_hold(), self.take_late());
            self.fleet.let_go(self.claim.clone(), nodes, late);
        }
    }
}
