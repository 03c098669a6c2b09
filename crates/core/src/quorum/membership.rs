//! Who may vote: the [`Marker`] of a node, and what a client does about it.
//!
//! A marker says which cluster a node belongs to, and which incarnation of its data this is. A
//! node's reply counts only under a marker with the client's own node list. So two clients that
//! both count a node have the same list, and their quorums overlap.
//!
//! The decisions are pure. [`judge`] looks at one node's marker; [`step`] decides how several nodes
//! without one become a cluster. The first node of the list decides: a cluster is *proposed* there
//! first, *joined* by the others, and *committed* there first. It is also undone there first. So no
//! client commits what another has undone, and any client can finish a half-made cluster.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::lock::Reply;

/// The first line of a marker: a reader of another version must not guess.
const VERSION: &str = "fencepost-marker 1";
/// How locks are stored. Clients with different layouts must not vote on one node.
pub(crate) const LAYOUT: u32 = 2;
/// The minimum retention of fence registers.
const SHORTEST_RETENTION: Duration = Duration::from_secs(60 * 60);
/// How far a server's clock may go back without restarting a quarantine.
const CLOCK_SLACK_US: u64 = 1_000_000;

/// Why a node of a closed cluster is refused.
const CLOSING: &str = "its cluster is being replaced; use the new node list";

/// The minimum retention of fence registers for this `max_ttl`: an attempt must be over long before
/// what it has seen is forgotten.
#[must_use]
pub fn least_retention(max_ttl: Duration) -> Duration {
    SHORTEST_RETENTION.max(max_ttl.saturating_mul(2))
}

/// The settings that all clients of a cluster must share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    /// The addresses of its nodes, in order.
    nodes: Vec<String>,
    /// The maximum TTL of any lock.
    pub max_ttl: Duration,
    /// How long a fence register is kept after it was last raised.
    pub retention: Duration,
    /// How locks are stored.
    pub layout: u32,
}

impl Terms {
    /// The order of the given nodes does not matter.
    #[must_use]
    pub fn new(mut nodes: Vec<String>, max_ttl: Duration, retention: Duration) -> Self {
        nodes.sort_unstable();
        Self {
            nodes,
            max_ttl,
            retention,
            layout: LAYOUT,
        }
    }

    /// The node addresses, in the canonical order.
    #[must_use]
    pub fn nodes(&self) -> &[String] {
        &self.nodes
    }

    /// How a marker differs, with both values.
    fn difference(&self, marker: &Marker) -> Option<String> {
        let theirs = &marker.terms;
        if theirs.nodes != self.nodes {
            let (ours, theirs) = (self.nodes.join(","), theirs.nodes.join(","));
            return Some(format!(
                "its node list is {theirs}; this client uses {ours}"
            ));
        }
        let differing = [
            ("max_ttl", millis(theirs.max_ttl), millis(self.max_ttl)),
            (
                "retention",
                millis(theirs.retention),
                millis(self.retention),
            ),
        ];
        for (what, theirs, ours) in differing {
            if theirs != ours {
                return Some(format!(
                    "its {what} is {theirs} ms; this client uses {ours} ms"
                ));
            }
        }
        (theirs.layout != self.layout).then(|| {
            let (theirs, ours) = (theirs.layout, self.layout);
            format!("it stores locks in layout {theirs}; this client uses layout {ours}")
        })
    }
}

/// The stage of a node's membership.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Proposed; some nodes may not have joined.
    Pending,
    /// It votes.
    Active,
    /// It may have forgotten locks, and does not vote for `max_ttl`.
    Quarantine,
    /// Its cluster is being replaced: it no longer votes.
    Closing,
}

impl Stage {
    const ALL: [(Self, &'static str); 4] = [
        (Self::Pending, "pending"),
        (Self::Active, "active"),
        (Self::Quarantine, "quarantine"),
        (Self::Closing, "closing"),
    ];
}

/// The marker on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marker {
    /// Random cluster id.
    pub cluster: String,
    /// Grows when the node list changes.
    pub epoch: u64,
    /// The index of this node.
    pub node: usize,
    /// The shared settings.
    pub terms: Terms,
    /// The stage.
    pub stage: Stage,
    /// Since when, in microseconds of the server's clock.
    pub since_us: u64,
    /// Random, new with every write: other data cannot have it.
    pub incarnation: String,
    /// The server process that it was written to.
    pub run_id: String,
    /// What INFO said about the history before the last change of role; empty if there was none.
    pub history: String,
    /// The operator's promise that every write is synced before its reply.
    pub durable: bool,
    /// While pending: the operator's promise that no client holds a lock from before.
    pub fresh: bool,
}

