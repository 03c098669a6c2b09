//! Sends commands to all nodes of a client at once, and hands each reply to the pure decisions.
//!
//! Nothing here decides. A future dropped at any await leaves nothing behind: an abandoned attempt
//! is released in the background on every node that may have granted it.

use std::num::NonZeroU32;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tokio_util::task::TaskTracker;

use super::attempt::Attempt;
use super::ballots::{Ballots, NodeVotes};
use super::calls::Calls;
use super::claim::{AcquireMode, Claim, Grant, NotExtended};
use super::deferred::DeferredReleases;
use super::in_flight::InFlight;
use super::overtaken::Overtaken;
use super::release::{ReleaseTask, Terms, Unfinished};
use crate::error::{Cause, Error, NodeError, NodeOutcome, NodeReport};
use crate::runtime::clock::{Clock, Moment};
use crate::runtime::randomness::Randomness;
use crate::runtime::tasks::Tasks;
use crate::store::{Node, Request};
use fencepost_core::lock::{Command, NodeQueue, Repair, Reply};
use fencepost_core::name::LockName;
use fencepost_core::quorum::proposal::by_clocks;
use fencepost_core::quorum::{
    AcquireStep, ExtendStep, ExtendTally, NodeSet, Quorum, ReleaseStep, ReleaseTally,
};
use fencepost_core::ticket::{ClientId, TICKET_LEASE, Ticket, TicketId};
use fencepost_core::token::FencingToken;
use fencepost_core::ttl::Drift;
use fencepost_core::wait::backoff::spread;

/// How long the slow nodes are waited for at the least once a majority has told of its queue.
const LEAST_PATIENCE: Duration = Duration::from_millis(2);

/// How long nodes that have not answered yet are still heard once there can be no quorum: it changes nothing,
/// but the error tells of each of them.
pub(crate) const REPORT_PATIENCE: Duration = Duration::from_millis(50);

/// All nodes of one client, and what it takes to ask them.
pub(crate) struct Coordinator {
    pub(crate) quorum: Quorum,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) randomness: Arc<dyn Randomness>,
    pub(super) nodes: Vec<Arc<dyn Node>>,
    drift: Drift,
    pub(super) node_timeout: Duration,
    pub(super) deferred: Vec<DeferredReleases>,
    pub(super) unfinished: Arc<Unfinished>,
    /// The names whose register was ahead of our proposal.
    pub(super) overtaken: Overtaken,
    /// How the nodes voted.
    pub(super) ballots: Ballots,
    /// Our clock was found to be wrong.
    is_off: AtomicBool,
    tasks: Tasks,
    /// Releases that go on after their caller has gone.
    background: TaskTracker,
    #[cfg(any(test, feature = "testing"))]
    pub(crate) hold_ups: super::hold_up::HoldUps,
}

impl Coordinator {
    pub(crate) fn new(
        quorum: Quorum,
        nodes: Vec<Arc<dyn Node>>,
        clock: Arc<dyn Clock>,
        randomness: Arc<dyn Randomness>,
        drift: Drift,
        node_timeout: Duration,
        tasks: Tasks,
    ) -> Arc<Self> {
        let outbox = |node: &Arc<dyn Node>| DeferredReleases::new(node.clone(), node_timeout);
        Arc::new(Self {
            quorum,
            clock,
            randomness,
            deferred: nodes.iter().map(outbox).collect(),
            ballots: Ballots::new(nodes.len()),
            nodes,
            drift,
            node_timeout,
            unfinished: Arc::default(),
            overtaken: Overtaken::default(),
            is_off: AtomicBool::new(false),
            tasks,
            background: TaskTracker::new(),
            #[cfg(any(test, feature = "testing"))]
            hold_ups: Default::default(),
        })
    }

    /// Waits for as long as a test holds this lock up.
    async fn pass_hold_up(&self, _name: &LockName) {
        #[cfg(any(test, feature = "testing"))]
        self.hold_ups.pass(_name).await;
    }

