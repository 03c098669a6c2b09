//! Markers on real servers: reads a node's marker, writes what follows from it, and watches it as long
//! as the connection lives. What follows is decided in
//! [`membership`](fencepost_core::quorum::membership).
//!
//! A vote must never be counted that a server gave after it forgot. The server watches the marker
//! for us (`CLIENT TRACKING`): what it says when the marker goes comes before every later reply on that
//! connection. A connection that cannot do that reads the marker behind each vote.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::{Cmd, Value, from_redis_value};
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

use super::closing::Closed;
use super::fault;
use super::handshake::{self, Look};
use super::link::Connection;
use super::options::RedisOptions;
use super::sentinel::Named;
use crate::error::NodeError;
use crate::runtime::clock::{Clock, Moment};
use fencepost_core::quorum::membership::{
    Marker, Proposal, Seen, Sight, Stage, Step, Terms, Verdict, View, conflict, is_same_data,
    judge, step,
};

pub(super) use super::keys::MARKER as KEY;
/// Replaces a marker if it is still the one that was read; deletes it if there is nothing to put there.
const REPLACE: &str = "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end \
                       if ARGV[2] == '' then redis.call('DEL', KEYS[1]) \
                       else redis.call('SET', KEYS[1], ARGV[2]) end return 1";
/// How often a node is looked at that waits for others.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// How often a node is looked at that votes: what no server tells by itself is seen by then.
const LOOK_EVERY: Duration = Duration::from_secs(3);
/// How often in a row a marker may change under our hands before we start from the beginning.
pub(super) const MOST_CHANGES: usize = 32;

/// What the nodes of one client know of each other's markers.
pub(crate) struct Membership {
    terms: Terms,
    /// What the operator promises of a cluster that is made now.
    durable: bool,
    fresh: bool,
    /// The cluster that this one supersedes, and which is closed.
    old: Option<Closed>,
    views: Mutex<Vec<View>>,
    looks: AtomicU64,
    changed: watch::Sender<u64>,
    /// A node belongs to another cluster: none of this client's may vote.
    is_refused: AtomicBool,
    undo: AtomicBool,
}

impl Membership {
    /// Nothing is known yet of the nodes at these addresses.
    #[must_use]
    pub(crate) fn new(
        nodes: Vec<String>,
        max_ttl: Duration,
        retention: Duration,
        durable: bool,
        fresh: bool,
        old: Option<Closed>,
    ) -> Self {
        let terms = Terms::new(nodes, max_ttl, retention);
        let views = Mutex::new(vec![View::default(); terms.nodes().len()]);
        Self {
            terms,
            durable,
            // Whoever held a lock of the old cluster has been waited for.
            fresh: fresh || old.is_some(),
            old,
            views,
            looks: AtomicU64::new(0),
            changed: watch::Sender::new(0),
            is_refused: AtomicBool::new(false),
            undo: AtomicBool::new(false),
        }
    }

    /// Takes back what was proposed, where that can still be done.
    pub(crate) fn undo(&self) {
        self.undo.store(true, Ordering::SeqCst);
        self.changed.send_modify(|count| *count += 1);
    }

    /// Resolves when every node belongs to the cluster, or one to another.
    pub(crate) async fn settled(&self) -> Result<(), String> {
        let mut changed = self.changed.subscribe();
        loop {
            {
                let views = self.views();
                if let Some(why) = conflict(&views) {
                    return Err(why);
                }
                let is_member = |view: &View| matches!(view.seen, Seen::Member(_));
                if views.iter().all(is_member) {
                    return Ok(());
                }
            }
            // The sender is in this very struct: it cannot be gone.
            let _ = changed.changed().await;
        }
    }

    /// Whether something of ours is still only proposed somewhere.
    pub(crate) fn is_pending_anywhere(&self) -> bool {
        let is_pending = |view: &View| matches!(view.seen, Seen::Pending(_));
        self.views().iter().any(is_pending)
    }