impl fmt::Display for Marker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stage = Stage::ALL.iter().find(|(stage, _)| *stage == self.stage);
        writeln!(f, "{VERSION}")?;
        writeln!(f, "cluster {}", self.cluster)?;
        writeln!(f, "epoch {}", self.epoch)?;
        writeln!(f, "node {}", self.node)?;
        let nodes: Vec<_> = self.terms.nodes.iter().map(|node| written(node)).collect();
        writeln!(f, "nodes {}", nodes.join(","))?;
        writeln!(f, "max_ttl_ms {}", millis(self.terms.max_ttl))?;
        writeln!(f, "retention_ms {}", millis(self.terms.retention))?;
        writeln!(f, "layout {}", self.terms.layout)?;
        writeln!(f, "state {}", stage.map_or("", |(_, word)| word))?;
        writeln!(f, "since_us {}", self.since_us)?;
        writeln!(f, "incarnation {}", self.incarnation)?;
        writeln!(f, "run_id {}", self.run_id)?;
        writeln!(f, "history {}", self.history)?;
        writeln!(f, "durable {}", self.durable)?;
        writeln!(f, "fresh {}", self.fresh)
    }
}

/// Whether this is a marker, perhaps of another version: on a server without a cluster the key is
/// anybody's.
#[must_use]
pub fn is_marker(text: &str) -> bool {
    text.starts_with("fencepost-marker ")
}

/// Not a marker of this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unreadable;

impl FromStr for Marker {
    type Err = Unreadable;

    fn from_str(text: &str) -> Result<Self, Unreadable> {
        let mut lines = text.lines();
        if lines.next() != Some(VERSION) {
            return Err(Unreadable);
        }
        let fields: Vec<(&str, &str)> = lines.filter_map(|line| line.split_once(' ')).collect();
        let field = |key: &str| {
            let found = fields.iter().find(|(name, _)| *name == key);
            found.map(|(_, value)| *value).ok_or(Unreadable)
        };
        fn read<T: FromStr>(text: &str) -> Result<T, Unreadable> {
            text.parse().map_err(|_| Unreadable)
        }
        let stage = field("state")?;
        let stage = Stage::ALL.iter().find(|(_, word)| *word == stage);
        Ok(Self {
            cluster: field("cluster")?.to_owned(),
            epoch: read(field("epoch")?)?,
            node: read(field("node")?)?,
            terms: Terms {
                nodes: field("nodes")?.split(',').map(read_back).collect(),
                max_ttl: Duration::from_millis(read(field("max_ttl_ms")?)?),
                retention: Duration::from_millis(read(field("retention_ms")?)?),
                layout: read(field("layout")?)?,
            },
            stage: stage.ok_or(Unreadable)?.0,
            since_us: read(field("since_us")?)?,
            incarnation: field("incarnation")?.to_owned(),
            run_id: field("run_id")?.to_owned(),
            history: field("history")?.to_owned(),
            durable: read(field("durable")?)?,
            fresh: read(field("fresh")?)?,
        })
    }
}

/// An address without commas: the address of a Sentinel group or Cluster has several hosts.
fn written(address: &str) -> String {
    match has_hosts(address) {
        true => address.replace(',', "%2C"),
        false => address.to_owned(),
    }
}

fn has_hosts(address: &str) -> bool {
    address.contains("+sentinel://") || address.contains("+cluster://")
}

fn read_back(text: &str) -> String {
    match has_hosts(text) {
        true => text.replace("%2C", ","),
        false => text.to_owned(),
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// What a server reported when its marker was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sight {
    /// Its process (`run_id`).
    pub run_id: String,
    /// The history before its last change of role; empty if there was none.
    pub history: String,
    /// Its own clock.
    pub now_us: u64,
    /// Whether its settings sync every write; `None` if they are hidden.
    pub syncs: Option<bool>,
    /// Additional quarantine beyond `max_ttl`: see [`failover`](super::failover).
    pub grace: Duration,
}

impl Sight {
    /// The same marker, rewritten for this process now.
    #[must_use]
    pub fn rewritten(&self, marker: &Marker, stage: Stage, incarnation: String) -> Marker {
        Marker {
            stage,
            since_us: self.now_us,
            incarnation,
            run_id: self.run_id.clone(),
            history: self.history.clone(),
            fresh: false,
            ..marker.clone()
        }
    }
}

/// A client's verdict on one node's marker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It votes.
    Votes,
    /// It does not vote for this long.
    Waits(Duration),
    /// Replace the marker with this stage, and say whether the promise of durability still holds;
    /// then look again.
    Rewrite(Stage, bool),
    /// The cluster does not exist yet.
    Pending,
    /// This client must not use any of its nodes.
    Refuse(String),
}

