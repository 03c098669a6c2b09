//! A Redis Cluster: whether all its slots are served, and what the failover of a shard costs.

use fencepost::diagnostics::{RedisFacts, ShardedFacts};

use super::{Examination, Finding, Severity};
use crate::duration::Readable;

/// Whether it is a Redis Cluster in which some shard votes.
pub(super) fn has_voter(facts: &RedisFacts) -> bool {
    let shards = facts.sharded.iter().flat_map(|all| &all.shards);
    let mut votes = shards.map(|shard| shard.fault.is_none() && shard.quarantine.is_none());
    votes.any(|votes| votes)
}

/// Whether the names of other shards are used all the same.
pub(super) fn is_of_a_shard(finding: &Finding) -> bool {
    ["restarted", "cluster-slots", "shard"].contains(&finding.what)
}

impl Examination {
    /// What is unsafe about a Redis Cluster, and what a failover costs.
    pub(super) fn sharded(&mut self, sharded: &ShardedFacts, facts: &RedisFacts) {
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
        if let (Some(shortest), Some(longest)) =
            (sharded.shortest_node_timeout, sharded.node_timeout)
            && shortest < longest
        {
            let (shortest, longest) = (Readable(shortest), Readable(longest));
            self.find(
                Severity::Warning,
                "node-timeout",
                format!(
                    "cluster-node-timeout is {shortest} at one listed node and {longest} at another: what \
                     they say counts for the shorter time, and a shard waits for the longer one after a \
                     failover"
                ),
                "set the same on every node (CONFIG SET cluster-node-timeout, and redis.conf)",
            );
        }
        if sharded.unserved > 0 {
            self.find(
                Severity::Bad,
                "cluster-slots",
                format!("{} slots are served by no shard", sharded.unserved),
                "see redis-cli --cluster check; --cluster fix assigns them, and those that come back empty \
                 wait for --max-ttl and two failover times",
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
}
