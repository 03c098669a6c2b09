//! Who may vote: the [`Marker`] of a node, and what a client does about it.
//!
//! A marker says which cluster a node belongs to, and which incarnation of its data this is. A node's
//! reply counts only under a marker of the client's own node list; so two clients that both count a node
//! have the same list, and their quorums share a node.
//!
//! The decisions are pure. [`judge`] looks at one node's marker; [`step`] says how several nodes without
//! one become a cluster. The node that comes first in the list decides: a cluster is *proposed* there
//! first, *joined* by the others, and *committed* there first. It is undone there first,
//! too. So no client commits what another has undone, and any client that finds it half done can finish it.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// The first line of a marker: what reads another version must not guess.
const VERSION: &str = "fencepost-marker 1";
/// How the locks are stored. A client that stores them otherwise must not vote beside this one.
pub const LAYOUT: u32 = 2;
/// The shortest time for which fence registers may be kept.
const SHORTEST_RETENTION: Duration = Duration::from_secs(60 * 60);
/// By how much a server's clock may go back without a quarantine beginning anew.
const CLOCK_SLACK_US: u64 = 1_000_000;

/// The shortest time for which fence registers may be kept where no lock has a longer TTL: an attempt must
/// be over, one way or the other, long before what it has seen is forgotten.
#[must_use]
pub fn least_retention(max_ttl: Duration) -> Duration {
    SHORTEST_RETENTION.max(max_ttl.saturating_mul(2))
}

/// What all clients of a cluster have to agree on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    /// The addresses of its nodes, in order.
    nodes: Vec<String>,
    /// The longest TTL of any lock.
    pub max_ttl: Duration,
    /// How long the fence register of a name is kept after it was last raised.
    pub retention: Duration,
    /// How locks are stored.
    pub layout: u32,
}

impl Terms {
    /// The order in which the nodes were given does not matter.
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

    /// The addresses of the nodes, in the order that all clients agree on.
    #[must_use]
    pub fn nodes(&self) -> &[String] {
        &self.nodes
    }

    /// What a marker says that differs, with both values.
    fn difference(&self, marker: &Marker) -> Option<String> {
        let theirs = &marker.terms;
        if theirs.nodes != self.nodes {
            let (ours, theirs) = (self.nodes.join(","), theirs.nodes.join(","));
            return Some(format!(
                "its nodes are {theirs}, and this client's are {ours}"
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
                    "its {what} is {theirs} ms, and this client's is {ours} ms"
                ));
            }
        }
        (theirs.layout != self.layout).then(|| {
            let (theirs, ours) = (theirs.layout, self.layout);
            format!("it stores locks in layout {theirs}, and this client in layout {ours}")
        })
    }
}

/// How far a node's membership has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Proposed; not every node may have joined.
    Pending,
    /// It votes.
    Active,
    /// It may have forgotten locks, and does not vote for `max_ttl`.
    Quarantine,
    /// Its cluster is being replaced: it does not vote any more.
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

/// What is written on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marker {
    /// Random; which cluster.
    pub cluster: String,
    /// Grows when the node list changes.
    pub epoch: u64,
    /// Which of the nodes this is.
    pub node: usize,
    /// What all clients agree on.
    pub terms: Terms,
    /// How far it has got.
    pub stage: Stage,
    /// Since when, in microseconds of the server's clock.
    pub since_us: u64,
    /// Random, new with every write: other data cannot have it.
    pub incarnation: String,
    /// The server process that it was written to.
    pub run_id: String,
    /// What INFO said of the history before the last change of role; empty when there was none.
    pub history: String,
    /// The operator's promise that every write is on disk before it is answered.
    pub durable: bool,
    /// The operator's promise, while it is pending, that nobody holds a lock from before.
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

/// Something that is no marker of this version.
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

/// An address without a comma: that of a Sentinel group or a Cluster has several hosts.
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

