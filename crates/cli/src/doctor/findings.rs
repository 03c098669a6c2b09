//! From what the nodes are like to what is unsafe about them. Pure.
//!
//! Each finding says what may go wrong and what to do, in words that can be typed. What would keep a
//! node from voting must be found here too, by the same rules.

use std::time::Duration;

use fencepost::diagnostics::{
    ClusterFacts, Facts, FileFacts, GroupFacts, LinkKind, NeededFor, NodeSurvey, RedisFacts,
    ShardedFacts,
};
use fencepost::{NodeError, RestartPolicy};

use crate::duration::Readable;
use crate::exit::Exit;
use crate::fault;

/// From how many nodes on restarted ones do not vote, unless the user says otherwise.
const DELAY_FROM: usize = 3;
/// How far a server's clock may be off without a word.
const CLOCK_TOLERANCE_US: u64 = 1_000_000;
/// A round trip that is worth a word.
const SLOW: Duration = Duration::from_millis(50);
/// The first version of Redis whose scripts can do what ours do.
const OLDEST_MAJOR: u64 = 6;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Severity {
    /// Good to know.
    Note,
    /// Works, and should be fixed.
    Warning,
    /// Unsafe, or keeps the node from voting.
    Bad,
}

/// Something about a node, or about all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    /// The node's place in the configuration; `None` when it is about all of them.
    pub(super) node: Option<usize>,
    pub(super) severity: Severity,
    /// One word, for programs.
    pub(super) what: &'static str,
    /// What is so, and what may come of it.
    pub(super) why: String,
    /// What to do.
    pub(super) fix: String,
}

/// What was decided about restarts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Policy {
    pub(crate) restart: Option<RestartPolicy>,
    pub(crate) max_ttl: Duration,
}

/// All findings, and whether the nodes could decide anything.
#[derive(Debug)]
pub(super) struct Diagnosis {
    pub(super) findings: Vec<Finding>,
    /// How many nodes could vote.
    pub(super) voters: usize,
    /// How many have to.
    pub(super) needed: usize,
}

impl Diagnosis {
    pub(super) fn exit_code(&self) -> u8 {
        let bad = |finding: &Finding| finding.severity == Severity::Bad;
        if self.voters < self.needed {
            Exit::Unavailable.code()
        } else {
            u8::from(self.findings.iter().any(bad))
        }
    }
}

/// Judges all nodes.
pub(super) fn judge(surveys: &[NodeSurvey], policy: Policy) -> Diagnosis {
    let mut ward = Ward {
        policy,
        nodes: surveys.len(),
        findings: Vec::new(),
        at: None,
    };
    let mut addresses: Vec<_> = surveys.iter().map(|survey| survey.node.clone()).collect();
    addresses.sort_unstable();
    let is_made = surveys.iter().any(is_member);
    let mut voters = 0;
    for (index, survey) in surveys.iter().enumerate() {
        ward.at = Some(index);
        let before = ward.findings.len();
        match &survey.facts {
            Err(error) => ward.unreachable(&survey.node, error),
            Ok(Facts::Redis(facts)) => {
                ward.redis(facts);
                ward.membership(facts, &addresses, is_made);
                ward.same_server(&surveys[..index], facts);
            }
            Ok(Facts::File(facts)) => ward.file(facts),
            Ok(_) => {}
        }
        let found = &ward.findings[before..];
        voters += usize::from(found.iter().all(|finding| !keeps_from_voting(finding)));
    }
    ward.at = None;
    ward.together(surveys);
    Diagnosis {
        findings: ward.findings,
        voters,
        needed: surveys.len() / 2 + 1,
    }
}

/// Whether it belongs to a cluster of fencepost.
fn is_member(survey: &NodeSurvey) -> bool {
    match &survey.facts {
        Ok(Facts::Redis(facts)) => matches!(facts.cluster, ClusterFacts::Member { .. }),
        _ => false,
    }
}

