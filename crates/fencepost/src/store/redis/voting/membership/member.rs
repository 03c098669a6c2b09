//! One node's part in the membership: reads its marker, and writes what follows from it.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::timeout;

use super::{Membership, Server};
use crate::error::NodeError;
use crate::runtime::clock::{Clock, Moment};
use crate::runtime::randomness::{Direct, draw};
use crate::store::redis::sentinel::Named;
use crate::store::redis::voting::handshake::Look;
use fencepost_core::quorum::membership::{
    Marker, Proposal, Seen, Sight, Stage, Step, Verdict, conflict, judge, step,
};

/// How often a node that waits for others is checked.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// How often in a row a marker may change concurrently before starting over.
pub(crate) const MOST_CHANGES: usize = 32;

/// One node's part in the membership.
#[derive(Clone)]
pub(crate) struct Member {
    membership: Arc<Membership>,
    index: usize,
    clock: Arc<dyn Clock>,
    /// Until when the node does not vote by our own clock, whatever the server's clock says: it may
    /// jump.
    until: Arc<Mutex<Option<Moment>>>,
    /// The name of a Sentinel group's master.
    named: Option<Named>,
}

/// The state of a node.
pub(super) enum Standing {
    /// It belongs to the cluster, under this marker, and does not vote for this long.
    In(String, Option<Duration>),
    /// The cluster is incomplete, for this reason.
    Waiting(NodeError),
}

impl Member {
    /// `None` for a node that is not on the list.
    pub(crate) fn of(
        membership: &Arc<Membership>,
        address: &str,
        clock: Arc<dyn Clock>,
    ) -> Option<Self> {
        let index = membership.terms.nodes().iter().position(|n| n == address)?;
        Some(Self {
            membership: Arc::clone(membership),
            index,
            clock,
            until: Arc::default(),
            named: None,
        })
    }

    /// The same, for a server named by its Sentinels.
    pub(crate) fn named(&self, named: Option<Named>) -> Self {
        Self {
            named,
            ..self.clone()
        }
    }

    /// Queries a server; the master of a Sentinel group only if it is safe.
    fn sight(&self, look: &Look) -> Result<Sight, NodeError> {
        let sight = look.sight()?;
        let Some(named) = &self.named else {
            return Ok(sight);
        };
        named.check_fencing(look.facts.fencing)?;
        Ok(named.sight(sight))
    }

    /// Records that it does not vote for this long.
    fn waits(&self, left: Duration) -> Duration {
        let now = self.clock.now();
        let mut until = self.until.lock().unwrap_or_else(PoisonError::into_inner);
        let later = until.map_or(now + left, |until| until.max(now + left));
        *until = Some(later);
        later.since(now)
    }

    /// How long it still does not vote, as recorded.
    fn still_waits(&self) -> Option<Duration> {
        let until = self.until.lock().unwrap_or_else(PoisonError::into_inner);
        let left = until.as_ref()?.since(self.clock.now());
        (!left.is_zero()).then_some(left)
    }

    /// Why it must not vote now: its Sentinels do not name it, or no node of this client may.
    pub(crate) fn refusal(&self) -> Option<NodeError> {
        if let Some(Err(why)) = self.named.as_ref().map(Named::check) {
            return Some(why);
        }
        if !self.membership.is_refused.load(Ordering::SeqCst) {
            return None;
        }
        conflict(&self.membership.views()).map(NodeError::Differs)
    }

    fn saw(&self, seen: Seen, look: u64) {
        let mut views = self.membership.views();
        let view = &mut views[self.index];
        let is_new = view.seen != seen;
        view.saw(seen, look);
        let is_refused = conflict(&views).is_some();
        drop(views);
        self.membership
            .is_refused
            .store(is_refused, Ordering::SeqCst);
        if is_new {
            self.membership.changed.send_modify(|count| *count += 1);
        }
    }