/// A client's verdict, with these settings, on the marker of the node with this index.
#[must_use]
pub fn judge(terms: &Terms, node: usize, marker: &Marker, sight: &Sight) -> Verdict {
    if let Some(difference) = terms.difference(marker) {
        return Verdict::Refuse(difference);
    }
    if marker.stage == Stage::Closing {
        return Verdict::Refuse(CLOSING.to_owned());
    }
    let durable = marker.durable && sight.syncs != Some(false);
    if marker.stage == Stage::Pending {
        return Verdict::Pending;
    }
    if marker.node != node {
        // Data of another node: this node has forgotten its own.
        return Verdict::Rewrite(Stage::Quarantine, false);
    }
    let has_other_history = !sight.history.is_empty() && sight.history != marker.history;
    let is_restarted = marker.run_id != sight.run_id;
    let kept_all = is_restarted && durable && sight.syncs == Some(true);
    match marker.stage {
        _ if has_other_history => Verdict::Rewrite(Stage::Quarantine, durable),
        Stage::Active if kept_all => Verdict::Rewrite(Stage::Active, durable),
        _ if is_restarted => Verdict::Rewrite(Stage::Quarantine, durable),
        Stage::Active if marker.durable != durable => Verdict::Rewrite(Stage::Active, durable),
        Stage::Active => Verdict::Votes,
        _ if marker.since_us > sight.now_us.saturating_add(CLOCK_SLACK_US) => {
            Verdict::Rewrite(Stage::Quarantine, durable)
        }
        _ => {
            let passed = sight.now_us.saturating_sub(marker.since_us);
            let whole = terms.max_ttl.saturating_add(sight.grace);
            let left = whole.saturating_sub(Duration::from_micros(passed));
            match left.is_zero() {
                true => Verdict::Rewrite(Stage::Active, durable),
                false => Verdict::Waits(left),
            }
        }
    }
}

/// Why a client that keeps no marker must not use a node with this one: others vote there under
/// other terms.
#[must_use]
pub fn outside(terms: &Terms, marker: &Marker) -> Option<String> {
    let is_closing = marker.stage == Stage::Closing;
    let closing = is_closing.then(|| CLOSING.to_owned());
    terms.difference(marker).or(closing)
}

/// Whether a reply says nothing because its node is in quarantine: what that holds for the caller now it may have held for
/// another before it forgot; what it does not hold it may have forgotten, and what it holds for another may be an old
/// copy that came back (seed 2024 of the simulation). A release is no vote, and is told what is so.
#[must_use]
pub fn is_void_in_quarantine(reply: &Reply, is_vote: bool) -> bool {
    match reply {
        Reply::Extended | Reply::Repaired | Reply::Queue(_) => true,
        Reply::NotHeld(_) => is_vote,
        _ => false,
    }
}

/// Whether a connection that voted under one marker may keep voting under another. Every write has
/// its own incarnation, so only an identical marker proves the same data.
#[must_use]
pub fn is_same_data(known: &str, seen: &str) -> bool {
    known == seen
}

/// The cluster that a node belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// Random.
    pub cluster: String,
    /// Grows when the node list changes.
    pub epoch: u64,
    /// The operator's promise that every write is synced.
    pub durable: bool,
    /// The operator's promise that no client holds a lock from before.
    pub fresh: bool,
}

impl From<&Marker> for Proposal {
    fn from(marker: &Marker) -> Self {
        Self {
            cluster: marker.cluster.clone(),
            epoch: marker.epoch,
            durable: marker.durable,
            fresh: marker.fresh,
        }
    }
}

/// What was last seen of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Seen {
    /// Not reached, or not any more.
    #[default]
    Unknown,
    /// It has no marker.
    Bare,
    /// It has joined a cluster that is being created.
    Pending(Proposal),
    /// It belongs to a cluster.
    Member(Proposal),
    /// It belongs to another cluster, so no node of this client may vote.
    Foreign(String),
}

/// The same, with the numbers of the looks: later looks have larger numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// What was seen.
    pub seen: Seen,
    /// The number of the latest look.
    look: u64,
    /// The number of the first look since which nothing else was seen.
    since: u64,
}