/// Whether the node is a file, also if it is none that can be used.
pub(super) fn is_file(node: &str) -> bool {
    node.starts_with("file:")
}

fn keeps_from_voting(finding: &Finding) -> bool {
    finding.severity == Severity::Bad
}

/// Where findings are collected.
struct Ward {
    policy: Policy,
    nodes: usize,
    findings: Vec<Finding>,
    at: Option<usize>,
}

impl Ward {
    fn find(
        &mut self,
        severity: Severity,
        what: &'static str,
        why: impl Into<String>,
        fix: impl Into<String>,
    ) {
        self.findings.push(Finding {
            node: self.at,
            severity,
            what,
            why: why.into(),
            fix: fix.into(),
        });
    }

    fn unreachable(&mut self, node: &str, error: &NodeError) {
        let (what, fix) = match error {
            _ if is_file(node) => (
                "store",
                "give --store file:PATH with a path that this user can read and write, on a local \
                 disk; the default is in $XDG_STATE_HOME or ~/.local/state",
            ),
            _ if error.to_string().contains("certificate") => (
                "tls",
                "give --tls-ca FILE with the certificate of the authority that signed the server's, \
                 and --tls-cert FILE and --tls-key FILE if the server asks for a client certificate \
                 (tls-auth-clients); the host in the URL must be a name in its certificate",
            ),
            NodeError::Auth(_) => (
                "auth",
                "correct user and password in the URL: redis://USER:PASSWORD@HOST, with special \
                 characters percent-encoded",
            ),
            NodeError::Store(_) | NodeError::Unusable(_) => {
                ("store", "do as it says, or give another file:PATH")
            }
            NodeError::Sentinel => (
                "sentinel",
                "list all Sentinels of the group and the name that they have for its master: \
                 redis+sentinel://SENTINEL1,SENTINEL2,SENTINEL3/MASTER",
            ),
            NodeError::Unnamed(_) if node.contains("+cluster://") => (
                "cluster",
                "start the nodes that the URL lists, or correct their addresses; all clients must list \
                 the same ones",
            ),
            NodeError::Unnamed(_) => (
                "sentinel",
                "start the Sentinels, or correct their addresses and the name of the master in the \
                 URL: redis+sentinel://SENTINEL1,SENTINEL2,SENTINEL3/MASTER",
            ),
            NodeError::ClusterNode | NodeError::NoClusterNode | NodeError::ClusterDown(_) => (
                "cluster",
                "list the masters of the Redis Cluster: redis+cluster://NODE1,NODE2,NODE3; see \
                 redis-cli --cluster check NODE1",
            ),
            NodeError::Timeout(_) => (
                "timeout",
                "check whether the server hangs, whether a firewall drops packets, and whether it \
                 speaks TLS (rediss://) or not (redis://)",
            ),
            _ => (
                "unreachable",
                "start the server, or correct host and port in the URL; check that it listens on an \
                 address that this machine can reach (`bind` in redis.conf), and whether with TLS",
            ),
        };
        let why = format!("cannot be used: {}", fault::node(error));
        self.find(Severity::Bad, what, why, fix);
    }