    /// The connection is gone. Its cluster is remembered.
    pub(crate) fn lost_sight(&self) {
        let mut views = self.membership.views();
        let view = &mut views[self.index];
        if matches!(view.seen, Seen::Bare | Seen::Pending(_)) {
            view.seen = Seen::Unknown;
        }
    }

    /// Waits for the others, at most this long, while the cluster is incomplete.
    pub(crate) async fn enter(
        &self,
        node: &str,
        server: &Server<'_>,
        limit: Duration,
    ) -> Result<(String, Option<Duration>), NodeError> {
        let end = tokio::time::Instant::now() + limit;
        let mut changed = self.membership.changed.subscribe();
        loop {
            changed.mark_unchanged();
            match self.vet(node, server).await? {
                Standing::In(marker, left) => match self.refusal() {
                    Some(why) => return Err(why),
                    None => return Ok((marker, left)),
                },
                Standing::Waiting(why) if tokio::time::Instant::now() >= end => return Err(why),
                Standing::Waiting(_) => {
                    // Other clients may be at work too, which only the servers know.
                    let _ = timeout(LOOK_AGAIN, changed.changed()).await;
                }
            }
        }
    }

    /// Reads the marker, and writes what follows from it.
    pub(super) async fn vet(&self, node: &str, server: &Server<'_>) -> Result<Standing, NodeError> {
        for _ in 0..MOST_CHANGES {
            let number = self.membership.looks.fetch_add(1, Ordering::SeqCst) + 1;
            let look = server.look().await?;
            let sight = self.sight(&look)?;
            let marker = match look.marker.as_deref().map(str::parse::<Marker>) {
                None => None,
                Some(Ok(marker)) => Some(marker),
                Some(Err(_)) => {
                    let why = format!("the marker of {node} cannot be read by this version");
                    self.saw(Seen::Foreign(why.clone()), number);
                    return Err(NodeError::Differs(why));
                }
            };
            let raw = look.marker.unwrap_or_default();
            let is_old = |marker: &Marker| {
                let old = self.membership.old.as_ref();
                old.is_some_and(|old| old.is_of(marker))
            };
            let marker = marker.filter(|marker| !is_old(marker));
            let verdict = marker.as_ref().map(|marker| {
                let verdict = judge(&self.membership.terms, self.index, marker, &sight);
                (marker, verdict)
            });
            match verdict {
                Some((_, Verdict::Refuse(why))) => {
                    let why = format!("{node} belongs to another cluster: {why}");
                    self.saw(Seen::Foreign(why.clone()), number);
                    return Err(NodeError::Differs(why));
                }
                Some((marker, Verdict::Votes)) if self.membership.durable && !marker.durable => {
                    must_sync(&sight)?;
                    let mut new = sight.rewritten(marker, Stage::Active, incarnation()?);
                    new.durable = true;
                    server.replace(&raw, Some(&new)).await?;
                }
                Some((marker, Verdict::Votes)) => {
                    self.saw(Seen::Member(Proposal::from(marker)), number);
                    return Ok(Standing::In(raw, self.still_waits()));
                }
                Some((marker, Verdict::Waits(left))) => {
                    self.saw(Seen::Member(Proposal::from(marker)), number);
                    return Ok(Standing::In(raw, Some(self.waits(left))));
                }
                Some((marker, Verdict::Rewrite(Stage::Active, _)))
                    if marker.stage == Stage::Quarantine && self.still_waits().is_some() =>
                {
                    self.saw(Seen::Member(Proposal::from(marker)), number);
                    return Ok(Standing::In(raw, self.still_waits()));
                }
                Some((marker, Verdict::Rewrite(stage, durable))) => {
                    let mut new = sight.rewritten(marker, stage, incarnation()?);
                    new.durable = durable;
                    new.node = self.index;
                    if marker.durable && !durable {
                        tracing::warn!(node, "not every write is synced any more");
                    }
                    server.replace(&raw, Some(&new)).await?;
                }
                Some((marker, Verdict::Pending)) => {
                    self.saw(Seen::Pending(Proposal::from(marker)), number);
                    if let Some(why) = self.take_step(node, server, &raw, &sight).await? {
                        return Ok(Standing::Waiting(why));
                    }
                }
                None => {
                    self.saw(Seen::Bare, number);
                    if let Some(why) = self.take_step(node, server, &raw, &sight).await? {
                        return Ok(Standing::Waiting(why));
                    }
                }
            }
        }
        let why = "its marker keeps changing; retry".to_owned();
        Ok(Standing::Waiting(NodeError::NoCluster(why)))
    }