/// What a server said of itself when its marker was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sight {
    /// Its process.
    pub run_id: String,
    /// The history before its last change of role; empty when there was none.
    pub history: String,
    /// The time of its own clock.
    pub now_us: u64,
    /// Whether every write is on disk before it is answered, as far as its settings tell; `None` where
    /// they are hidden.
    pub syncs: Option<bool>,
    /// How long it does not vote after it may have forgotten, beyond `max_ttl`: see
    /// [`failover`](super::failover).
    pub grace: Duration,
}

impl Sight {
    /// The same marker, written anew in this process now.
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

/// What a client makes of one node's marker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It votes.
    Votes,
    /// It does not vote for that long.
    Waits(Duration),
    /// The marker is to be replaced by itself with this stage, and whether the promise of durability
    /// still stands; then to be looked at again.
    Rewrite(Stage, bool),
    /// No cluster has been made yet.
    Pending,
    /// This client must not use any of its nodes.
    Refuse(String),
}

/// What a client of those terms makes of the marker on the node of that index.
#[must_use]
pub fn judge(terms: &Terms, node: usize, marker: &Marker, sight: &Sight) -> Verdict {
    if let Some(difference) = terms.difference(marker) {
        return Verdict::Refuse(difference);
    }
    if marker.stage == Stage::Closing {
        let why = "its cluster is being replaced; use the new node list";
        return Verdict::Refuse(why.to_owned());
    }
    let durable = marker.durable && sight.syncs != Some(false);
    if marker.stage == Stage::Pending {
        return Verdict::Pending;
    }
    if marker.node != node {
        // The data of another node: this one has forgotten what it had.
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

/// Whether a connection that has voted under one marker may go on to vote under another. Every write has an
/// incarnation of its own: only what is equal to the letter is known to be the same data.
#[must_use]
pub fn is_same_data(known: &str, seen: &str) -> bool {
    known == seen
}

/// Which cluster, as it is found on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// Random.
    pub cluster: String,
    /// Grows when the node list changes.
    pub epoch: u64,
    /// The operator's promise that every write is synced.
    pub durable: bool,
    /// The operator's promise that nobody holds a lock from before.
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
    /// It has not been reached, or not any more.
    #[default]
    Unknown,
    /// It has no marker.
    Bare,
    /// It has joined a cluster that is being made.
    Pending(Proposal),
    /// It belongs to a cluster.
    Member(Proposal),
    /// It belongs to another, and no node of this client may vote.
    Foreign(String),
}

/// The same, and the numbers of the looks: a later look has a larger one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// What was seen.
    pub seen: Seen,
    /// When the latest look began.
    look: u64,
    /// When the first of the looks began that have seen nothing else since.
    since: u64,
}

/// What to do on a node that has no finished marker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Write a marker of a new cluster, if there is none.
    Propose,
    /// Write one of this cluster, if there is none.
    Join(Proposal),
    /// Turn the pending marker into a member's.
    Commit(Proposal),
    /// Take the pending marker away.
    Withdraw,
    /// It lost its marker: write one in quarantine, if there is none.
    Quarantine(Proposal),
    /// Wait for these nodes.
    Wait(Vec<usize>),
    /// Two clusters are mixed up: no node of this client may vote.
    Refuse(String),
}

/// Why no node of a client may vote that has seen this: one belongs to another cluster, or two of them
/// to two.
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

/// What to do on node `me`, which is bare or pending. With `undo`, what was proposed is taken back
/// where that can still be done.
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
            // What is pending elsewhere and not here was undone, and is about to be withdrawn.
            None if others().any(|other| views[other].pending().is_some()) => {
                Step::Wait(others().collect())
            }
            None => Step::Propose,
        },
        Seen::Pending(own) => match members.first() {
            Some(cluster) if cluster.is_same(own) => Step::Commit(own.clone()),
            // Undone, and something else was made since.
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
            // Only a look at the first node that is later than the first sight of this tells that it is undone:
            // it is proposed there before it is joined here. The latest look at this node would not do: it is
            // always the later one when this is asked, and nodes would wait for each other for ever.
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
    /// A look of that number has shown this.
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