    fn redis(&mut self, facts: &RedisFacts) {
        self.role(facts);
        self.eviction(facts);
        match (&facts.group, &facts.sharded) {
            (Some(group), _) => self.group(group, facts),
            (None, Some(sharded)) => self.sharded(sharded, facts),
            (None, None) => self.restart(facts),
        }
        self.replicas(facts);
        self.rights(facts);
        self.version(facts);
        if facts.redis_cluster && facts.sharded.is_none() {
            self.find(
                Severity::Bad,
                "cluster",
                "part of a Redis Cluster, which answers for some names only",
                "write redis+cluster://NODE1,NODE2,NODE3",
            );
        }
        if let Some(ahead) = facts.clock_ahead_us
            && ahead.unsigned_abs() > CLOCK_TOLERANCE_US
        {
            let off = Readable(Duration::from_micros(ahead.unsigned_abs()));
            let which = if ahead > 0 { "ahead of" } else { "behind" };
            self.find(
                Severity::Warning,
                "clock",
                format!(
                    "clock is {off} {which} ours; after a loss of data tokens grow only as far as \
                     clocks agree"
                ),
                "run chrony or another NTP client on both machines",
            );
        }
        if facts.round_trip > SLOW {
            let time = Readable(facts.round_trip);
            self.find(
                Severity::Warning,
                "latency",
                format!("a round trip takes {time}, and every lock takes at least one"),
                "use nearer servers, or see what keeps this one busy (redis-cli --latency)",
            );
        }
        if facts.link == LinkKind::Plain {
            self.find(
                Severity::Warning,
                "tls",
                "reached over a network without TLS: an eavesdropper sees the password and can \
                 acquire or release any lock",
                "enable TLS (tls-port in redis.conf) and write rediss://, or use a private network",
            );
        }
    }

    /// What is unsafe about a Sentinel group, and what a failover costs.
    fn group(&mut self, group: &GroupFacts, facts: &RedisFacts) {
        let is_member = matches!(facts.cluster, ClusterFacts::Member { .. });
        if let Some(left) = facts.quarantine.filter(|_| is_member) {
            let left = Readable(left);
            self.find(
                Severity::Bad,
                "restarted",
                format!(
                    "may have forgotten locks (failed over, restarted, flushed or new), so it does \
                     not vote for another {left}"
                ),
                "wait; it votes again by itself",
            );
        }
        if let Some(why) = &group.unfenced {
            self.find(
                Severity::Bad,
                "unfenced",
                format!("takes writes when cut off from its replicas, so it does not vote: {why}"),
                "set both on every server of the group, by CONFIG SET and in redis.conf",
            );
        }
        if group.naming < group.listed {
            let (naming, listed) = (group.naming, group.listed);
            self.find(
                Severity::Warning,
                "sentinel",
                format!(
                    "{naming} of {listed} Sentinels name {}; {}",
                    group.master,
                    group.others.join("; ")
                ),
                "start the others, or correct their addresses in the URL",
            );
        }
        if let Some(known) = group.known.filter(|known| *known != group.listed) {
            let listed = group.listed;
            self.find(
                Severity::Warning,
                "sentinel-list",
                format!("the Sentinels know {known} of themselves, and the URL lists {listed}"),
                "list all of them, for every client; SENTINEL RESET forgets those that are gone",
            );
        }
        if let (Some(quorum), Some(known)) = (group.quorum, group.known)
            && quorum > known
        {
            self.find(
                Severity::Warning,
                "sentinel-quorum",
                format!("a failover needs {quorum} Sentinels to agree, and there are {known}"),
                "lower it by SENTINEL SET MASTER quorum N, or start more Sentinels",
            );
        }
        self.lag("", group.max_lag);
        self.promotable("", group.promotable, facts.replicas_needed);
        if group.promotable == Some(0) {
            self.find(
                Severity::Warning,
                "no-replica",
                "no replica can be promoted (none is attached, or each has replica-priority 0): when \
                 the master is gone, so is the node",
                "attach a replica with a replica-priority above 0",
            );
        }
        let down_after = group.down_after.unwrap_or_default();
        let (whole, failover) = (down_after + group.quarantine, group.failover);
        let (max_ttl, whole) = (Readable(self.policy.max_ttl), Readable(whole));
        let (down_after, failover) = (Readable(down_after), Readable(failover));
        self.find(
            Severity::Note,
            "failover",
            format!(
                "a failover keeps it from voting for about {whole}: {down_after} until it is noticed, \
                 then --max-ttl ({max_ttl}) and two failover times ({failover} each)"
            ),
            "three groups go on without a pause; a shorter --max-ttl, or failover= in the URL, makes \
             it shorter",
        );
    }