    /// Takes the next step on this node, or returns what it waits for.
    async fn take_step(
        &self,
        node: &str,
        server: &Server<'_>,
        raw: &str,
        sight: &Sight,
    ) -> Result<Option<NodeError>, NodeError> {
        let membership = &self.membership;
        let undo = membership.undo.load(Ordering::SeqCst);
        let step = step(self.index, &membership.views(), undo);
        let marker = |proposal: Proposal, stage: Stage| -> Result<Marker, NodeError> {
            Ok(Marker {
                cluster: proposal.cluster,
                epoch: proposal.epoch,
                node: self.index,
                terms: membership.terms.clone(),
                stage,
                since_us: sight.now_us,
                incarnation: incarnation()?,
                run_id: sight.run_id.clone(),
                history: sight.history.clone(),
                durable: proposal.durable,
                fresh: proposal.fresh && stage == Stage::Pending,
            })
        };
        if let Step::Propose | Step::Join(Proposal { durable: true, .. }) = step
            && membership.durable
        {
            must_sync(sight)?;
        }
        match step {
            Step::Propose => {
                let proposal = Proposal {
                    cluster: incarnation()?,
                    epoch: membership.old.as_ref().map_or(1, |old| old.epoch + 1),
                    durable: membership.durable,
                    fresh: membership.fresh,
                };
                let pending = marker(proposal, Stage::Pending)?;
                server.put(raw, &pending).await?;
            }
            Step::Join(proposal) => {
                let pending = marker(proposal, Stage::Pending)?;
                server.put(raw, &pending).await?;
            }
            Step::Commit(proposal) => {
                let stage = match proposal.fresh {
                    true => Stage::Active,
                    false => Stage::Quarantine,
                };
                if stage == Stage::Quarantine {
                    tracing::warn!(
                        node,
                        max_ttl = ?membership.terms.max_ttl,
                        "new cluster: this node votes after max_ttl, when every earlier lock has \
                         expired; `fencepost init --fresh` skips the wait on unused servers"
                    );
                }
                server.replace(raw, Some(&marker(proposal, stage)?)).await?;
            }
            Step::Withdraw => server.replace(raw, None).await?,
            Step::Quarantine(proposal) => {
                tracing::warn!(
                    node,
                    max_ttl = ?membership.terms.max_ttl,
                    "this node lost its marker and may have forgotten locks; it votes again by \
                     itself after max_ttl"
                );
                let proposal = Proposal {
                    durable: false,
                    ..proposal
                };
                let marker = marker(proposal, Stage::Quarantine)?;
                server.put(raw, &marker).await?;
            }
            Step::Refuse(why) => return Err(NodeError::Differs(why)),
            Step::Wait(others) => {
                let nodes = membership.terms.nodes();
                let others: Vec<_> = others.iter().map(|n| nodes[*n].as_str()).collect();
                let why = format!("waiting for {}", others.join(" and "));
                return Ok(Some(NodeError::NoCluster(why)));
            }
        }
        Ok(None)
    }
}

/// The operator's promise must hold now.
fn must_sync(sight: &Sight) -> Result<(), NodeError> {
    match sight.syncs {
        Some(true) => Ok(()),
        Some(false) => Err(NodeError::NotDurable),
        None => Err(NodeError::HidesSync),
    }
}

pub(crate) fn incarnation() -> Result<String, NodeError> {
    let number = draw(&Direct).map_err(|error| NodeError::Other(error.to_string()))?;
    Ok(format!("{number:032x}"))
}