    /// What all clients have to agree on.
    pub(super) fn terms(&self) -> &Terms {
        &self.terms
    }

    /// Whether the operator promises that nobody holds a lock from before.
    pub(super) fn is_fresh(&self) -> bool {
        self.fresh
    }

    /// The only node, which is a Redis Cluster, has its markers.
    pub(super) fn joined(&self) {
        self.saw(Seen::Member(Proposal {
            cluster: String::new(),
            epoch: 1,
            durable: false,
            fresh: false,
        }));
    }

    /// The only node, which is a Redis Cluster, has the markers of others.
    pub(super) fn refuse(&self, why: String) {
        self.saw(Seen::Foreign(why));
    }

    fn saw(&self, seen: Seen) {
        let number = self.looks.fetch_add(1, Ordering::SeqCst) + 1;
        let is_new = {
            let mut views = self.views();
            let is_new = views[0].seen != seen;
            views[0].saw(seen, number);
            is_new
        };
        if is_new {
            self.changed.send_modify(|count| *count += 1);
        }
    }

    fn views(&self) -> MutexGuard<'_, Vec<View>> {
        self.views.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One node's part in the membership.
#[derive(Clone)]
pub(super) struct Member {
    membership: Arc<Membership>,
    index: usize,
    clock: Arc<dyn Clock>,
    /// Until when the node does not vote by our own clock, whatever the server's says meanwhile: that may
    /// jump.
    until: Arc<Mutex<Option<Moment>>>,
    /// The name that a Sentinel group's master has.
    named: Option<Named>,
}

/// Where a node stands.
pub(super) enum Standing {
    /// It belongs to the cluster, under this marker, and does not vote for that long.
    In(String, Option<Duration>),
    /// The cluster is not complete, for this reason.
    Waiting(NodeError),
}

impl Member {
    /// `None` for a node that is not on the list.
    pub(super) fn of(
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

    /// The same, where its server has a name from its Sentinels.
    pub(super) fn named(&self, named: Option<Named>) -> Self {
        Self {
            named,
            ..self.clone()
        }
    }

    /// What is seen of a server, and of the master of a Sentinel group only where it is safe.
    fn sight(&self, look: &Look) -> Result<Sight, NodeError> {
        let sight = look.sight()?;
        let Some(named) = &self.named else {
            return Ok(sight);
        };
        named.check_fencing(look.facts.fencing)?;
        Ok(named.sight(sight))
    }

    /// It does not vote for that long; which is remembered.
    fn waits(&self, left: Duration) -> Duration {
        let now = self.clock.now();
        let mut until = self.until.lock().unwrap_or_else(PoisonError::into_inner);
        let later = until.map_or(now + left, |until| until.max(now + left));
        *until = Some(later);
        later.since(now)
    }

    /// How long it still does not vote by what is remembered.
    fn still_waits(&self) -> Option<Duration> {
        let until = self.until.lock().unwrap_or_else(PoisonError::into_inner);
        let left = until.as_ref()?.since(self.clock.now());
        (!left.is_zero()).then_some(left)
    }

    /// Why it must not vote now: its Sentinels do not name it, or no node of this client may.
    pub(super) fn refusal(&self) -> Option<NodeError> {
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

    /// The connection is gone. To what cluster it belonged is remembered.
    pub(super) fn lost_sight(&self) {
        let mut views = self.membership.views();
        let view = &mut views[self.index];
        if matches!(view.seen, Seen::Bare | Seen::Pending(_)) {
            view.seen = Seen::Unknown;
        }
    }

    /// Waits for the others for at most that long, while the cluster is not complete.
    pub(super) async fn enter(
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
                    // Others may be at work too, of which only the servers know.
                    let _ = timeout(LOOK_AGAIN, changed.changed()).await;
                }
            }
        }
    }