    /// Whether a master that is cut off takes writes for long.
    fn lag(&mut self, whose: &str, max_lag: Option<Duration>) {
        let half = self.policy.max_ttl / 2;
        let Some(lag) = max_lag.filter(|lag| *lag > half) else {
            return;
        };
        let (lag, half) = (Readable(lag), Readable(half));
        self.find(
            Severity::Warning,
            "max-lag",
            format!(
                "min-replicas-max-lag{whose} is {lag}, more than half of --max-ttl ({half}): a master \
                 that is cut off grants locks for that long, which the next master does not know"
            ),
            "set min-replicas-max-lag to at most half of --max-ttl, on every server",
        );
    }

    /// Whether enough of the replicas that each vote waits for can be promoted.
    fn promotable(&mut self, whose: &str, promotable: Option<usize>, needed: u32) {
        let is_few = |count: &usize| *count > 0 && *count < needed as usize;
        let Some(count) = promotable.filter(is_few) else {
            return;
        };
        self.find(
            Severity::Warning,
            "promotable",
            format!(
                "each vote waits for {needed} replicas, and {count}{whose} can be promoted: a vote may be \
                 on those only that never are"
            ),
            "let more replicas be promoted (replica-priority above 0, or cluster-replica-no-failover no), \
             or lower replicas= in the URL",
        );
    }

    /// What is unsafe about a Redis Cluster, and what a failover costs.
    fn sharded(&mut self, sharded: &ShardedFacts, facts: &RedisFacts) {
        if let Some(left) = facts.quarantine {
            let left = Readable(left);
            self.find(
                Severity::Bad,
                "restarted",
                format!(
                    "a shard may have forgotten locks (failed over, restarted, flushed or new), so it \
                     does not vote for another {left}"
                ),
                "wait; it votes again by itself",
            );
        }
        if sharded.answering < sharded.listed {
            let (answering, listed) = (sharded.answering, sharded.listed);
            self.find(
                Severity::Warning,
                "cluster-list",
                format!(
                    "{answering} of {listed} listed nodes answer; {}",
                    sharded.others.join("; ")
                ),
                "start the others, or correct their addresses in the URL",
            );
        }
        if sharded.unserved > 0 {
            self.find(
                Severity::Bad,
                "cluster-slots",
                format!("{} slots are served by no shard", sharded.unserved),
                "see redis-cli --cluster check, and --cluster fix",
            );
        }
        for shard in &sharded.shards {
            let (master, slots) = (&shard.master, shard.slots);
            if let Some(why) = &shard.fault {
                self.find(
                    Severity::Bad,
                    "shard",
                    format!("the shard of {master} ({slots} slots) cannot be asked: {why}"),
                    "start it, or wait for its failover",
                );
                continue;
            }
            let whose = format!(" of {master}");
            if shard.promotable == Some(0) {
                self.find(
                    Severity::Warning,
                    "no-replica",
                    format!(
                        "no replica of {master} can be promoted: when it is gone, so are the names in its \
                         {slots} slots"
                    ),
                    "attach a replica with cluster-replica-no-failover no",
                );
            }
            self.promotable(&whose, shard.promotable, facts.replicas_needed);
            match shard.min_replicas {
                Some(0) => {}
                _ => self.lag(&whose, shard.max_lag),
            }
        }
        if sharded.shards.iter().any(|s| s.min_replicas == Some(0)) {
            self.find(
                Severity::Note,
                "min-replicas",
                "min-replicas-to-write is 0: a master that is cut off takes writes until \
                 cluster-node-timeout; no client counts them longer than the failover time",
                "set min-replicas-to-write 1 to lose fewer locks by a failover",
            );
        }
        let noticed = sharded.node_timeout.unwrap_or_default();
        let whole = Readable(noticed + sharded.quarantine);
        let (max_ttl, failover) = (Readable(self.policy.max_ttl), Readable(sharded.failover));
        let noticed = Readable(noticed);
        self.find(
            Severity::Note,
            "failover",
            format!(
                "a shard's failover keeps its names from being acquired for about {whole}: {noticed} until \
                 it is noticed, then --max-ttl ({max_ttl}) and two failover times ({failover} each)"
            ),
            "independent servers or three Sentinel groups go on without a pause; a shorter --max-ttl, or \
             failover= in the URL, makes it shorter",
        );
    }

