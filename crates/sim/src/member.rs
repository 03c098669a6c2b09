//! Who may vote: what a client makes of the markers on its nodes, by the core's own rules
//! ([`membership`](fencepost_core::quorum::membership)). Here they are only carried out, as the driver does it
//! on real servers.

use std::time::Duration;

use fencepost::NodeError;
use fencepost::internals::clock::Moment;
use fencepost_core::lock::Command;
use fencepost_core::quorum::membership::{
    Marker, Proposal, Seen, Sight, Stage, Step, Terms, Verdict, View, conflict, judge, step,
};

use crate::plan::Plan;

/// The cluster that there is from the beginning.
const FIRST: &str = "first";
/// How long fence registers are kept: longer than any run.
const RETENTION: Duration = Duration::from_secs(24 * 60 * 60);

/// What all clients of a list of so many nodes have to agree on.
pub(crate) fn terms(plan: &Plan, nodes: usize) -> Terms {
    let names = (0..nodes).map(|node| format!("node-{node}")).collect();
    Terms::new(names, plan.max_ttl, RETENTION)
}

/// What a node of the first cluster has at the beginning.
pub(crate) fn first_marker(plan: &Plan, node: usize) -> Marker {
    Marker {
        cluster: FIRST.into(),
        epoch: 1,
        node,
        terms: terms(plan, plan.first_list.unwrap_or(plan.nodes)),
        stage: Stage::Active,
        since_us: 0,
        incarnation: format!("first-{node}"),
        run_id: run_id(0),
        history: String::new(),
        durable: plan.is_durable,
        fresh: false,
    }
}

/// What tells the processes of a node apart.
pub(crate) fn run_id(process: u64) -> String {
    format!("process-{process}")
}

/// What one client, or an operator, knows of the markers of its nodes.
pub(crate) struct Membership {
    terms: Terms,
    views: Vec<View>,
    looks: u64,
    /// The cluster that is closed, and that another takes the place of.
    pub(crate) old: Option<Proposal>,
}

/// What follows from a look at a node.
pub(crate) enum Standing {
    /// It belongs to the cluster, and does not vote for that long.
    In(Option<Duration>),
    /// This is to be written, if the marker is still the one that was seen; then it is to be looked at again.
    Write(Option<Marker>),
    /// The cluster is not complete.
    Waiting,
    /// No node of this client may vote.
    Refused(String),
}

impl Membership {
    /// Nothing is known yet.
    pub(crate) fn new(terms: Terms) -> Self {
        let views = vec![View::default(); terms.nodes().len()];
        Self {
            terms,
            views,
            looks: 0,
            old: None,
        }
    }

    /// All nodes belong to that cluster.
    pub(crate) fn of_cluster(terms: Terms, marker: &Marker) -> Self {
        let mut membership = Self::new(terms);
        for view in &mut membership.views {
            view.seen = Seen::Member(Proposal::from(marker));
        }
        membership
    }

    /// A look begins: its number.
    pub(crate) fn looks(&mut self) -> u64 {
        self.looks += 1;
        self.looks
    }

    /// Why no vote of any node counts.
    pub(crate) fn refusal(&self) -> Option<NodeError> {
        conflict(&self.views).map(NodeError::Differs)
    }

    /// The connection is gone. To what cluster it belonged is remembered.
    pub(crate) fn lost_sight(&mut self, node: usize) {
        let view = &mut self.views[node];
        if matches!(view.seen, Seen::Bare | Seen::Pending(_)) {
            view.seen = Seen::Unknown;
        }
    }

    /// Whether every node belongs to the cluster.
    pub(crate) fn is_complete(&self) -> bool {
        let is_member = |view: &View| matches!(view.seen, Seen::Member(_));
        self.views.iter().all(is_member)
    }