    /// Looks at the marker, and writes what follows from it.
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
                        tracing::warn!(node, "the promise that every write is synced is broken");
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
        let why = "its marker is being changed all the time".to_owned();
        Ok(Standing::Waiting(NodeError::NoCluster(why)))
    }

    /// Takes the step that is due on this node, or says for what it waits.
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
                        "a new cluster: this node votes after max_ttl, when no lock from before can \
                         be held any more; `fencepost init --fresh` saves the wait on servers that \
                         nobody has used"
                    );
                }
                server.replace(raw, Some(&marker(proposal, stage)?)).await?;
            }
            Step::Withdraw => server.replace(raw, None).await?,
            Step::Quarantine(proposal) => {
                tracing::warn!(
                    node,
                    max_ttl = ?membership.terms.max_ttl,
                    "this node has lost its marker, and may have forgotten locks: it votes again by \
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

/// What the operator promises has to be true now.
fn must_sync(sight: &Sight) -> Result<(), NodeError> {
    match sight.syncs {
        Some(true) => Ok(()),
        _ => Err(NodeError::NotDurable),
    }
}

pub(super) fn incarnation() -> Result<String, NodeError> {
    let number = getrandom::u64().and_then(|high| Ok((high, getrandom::u64()?)));
    let (high, low) = number.map_err(|error| NodeError::Other(error.to_string()))?;
    Ok(format!("{high:016x}{low:016x}"))
}

/// A server that is being vetted.
pub(super) struct Server<'c> {
    pub(super) connection: &'c Connection,
    pub(super) options: &'c RedisOptions,
    /// Whether it watches what was read with `CLIENT CACHING YES`.
    pub(super) tracks: bool,
}

impl Server<'_> {
    /// Asks for everything that counts, and whether the server may vote at all.
    pub(super) async fn look(&self) -> Result<Look, NodeError> {
        let look = handshake::look(self.connection, self.tracks).await?;
        look.facts.admit(self.options)?;
        Ok(look)
    }

    async fn send(&self, cmd: &Cmd) -> Result<Value, NodeError> {
        let answer = self.connection.send(cmd).await;
        answer.map_err(|error| fault::node_error(&error))
    }

    /// Writes a marker where there is none, or only the old one that it supersedes.
    async fn put(&self, old: &str, marker: &Marker) -> Result<(), NodeError> {
        if !old.is_empty() {
            return self.replace(old, Some(marker)).await;
        }
        let mut set = redis::cmd("SET");
        set.arg(KEY).arg(marker.to_string()).arg("NX");
        self.send(&set).await.map(|_| ())
    }

    /// Whether it was still that one shows the next look.
    pub(super) async fn replace(&self, old: &str, new: Option<&Marker>) -> Result<(), NodeError> {
        let mut eval = redis::cmd("EVAL");
        let new = new.map(ToString::to_string).unwrap_or_default();
        eval.arg(REPLACE).arg(1).arg(KEY).arg(old).arg(new);
        self.send(&eval).await.map(|_| ())
    }
}

/// Counts what a server says of the marker that it watches.
#[derive(Default)]
pub(super) struct Alarm {
    count: AtomicU64,
    bell: Notify,
}

impl Alarm {
    /// Before any later reply of the connection is handed out.
    pub(super) fn ring(&self) {
        self.count.fetch_add(1, Ordering::SeqCst);
        self.bell.notify_one();
    }

    /// Resolves when it rings, or has rung since this last resolved.
    pub(super) async fn rung(&self) {
        self.bell.notified().await;
    }

    /// How often it has rung.
    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::SeqCst)
    }
}

/// Watches the marker of one connection.
pub(super) struct Guard {
    member: Member,
    alarm: Arc<Alarm>,
    tracks: bool,
    marker: Mutex<String>,
    /// So many alarms were false.
    cleared: watch::Sender<u64>,
    /// The server has forgotten, or nobody watches any more: no vote counts.
    is_revoked: AtomicBool,
}

/// A call was carried out by a server that had forgotten.
fn forgot() -> NodeError {
    NodeError::Disconnected("its data were replaced while the command was in flight".to_owned())
}