    /// Whether there are as many replicas as each vote waits for.
    fn replicas(&mut self, facts: &RedisFacts) {
        let needed = facts.replicas_needed;
        let Some(attached) = facts.replicas.filter(|attached| *attached < needed.into()) else {
            return;
        };
        self.find(
            Severity::Bad,
            "replicas",
            format!("each vote waits for {needed} replicas, and {attached} are attached"),
            "attach replicas, or lower replicas= in the URL",
        );
    }

    fn role(&mut self, facts: &RedisFacts) {
        match facts.role.as_deref() {
            Some("master") | None => {}
            Some(_) => self.find(
                Severity::Bad,
                "replica",
                "a replica: it grants no locks, and lags behind its master",
                "give the address of a master; replicas do not make locks safer, more independent \
                 masters do",
            ),
        }
        if facts.loading {
            self.find(
                Severity::Bad,
                "loading",
                "still loading its data",
                "wait until it is done",
            );
        }
    }

    fn eviction(&mut self, facts: &RedisFacts) {
        let limited = facts.memory_limit.is_some_and(|limit| limit > 0);
        let Some(policy) = facts.eviction_policy.as_deref().filter(|_| limited) else {
            return;
        };
        if policy == "noeviction" {
            return;
        }
        // As the library does: one node votes with a warning, several refuse it.
        let (severity, follows) = match self.nodes {
            1 => (Severity::Warning, "it votes all the same"),
            _ => (Severity::Bad, "so it does not vote"),
        };
        self.find(
            severity,
            "eviction",
            format!(
                "evicts keys when its memory is full (maxmemory-policy {policy}), and an evicted \
                 key is a lost lock; {follows}"
            ),
            "CONFIG SET maxmemory-policy noeviction, and the same in redis.conf",
        );
    }

    fn delays(&self) -> bool {
        match self.policy.restart {
            Some(policy) => policy == RestartPolicy::Delay,
            None => self.nodes >= DELAY_FROM,
        }
    }

    /// Whether the nodes vote only as members of a cluster.
    fn needs_cluster(&self) -> bool {
        self.nodes > 1 && self.delays()
    }

    /// What keeps it from voting in the cluster of these nodes; `is_made`: others are members already.
    fn membership(&mut self, facts: &RedisFacts, addresses: &[String], is_made: bool) {
        const WAIT: &str = "wait; it votes again by itself";
        let wait = facts.group.as_ref().map(|group| group.quarantine);
        let wait = wait.or(facts.sharded.as_ref().map(|sharded| sharded.quarantine));
        if !self.needs_cluster() && wait.is_none() {
            return;
        }
        let max_ttl = Readable(wait.unwrap_or(self.policy.max_ttl));
        let (why, fix) = match &facts.cluster {
            ClusterFacts::None if is_made => (
                format!(
                    "has lost its marker and may have forgotten locks: it votes {max_ttl} after the \
                         next client has seen it"
                ),
                WAIT.into(),
            ),
            ClusterFacts::None => (
                format!(
                    "belongs to no cluster yet: the first client makes it, and waits for {max_ttl} \
                         once"
                ),
                "if no lock from before these servers started is still held, run `fencepost init \
                 --fresh` before the first client: then they vote at once"
                    .into(),
            ),
            ClusterFacts::Pending => (
                "its cluster is being made: not every node has joined".into(),
                "start the nodes that are missing; the next client completes it".into(),
            ),
            ClusterFacts::Replaced => (
                "its cluster was replaced by another (`fencepost init --replace`)".into(),
                "use the new list of nodes".into(),
            ),
            ClusterFacts::Member { nodes, .. } if nodes != addresses => (
                format!(
                    "belongs to the cluster {}, so this list of nodes is refused",
                    nodes.join(",")
                ),
                "use that list, or replace the cluster by `fencepost init --replace`".into(),
            ),
            ClusterFacts::Member { max_ttl, .. } if *max_ttl != self.policy.max_ttl => (
                format!("its cluster has a --max-ttl of {}", Readable(*max_ttl)),
                format!("use --max-ttl {}", Readable(*max_ttl)),
            ),
            _ => return,
        };
        self.find(Severity::Bad, "membership", why, fix);
    }