/// What to do on a node without a finished marker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Write a marker of a new cluster, if it has none.
    Propose,
    /// Write a marker of this cluster, if it has none.
    Join(Proposal),
    /// Make the pending marker active.
    Commit(Proposal),
    /// Remove the pending marker.
    Withdraw,
    /// It lost its marker: write one in quarantine, if it has none.
    Quarantine(Proposal),
    /// Wait for these nodes.
    Wait(Vec<usize>),
    /// Two clusters are mixed: no node of this client may vote.
    Refuse(String),
}

/// Why no node of a client that has seen this may vote: a node belongs to another cluster, or two
/// nodes belong to different ones.
#[must_use]
pub fn conflict(views: &[View]) -> Option<String> {
    let foreign = views.iter().find_map(|view| match &view.seen {
        Seen::Foreign(why) => Some(why.clone()),
        _ => None,
    });
    let mut members = views.iter().filter_map(View::member);
    foreign.or_else(|| {
        let first = members.next()?;
        let other = members.find(|other| !first.is_same(other))?;
        let (one, two) = (&first.cluster, &other.cluster);
        Some(format!("its nodes belong to two clusters, {one} and {two}"))
    })
}

/// What to do on node `me`, which has no marker or a pending one. With `undo`, a proposal is
/// withdrawn where that is still possible.
#[must_use]
pub fn step(me: usize, views: &[View], undo: bool) -> Step {
    let members: Vec<&Proposal> = views.iter().filter_map(View::member).collect();
    if let Some(why) = conflict(views).filter(|_| !undo) {
        return Step::Refuse(why);
    }
    let others = || (0..views.len()).filter(|other| *other != me);
    let away = || {
        let is_away = |other: &usize| views[*other].seen == Seen::Unknown;
        others().filter(is_away).collect::<Vec<_>>()
    };
    match &views[me].seen {
        Seen::Bare => match members.first() {
            Some(cluster) => Step::Quarantine((*cluster).clone()),
            None if undo => Step::Wait(away()),
            None if !away().is_empty() => Step::Wait(away()),
            None if me > 0 => match views[0].pending() {
                Some(cluster) => Step::Join(cluster.clone()),
                None => Step::Wait(vec![0]),
            },
            // Pending elsewhere and not here: it was undone, and is about to be withdrawn.
            None if others().any(|other| views[other].pending().is_some()) => {
                Step::Wait(others().collect())
            }
            None => Step::Propose,
        },
        Seen::Pending(own) => match members.first() {
            Some(cluster) if cluster.is_same(own) => Step::Commit(own.clone()),
            // It was undone, and another cluster was created since.
            Some(_) => Step::Withdraw,
            None if me == 0 && undo => Step::Withdraw,
            None if me == 0 => {
                let has_joined = |view: &View| view.pending().is_some_and(|p| p.is_same(own));
                let missing: Vec<_> = others().filter(|n| !has_joined(&views[*n])).collect();
                match missing.is_empty() {
                    true => Step::Commit(own.clone()),
                    false => Step::Wait(missing),
                }
            }
            // Only a look at the first node that is later than the first sight of this marker
            // proves that it was undone: it is proposed there before it is joined here. The latest
            // look at this node is not enough: it is always the later one here, and nodes would
            // wait for each other forever.
            None if views[0].look > views[me].since && views[0].has_not(own) => Step::Withdraw,
            None => Step::Wait(vec![0]),
        },
        _ => Step::Wait(Vec::new()),
    }
}

impl Proposal {
    fn is_same(&self, other: &Self) -> bool {
        (&self.cluster, self.epoch) == (&other.cluster, other.epoch)
    }
}

impl View {
    /// Records a look with this number.
    pub fn saw(&mut self, seen: Seen, look: u64) {
        if self.seen != seen {
            self.since = look;
        }
        self.seen = seen;
        self.look = look;
    }

    fn member(&self) -> Option<&Proposal> {
        match &self.seen {
            Seen::Member(cluster) => Some(cluster),
            _ => None,
        }
    }

    fn pending(&self) -> Option<&Proposal> {
        match &self.seen {
            Seen::Pending(cluster) => Some(cluster),
            _ => None,
        }
    }

    /// It was seen, and neither belongs to this cluster nor is about to.
    fn has_not(&self, own: &Proposal) -> bool {
        match &self.seen {
            Seen::Unknown => false,
            Seen::Bare | Seen::Foreign(_) => true,
            Seen::Pending(other) | Seen::Member(other) => !other.is_same(own),
        }
    }
}

#[cfg(test)]
mod tests;