    /// The token that an attempt proposes.
    pub(super) fn proposal(&self, claim: &Claim, now: Moment) -> FencingToken {
        let nodes = self.nodes.iter();
        let nodes = nodes.filter_map(|node| node.wall_micros(now));
        let proposal = by_clocks(self.clock.wall_micros(), nodes);
        if let Some(off) = proposal.off
            && !self.is_off.swap(true, Ordering::Relaxed)
        {
            tracing::warn!(
                ?off,
                "this machine's clock is far from the nodes' clocks; tokens follow the nodes'"
            );
        }
        let least = claim.least_proposal();
        self.overtaken.above(&claim.name, proposal.token).max(least)
    }

    /// One attempt to acquire a lock. Dropping the future releases it everywhere.
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        claim: &Claim,
        mode: &AcquireMode,
    ) -> Result<Grant, Error> {
        let start = self.clock.now();
        self.pass_hold_up(&claim.name).await;
        let deadline = self.drift.deadline(start, claim.ttl);
        let mut attempt = Attempt::begin(self, claim.clone(), mode, start);
        let limit = self.node_timeout.min(deadline.since(start));
        let mut timer = pin!(sleep(limit));
        let (mut asked, mut heard) = (start, None);
        let token = loop {
            // Those that have come together have taken equally long: one reading of the clock is enough for all of them.
            let together = heard.and_then(|when| Some((when, attempt.round.try_next()?)));
            let (when, (node, answer)) = match together {
                Some(next) => next,
                None => {
                    let next = attempt.round.next(timer.as_mut(), limit).await;
                    (self.clock.now(), next)
                }
            };
            heard = Some(when);
            self.ballots.cast(node, &answer, when.since(asked));
            match attempt.answered(node, answer) {
                AcquireStep::Wait => {}
                AcquireStep::Raise { nodes, to } => {
                    attempt.raise(nodes, to);
                    (asked, heard) = (self.clock.now(), None);
                    timer.as_mut().reset(Instant::now() + limit);
                }
                AcquireStep::Certified(token) => break token,
                AcquireStep::Blocked => {
                    attempt.hear_others(timer.as_mut(), limit).await;
                    let error = attempt.denied();
                    attempt.ends(claim.ticket_returns());
                    return Err(error);
                }
            }
        };
        // After the last answer was read: what counts is the time that is left now.
        let now = self.clock.now();
        if now >= deadline {
            attempt.ends(claim.ticket_returns());
            return Err(Error::from(Cause::TooLate {
                name: claim.name.clone(),
                took: now.since(start),
                ttl: claim.ttl.get(),
            }));
        }
        Ok(attempt.succeeded(token, deadline))
    }

    /// One round of extending a lease that ends at `until` and was entered that often; the new
    /// deadline if it worked. Waits no longer than `limit`. Commands still in flight at the end, also
    /// when the future is dropped, go to `late`.
    pub(crate) async fn extend(
        &self,
        claim: &Claim,
        token: FencingToken,
        entries: NonZeroU32,
        until: Moment,
        limit: Duration,
        late: impl FnMut(InFlight),
    ) -> Result<Moment, NotExtended> {
        self.pass_hold_up(&claim.name).await;
        let start = self.clock.now();
        if start >= until {
            return Err(NotExtended::TooLate);
        }
        let mut votes = ExtendTally::new(self.quorum);
        let mut under_way = UnderWay::new(late);
        let round = &mut under_way.round;
        let request = Request::new(&claim.name, claim.extend(token, entries));
        for (index, node) in self.nodes.iter().enumerate() {
            let call = match claim.outlives {
                true => node.call_unbound(&claim.name, request.command.clone()),
                false => node.send(&request),
            };
            round.add(index, call);
        }
        let limit = self.node_timeout.min(limit);
        let mut timer = pin!(sleep(limit));
        let mut deadline = self.drift.deadline(start, claim.ttl);
        loop {
            let (node, answer) = round.next(timer.as_mut(), limit).await;
            under_way.ended.answered(node, &answer);
            self.ballots
                .cast(node, &answer, self.clock.now().since(start));
            if let Ok(Reply::ExtendedFor(time)) = &answer {
                deadline = deadline.min(start + *time);
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
        let decided = self.clock.now();
        if claim.repair == Repair::Never && !round.is_empty() {
            // Which nodes have forgotten the lock is known only now that it counts as held.
            let patience = decided.since(start).max(LEAST_PATIENCE);
            timer.as_mut().reset(Instant::now() + patience);
            while !round.is_empty() && !timer.is_elapsed() {
                let (node, answer) = round.next(timer.as_mut(), patience).await;
                under_way.ended.answered(node, &answer);
                votes.answered(node, answer);
            }
        }
        if claim.repair == Repair::Never {
            let again = Claim {
                repair: Repair::UnlessOvertaken,
                ..claim.clone()
            };
            let request = Request::new(&claim.name, again.extend(token, entries));
            for node in votes.forgotten().iter() {
                round.add(node, self.nodes[node].send(&request));
            }
            round.start();
        }
        if self.clock.now() >= until {
            return Err(NotExtended::TooLate);
        }
        Ok(deadline)
    }

    /// Releases a lock on all nodes. The release is sent when this returns, and the follower may send
    /// its attempt. The future ends when a majority has answered; the rest goes on by itself, also
    /// when the future is dropped.
    pub(crate) fn release(
        self: &Arc<Self>,
        claim: Claim,
        held_with: Option<FencingToken>,
        follower: Option<ClientId>,
        late: InFlight,
    ) -> impl Future<Output = Result<(), Error>> + use<> {
        let name = claim.name.clone();
        let terms = Terms {
            ticket: claim.ticket_leaves(),
            follower,
            held_with,
            is_lease: true,
        };
        let mut release = ReleaseTask::begin(self, claim, terms, self.all(), late);
        release.start();
        let coordinator = Arc::clone(self);
        async move {
            let mut votes = ReleaseTally::new(coordinator.quorum);
            let mut timer = pin!(sleep(coordinator.node_timeout));
            loop {
                let (node, answer) = release.next(timer.as_mut()).await;
                match votes.answered(node, answer) {
                    ReleaseStep::Wait => {}
                    ReleaseStep::Released => return Ok(()),
                    ReleaseStep::Lost(why) => return Err(Error::lost(name, why)),
                    ReleaseStep::NoQuorum => {
                        return Err(coordinator.no_quorum(name, votes.outcomes()));
                    }
                }
            }
        }
    }

    /// Releases a lease on these nodes in the background. It names no follower: its caller may block
    /// the thread for long afterwards, or end the program.
    pub(crate) fn spawn_release(self: &Arc<Self>, claim: Claim, nodes: NodeSet, late: InFlight) {
        let terms = Terms {
            is_lease: true,
            ..Terms::of(claim.ticket_leaves())
        };
        drop(ReleaseTask::begin(self, claim, terms, nodes, late));
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
        let mut round = Calls::default();
        let request = Request::new(name, command.clone());
        for (index, node) in self.nodes.iter().enumerate() {
            round.add(index, node.send(&request));
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

    /// Asks every node the same thing until `is_enough` says so of an answer, and each at most for one
    /// node time-out. What is in flight then is left to the caller.
    pub(crate) async fn ask_until(
        &self,
        name: &LockName,
        command: &Command,
        mut is_enough: impl FnMut(usize, Result<Reply, NodeError>) -> bool,
    ) -> Calls {
        let mut round = Calls::default();
        let request = Request::new(name, command.clone());
        for (index, node) in self.nodes.iter().enumerate() {
            round.add(index, node.send(&request));
        }
        let limit = self.node_timeout;
        let mut timer = pin!(sleep(limit));
        while !round.is_empty() {
            let (node, answer) = round.next(timer.as_mut(), limit).await;
            if is_enough(node, answer) {
                break;
            }
        }
        round
    }

    /// Enqueues these tickets on all nodes, or keeps them there. They are in flight when this
    /// returns.
    pub(crate) fn queue(&self, name: &LockName, tickets: &[Ticket]) -> Queueing {
        let mut round = Calls::default();
        let command = Command::Enqueue {
            tickets: tickets.to_vec(),
            lease: TICKET_LEASE,
        };
        let request = Request::new(name, command);
        for (index, node) in self.nodes.iter().enumerate() {
            round.add(index, node.send(&request));
        }
        round.start();
        Queueing(round)
    }

    /// What the nodes answer to that: what is enough, or all that come with a majority, or soon after it.
    pub(crate) async fn queued(
        &self,
        mut asked: Queueing,
        is_enough: impl Fn(&[Result<NodeQueue, NodeError>]) -> bool,
    ) -> Vec<Result<NodeQueue, NodeError>> {
        let start = Instant::now();
        let mut limit = self.node_timeout;
        let mut timer = pin!(sleep(limit));
        let mut answers = vec![Err(NodeError::Timeout(limit)); self.nodes.len()];
        let mut heard = 0;
        while !asked.0.is_empty() {
            let (node, answer) = asked.0.next(timer.as_mut(), limit).await;
            answers[node] = match answer {
                Ok(Reply::Queue(queue)) => Ok(queue),
                Ok(other) => Err(fencepost_core::quorum::unexpected_reply(&other)),
                Err(error) => Err(error),
            };
            heard += usize::from(answers[node].is_ok());
            if heard == self.quorum.needed() {
                if is_enough(&answers) {
                    break;
                }
                // A slow node gets as much time again, and no more: the majority's answers must not wait.
                let patience = start.elapsed().max(LEAST_PATIENCE);
                timer.as_mut().reset(Instant::now() + patience);
                // What is said of it is how long it was waited for.
                limit = start.elapsed() + patience;
            }
        }
        answers
    }

    /// Removes these tickets from the queue on all nodes, in the background.
    pub(crate) fn leave(self: &Arc<Self>, name: LockName, tickets: Vec<TicketId>) {
        let coordinator = Arc::clone(self);
        self.in_background(async move {
            coordinator
                .ask_all(&name, &Command::Leave { tickets })
                .await;
        });
    }

    /// Spawns a task that ends by itself when it is no longer needed.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(task);
    }

    /// Waits until all background work has ended.
    pub(crate) async fn settled(&self) {
        self.unfinished.hurry();
        self.background.close();
        self.background.wait().await;
    }

    /// Runs a task in the background; `settled` waits for it.
    pub(super) fn in_background(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(self.background.track_future(task));
    }

    /// Between three quarters and the whole of `time`, so that clients do not keep step with each
    /// other.
    pub(crate) fn spread(&self, time: Duration) -> Duration {
        spread(time, self.randomness.share())
    }

    pub(crate) fn node_timeout(&self) -> Duration {
        self.node_timeout
    }

    /// How each node has voted so far.
    pub(crate) fn votes(&self) -> Vec<NodeVotes> {
        self.ballots
            .seen(self.nodes.iter().map(|node| node.address()))
    }

    pub(crate) fn nodes(&self) -> &[Arc<dyn Node>] {
        &self.nodes
    }

    pub(crate) fn no_quorum(
        &self,
        name: LockName,
        outcomes: impl Iterator<Item = NodeOutcome>,
    ) -> Error {
        self.no_quorum_of(name, self.report(outcomes))
    }

    pub(crate) fn no_quorum_of(&self, name: LockName, nodes: Vec<NodeReport>) -> Error {
        Error::from(Cause::NoQuorum {
            name,
            needed: self.quorum.needed(),
            nodes,
        })
    }

    pub(crate) fn report(&self, outcomes: impl Iterator<Item = NodeOutcome>) -> Vec<NodeReport> {
        let addresses = self.nodes.iter().map(|node| node.address().to_owned());
        let pairs = addresses.zip(outcomes);
        pairs
            .map(|(node, outcome)| NodeReport::new(node, outcome))
            .collect()
    }
}

/// Tickets in flight to the nodes.
pub(crate) struct Queueing(Calls);

/// A round that hands over its unanswered calls, however it ends.
struct UnderWay<F: FnMut(InFlight)> {
    round: Calls,
    /// What has ended without an answer.
    ended: InFlight,
    hand_over: F,
}

impl<F: FnMut(InFlight)> UnderWay<F> {
    fn new(hand_over: F) -> Self {
        Self {
            round: Calls::default(),
            ended: InFlight::default(),
            hand_over,
        }
    }
}

impl<F: FnMut(InFlight)> Drop for UnderWay<F> {
    fn drop(&mut self) {
        let mut late = std::mem::take(&mut self.ended);
        late.take_over(std::mem::take(&mut self.round));
        (self.hand_over)(late);
    }
}
