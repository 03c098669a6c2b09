//! One Redis server: its role, settings, rights, clock and connection.

use std::time::Duration;

use fencepost::diagnostics::{Facts, LinkKind, NeededFor, NodeSurvey, RedisFacts};

use super::{Examination, Severity};
use crate::duration::Readable;

/// How far a server's clock may be off without a word.
const CLOCK_TOLERANCE_US: u64 = 1_000_000;
/// A round trip that is worth a word.
const SLOW: Duration = Duration::from_millis(50);
/// The first version of Redis whose scripts can do what ours do.
const OLDEST_MAJOR: u64 = 6;

impl Examination {
    pub(super) fn redis(&mut self, facts: &RedisFacts) {
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

    /// Whether there are as many replicas as each vote waits for.
    pub(super) fn replicas(&mut self, facts: &RedisFacts) {
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

    pub(super) fn role(&mut self, facts: &RedisFacts) {
        match facts.role.as_deref() {
            Some("master") => {}
            // As the library does: one server votes with a warning; of several, and of a group that fails over, it must
            // be known.
            None if self.nodes > 1 || facts.group.is_some() || facts.sharded.is_some() => self.find(
                Severity::Bad,
                "hidden",
                "cannot tell whether it is a master, because this user may not run INFO: role hidden, so it does not \
                 vote",
                format!("ACL SETUSER {} +info", facts.user),
            ),
            None => {}
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

    pub(super) fn eviction(&mut self, facts: &RedisFacts) {
        let limited = facts.memory_limit.is_some_and(|limit| limit > 0);
        let Some(policy) = facts.eviction_policy.as_deref().filter(|_| limited) else {
            return;
        };
        if policy == "noeviction" {
            return;
        }
        // As the library does: one node votes with a warning, several refuse it.
        let (severity, follows) = match self.nodes {
            1 => (Severity::Warning, "it still votes"),
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

    pub(super) fn rights(&mut self, facts: &RedisFacts) {
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
                NeededFor::WakingInShard,
                Severity::Note,
                "acl_waking_in_shard",
                "so each wake-up goes to all nodes of the Cluster",
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

    pub(super) fn version(&mut self, facts: &RedisFacts) {
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

    pub(super) fn same_server(&mut self, before: &[NodeSurvey], facts: &RedisFacts) {
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
}