    fn restart(&mut self, facts: &RedisFacts) {
        let keeps_all = facts.append_only == Some(true) && facts.fsync.as_deref() == Some("always");
        // A member's marker says whether it votes, whatever it writes to disk.
        if keeps_all && facts.quarantine.is_none() {
            return;
        }
        const MEND: &str = "CONFIG SET appendonly yes, CONFIG SET appendfsync always, the same in \
                            redis.conf, and say so by `fencepost init --durable`";
        let max_ttl = Readable(self.policy.max_ttl);
        let is_member = matches!(facts.cluster, ClusterFacts::Member { .. });
        match (facts.quarantine, self.delays()) {
            // It has no vote that it could lose.
            (Some(_), true) if self.needs_cluster() && !is_member => {}
            (Some(left), true) => {
                let left = Readable(left);
                self.find(
                    Severity::Bad,
                    "restarted",
                    format!(
                        "may have forgotten locks (restarted, flushed or new), so it does not vote for \
                         another {left}"
                    ),
                    format!("wait; to vote at once after the next restart: {MEND}"),
                );
            }
            (Some(_), false) => self.find(
                Severity::Warning,
                "restarted",
                format!(
                    "restarted less than {max_ttl} ago and may have forgotten locks, and votes all \
                     the same"
                ),
                format!("use --restart-policy delay, or {MEND}"),
            ),
            (None, delays) => {
                let follows = match delays {
                    true => format!("it will not vote for {max_ttl} after each restart"),
                    false => "a restart forgets locks that are held".into(),
                };
                self.find(
                    Severity::Note,
                    "persistence",
                    format!("does not sync every write to disk: {follows}"),
                    MEND,
                );
            }
        }
    }

    fn rights(&mut self, facts: &RedisFacts) {
        for (needed_for, severity, what, follows) in [
            (
                NeededFor::Locks,
                Severity::Bad,
                "acl",
                "without it no lock can be acquired",
            ),
            (
                NeededFor::Reentrant,
                Severity::Note,
                "acl_reentrant",
                "so reentrant locks cannot be acquired",
            ),
            (
                NeededFor::Waking,
                Severity::Warning,
                "acl_waking",
                "so waiters are not woken, and poll once a second",
            ),
            (
                NeededFor::Checks,
                Severity::Warning,
                "acl_checks",
                "so whether it may vote cannot be checked fully",
            ),
            (
                NeededFor::Listing,
                Severity::Note,
                "acl_list",
                "so `list` does not work",
            ),
        ] {
            let missing = facts.missing.iter();
            let missing: Vec<_> = missing.filter(|it| it.needed_for == needed_for).collect();
            if missing.is_empty() {
                continue;
            }
            let commands: Vec<_> = missing.iter().map(|it| it.command.as_str()).collect();
            let rules: Vec<_> = missing.iter().map(|it| it.rule.as_str()).collect();
            let narrower = match rules.contains(&"~*") {
                true => "; ~* may be narrower: each lock NAME needs the keys NAME and {NAME}:*",
                false => "",
            };
            let user = &facts.user;
            self.find(
                severity,
                what,
                format!("user {user} may not use {}; {follows}", commands.join(", ")),
                format!("ACL SETUSER {user} {}{narrower}", rules.join(" ")),
            );
        }
    }