    /// What follows from that marker on that node. `rest`: it does not vote for that long by the client's own
    /// clock.
    pub(crate) fn vet(
        &mut self,
        node: usize,
        seen: &Option<Marker>,
        sight: &Sight,
        look: u64,
        rest: Option<Duration>,
        incarnation: String,
    ) -> Standing {
        let old = self.old.clone();
        let is_old = |marker: &&Marker| {
            let of = (&marker.cluster, marker.epoch);
            old.as_ref()
                .is_some_and(|old| (&old.cluster, old.epoch) == of)
        };
        let Some(marker) = seen.as_ref().filter(|marker| !is_old(marker)) else {
            self.saw(node, Seen::Bare, look);
            return self.step(node, sight, incarnation);
        };
        let of = Proposal::from(marker);
        match judge(&self.terms, node, marker, sight) {
            Verdict::Votes => {
                self.saw(node, Seen::Member(of), look);
                Standing::In(rest)
            }
            Verdict::Waits(left) => {
                self.saw(node, Seen::Member(of), look);
                Standing::In(Some(rest.map_or(left, |rest| rest.max(left))))
            }
            Verdict::Rewrite(Stage::Active, _)
                if marker.stage == Stage::Quarantine && rest.is_some() =>
            {
                self.saw(node, Seen::Member(of), look);
                Standing::In(rest)
            }
            Verdict::Rewrite(stage, durable) => Standing::Write(Some(Marker {
                durable,
                node,
                ..sight.rewritten(marker, stage, incarnation)
            })),
            Verdict::Pending => {
                self.saw(node, Seen::Pending(of), look);
                self.step(node, sight, incarnation)
            }
            Verdict::Refuse(why) => {
                self.saw(node, Seen::Foreign(why.clone()), look);
                Standing::Refused(why)
            }
        }
    }

    fn saw(&mut self, node: usize, seen: Seen, look: u64) {
        self.views[node].saw(seen, look);
    }

    fn step(&self, node: usize, sight: &Sight, incarnation: String) -> Standing {
        let (proposal, stage) = match step(node, &self.views, false) {
            Step::Propose => {
                let proposal = Proposal {
                    cluster: incarnation.clone(),
                    epoch: self.old.as_ref().map_or(1, |old| old.epoch + 1),
                    durable: false,
                    fresh: self.old.is_some(),
                };
                (proposal, Stage::Pending)
            }
            Step::Join(proposal) => (proposal, Stage::Pending),
            Step::Commit(proposal) if proposal.fresh => (proposal, Stage::Active),
            Step::Commit(proposal) => (proposal, Stage::Quarantine),
            Step::Quarantine(proposal) => {
                let durable = false;
                (
                    Proposal {
                        durable,
                        ..proposal
                    },
                    Stage::Quarantine,
                )
            }
            Step::Withdraw => return Standing::Write(None),
            Step::Wait(_) => return Standing::Waiting,
            Step::Refuse(why) => return Standing::Refused(why),
        };
        Standing::Write(Some(Marker {
            cluster: proposal.cluster,
            epoch: proposal.epoch,
            node,
            terms: self.terms.clone(),
            stage,
            since_us: sight.now_us,
            incarnation,
            run_id: sight.run_id.clone(),
            history: sight.history.clone(),
            durable: proposal.durable,
            fresh: proposal.fresh && stage == Stage::Pending,
        }))
    }
}

/// What a client's connection knows of the marker that it votes under.
#[derive(Default)]
pub(crate) struct Watch {
    /// As it was last read; empty before that.
    pub(crate) marker: String,
    /// Until when the node does not vote, by the client's own clock.
    pub(crate) until: Option<Moment>,
    /// It does not vote before the next look has said so.
    pub(crate) casts_no_vote: bool,
    /// The marker has changed: votes are held back until it is known how.
    pub(crate) is_alarmed: bool,
    /// The look that is on its way, and its number of the client's looks.
    pub(crate) look: Option<(u64, u64)>,
    /// What it sees may be old already.
    pub(crate) looks_again: bool,
}

impl Watch {
    /// How long the node still does not vote.
    pub(crate) fn quarantine_left(&self, now: Moment) -> Option<Duration> {
        let left = self.rest(now);
        left.or_else(|| self.casts_no_vote.then_some(Duration::from_millis(1)))
    }

    /// The same by the client's own clock alone.
    pub(crate) fn rest(&self, now: Moment) -> Option<Duration> {
        let left = self.until?.since(now);
        (!left.is_zero()).then_some(left)
    }

    pub(crate) fn waits(&mut self, left: Option<Duration>, now: Moment) {
        self.casts_no_vote = left.is_some();
        if let Some(left) = left {
            self.until = self.until.max(Some(now + left));
        }
    }
}

/// Whether it is not even sent to a node that does not vote.
pub(crate) fn asks_for_a_vote(command: &Command) -> bool {
    command.is_vote()
        && !matches!(
            command,
            Command::Extend { .. } | Command::ExtendShared { .. }
        )
}
