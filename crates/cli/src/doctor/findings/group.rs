//! A Sentinel group: whether it refuses writes when cut off, whether its Sentinels agree, and what a
//! failover costs.

use std::time::Duration;

use fencepost::diagnostics::{ClusterFacts, GroupFacts, RedisFacts};

use super::{Examination, Severity};
use crate::duration::Readable;

impl Examination {
    /// What is unsafe about a Sentinel group, and what a failover costs.
    pub(super) fn group(&mut self, group: &GroupFacts, facts: &RedisFacts) {
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
        if group.max_lag.is_none() {
            self.find(
                Severity::Bad,
                "fencing-hidden",
                "cannot tell whether it takes writes when cut off from its replicas \
                 (min-replicas-to-write and min-replicas-max-lag are hidden from this user), so it \
                 does not vote",
                "run ACL SETUSER <user> +config|get on every server of the group",
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
    pub(super) fn lag(&mut self, whose: &str, max_lag: Option<Duration>) {
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
    pub(super) fn promotable(&mut self, whose: &str, promotable: Option<usize>, needed: u32) {
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
}