    fn version(&mut self, facts: &RedisFacts) {
        let major = facts.version.as_deref().and_then(|version| {
            let major = version.split('.').next()?;
            major.parse::<u64>().ok()
        });
        if facts.product == "Redis"
            && let (Some(major), Some(version)) = (major, &facts.version)
            && major < OLDEST_MAJOR
        {
            self.find(
                Severity::Bad,
                "version",
                format!("Redis {version} cannot run the scripts of fencepost"),
                "use Redis 6 or newer, or Valkey",
            );
        }
    }

    fn same_server(&mut self, before: &[NodeSurvey], facts: &RedisFacts) {
        let other = before.iter().find(|other| match &other.facts {
            Ok(Facts::Redis(other)) => facts.run_id.is_some() && other.run_id == facts.run_id,
            _ => false,
        });
        if let Some(other) = other {
            let other = &other.node;
            self.find(
                Severity::Bad,
                "same_server",
                format!("the same server as {other}, which would vote twice"),
                "list each server once; a quorum needs servers that fail independently",
            );
        }
    }

    fn file(&mut self, facts: &FileFacts) {
        if !facts.tells_processes {
            self.find(
                Severity::Warning,
                "processes",
                "/proc does not show the processes of this machine, so the lock of a dead holder is \
                 free only after its TTL",
                "mount /proc of this pid namespace, or keep the TTL short",
            );
        }
        if !facts.tells_boots {
            self.find(
                Severity::Note,
                "boots",
                "no boot id here, so a reboot may keep a lock for one TTL",
                "nothing, unless that is too long",
            );
        }
        if facts.writable_by_all {
            self.find(
                Severity::Warning,
                "permissions",
                "every user of this machine may write the file, and so acquire or release any lock",
                "chmod o-w it, and its directory",
            );
        }
    }

    fn together(&mut self, surveys: &[NodeSurvey]) {
        // Also those that cannot be used: a user with a broken file needs no advice about servers.
        let files = surveys.iter().filter(|survey| is_file(&survey.node));
        let files = files.count();
        if self.nodes.is_multiple_of(2) {
            let (nodes, fewer) = (self.nodes, self.nodes - 1);
            self.find(
                Severity::Warning,
                "even",
                format!("{nodes} nodes are safe, but tolerate no more failures than {fewer} would"),
                "use one more or one less: 3 or 5 are best",
            );
        }
        if self.nodes == 1 && files == 0 {
            self.find(
                Severity::Note,
                "single",
                "one node only: while it is down, no lock can be acquired",
                "give 3 or 5 independent servers, separated by commas",
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_cannot_be_asked_has_a_finding_of_its_own_kind() {
        let policy = Policy {
            restart: None,
            max_ttl: Duration::from_secs(60),
        };
        let mut ward = Ward {
            policy,
            nodes: 3,
            findings: Vec::new(),
            at: Some(0),
        };
        for error in [
            NodeError::Auth("WRONGPASS".into()),
            NodeError::Unreachable("refused".into()),
            NodeError::Store("no".into()),
            NodeError::Timeout(Duration::from_secs(1)),
        ] {
            ward.unreachable("redis://a", &error);
        }
        let what: Vec<_> = ward.findings.iter().map(|finding| finding.what).collect();
        assert_eq!(what, ["auth", "unreachable", "store", "timeout"]);
        assert!(ward.findings.iter().all(keeps_from_voting));
        assert!(ward.delays(), "three nodes");
        ward.unreachable("file:/x", &NodeError::Other("broken".into()));
        let last = ward.findings.last().unwrap();
        assert_eq!(last.what, "store");
        assert!(
            last.fix.contains("file:PATH") && !last.fix.contains("server"),
            "{}",
            last.fix
        );
    }
}