impl Guard {
    /// `rung` is how often the alarm had rung before the marker was read.
    pub(super) fn new(
        member: Member,
        alarm: Arc<Alarm>,
        rung: u64,
        tracks: bool,
        marker: String,
    ) -> Self {
        Self {
            member,
            alarm,
            tracks,
            marker: Mutex::new(marker),
            cleared: watch::Sender::new(rung),
            is_revoked: AtomicBool::new(false),
        }
    }

    fn marker(&self) -> MutexGuard<'_, String> {
        self.marker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why nothing is to be sent at all.
    pub(super) fn refusal(&self) -> Option<NodeError> {
        self.member.refusal()
    }

    pub(super) fn tracks(&self) -> bool {
        self.tracks
    }

    /// Whether a vote counts whose reply has come: waits while that is being found out.
    pub(super) async fn confirm(&self, connection: &Connection) -> Result<(), NodeError> {
        self.confirm_data(connection).await?;
        // Last of all: it may have taken long to find out.
        self.refusal().map_or(Ok(()), Err)
    }

    async fn confirm_data(&self, connection: &Connection) -> Result<(), NodeError> {
        if let Some(why) = self.member.refusal() {
            return Err(why);
        }
        if !self.tracks {
            let mut get = redis::cmd("GET");
            let answer = connection.send(get.arg(KEY)).await;
            let answer = answer.map_err(|error| fault::node_error(&error))?;
            let marker: Option<String> = from_redis_value(answer).unwrap_or_default();
            if marker.as_deref() != Some(&*self.marker()) {
                self.alarm.ring();
                return Err(forgot());
            }
        }
        let rung = self.alarm.count();
        let is_cleared = *self.cleared.borrow() >= rung;
        // Behind that: what is revoked is cleared too, but afterwards.
        if self.is_revoked.load(Ordering::SeqCst) {
            return Err(forgot());
        }
        if is_cleared {
            return Ok(());
        }
        let mut cleared = self.cleared.subscribe();
        // The sender is in this very guard: it cannot be gone.
        let _ = cleared.wait_for(|cleared| *cleared >= rung).await;
        match self.is_revoked.load(Ordering::SeqCst) {
            true => Err(forgot()),
            false => Ok(()),
        }
    }

    /// From now on no vote counts.
    pub(super) fn revoke(&self) {
        self.is_revoked.store(true, Ordering::SeqCst);
        self.cleared.send_replace(u64::MAX);
    }

    /// Resolves when the server has forgotten, or may not vote any more; and tells of each end of a
    /// quarantine.
    pub(super) async fn until_forgotten(
        &self,
        node: &str,
        server: &Server<'_>,
        quarantine_left: impl Fn() -> Option<Duration>,
        votes_after: impl Fn(Option<Duration>),
    ) -> NodeError {
        let mut casts_no_vote = quarantine_left().is_some();
        loop {
            let pause = match casts_no_vote {
                true => quarantine_left().unwrap_or_default().min(LOOK_EVERY),
                false => LOOK_EVERY,
            };
            tokio::select! {
                biased;
                () = self.alarm.bell.notified() => {}
                () = sleep(pause) => {}
            }
            let rung = self.alarm.count();
            let vetted = timeout(server.options.mute_timeout, self.member.vet(node, server)).await;
            let standing = match vetted {
                Ok(Ok(standing)) => standing,
                Ok(Err(error)) => return error,
                Err(_) => {
                    let why = "the server has stopped answering";
                    return NodeError::Disconnected(why.to_owned());
                }
            };
            match standing {
                // What casts no vote cannot have cast a wrong one.
                Standing::In(marker, wait)
                    if casts_no_vote || is_same_data(&self.marker(), &marker) =>
                {
                    *self.marker() = marker;
                    casts_no_vote = wait.is_some();
                    votes_after(wait);
                    self.cleared.send_replace(rung);
                }
                Standing::In(..) => return forgot(),
                Standing::Waiting(why) => return why,
            }
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.revoke();
    }
}
