//! Whether a node that may have forgotten locks votes: the restart policy, and its place in the cluster.
//! The rule is the library's; here it becomes a sentence.

use fencepost::RestartPolicy;
use fencepost::diagnostics::{ClusterFacts, RedisFacts};

use super::{Examination, Severity};
use crate::duration::Readable;

/// From how many nodes on restarted ones do not vote, unless the user says otherwise.
const DELAY_FROM: usize = 2;

impl Examination {
    pub(super) fn delays(&self) -> bool {
        match self.policy.restart {
            Some(policy) => policy == RestartPolicy::Delay,
            None => self.nodes >= DELAY_FROM,
        }
    }

    /// Whether the nodes vote only as members of a cluster.
    pub(super) fn needs_cluster(&self) -> bool {
        self.nodes > 1 && self.delays()
    }

    /// What keeps it from voting in the cluster of these nodes; `is_made`: others are members already.
    pub(super) fn membership(&mut self, facts: &RedisFacts, addresses: &[String], is_made: bool) {
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

    pub(super) fn restart(&mut self, facts: &RedisFacts) {
        const SYNC: &str = "CONFIG SET appendonly yes, CONFIG SET appendfsync always, CONFIG SET \
                            no-appendfsync-on-rewrite no, the same in redis.conf";
        const PROMISE: &str = "run `fencepost init --durable`";
        let max_ttl = Readable(self.policy.max_ttl);
        let is_member = matches!(facts.cluster, ClusterFacts::Member { .. });
        if facts.uptime.is_none() && facts.quarantine.is_none() {
            // One of several is refused for that, whenever it started.
            if self.nodes == 1 {
                self.hidden_start(facts);
            }
            return;
        }
        let keeps_all = facts.append_only == Some(true)
            && facts.fsync.as_deref() == Some("always")
            && facts.syncs_while_saving == Some(true);
        // Where a marker decides, a restarted server votes at once only by the promise in it.
        let is_promised = !(self.needs_cluster() && is_member) || facts.is_durable == Some(true);
        let mend = match self.needs_cluster() {
            true => format!("{SYNC}, then {PROMISE}"),
            false => SYNC.to_owned(),
        };
        // A member's marker says whether it votes, whatever it writes to disk.
        if keeps_all && is_promised && facts.quarantine.is_none() {
            return;
        }
        match (facts.quarantine, self.delays()) {
            // It has no vote that it could lose.
            (Some(_), true) if self.needs_cluster() && !is_member => {}
            (Some(left), true) => {
                let left = Readable(left);
                let fix = match self.needs_cluster() {
                    true => format!("wait; to vote at once after the next restart: {mend}"),
                    false => "wait".to_owned(),
                };
                self.find(
                    Severity::Bad,
                    "restarted",
                    format!(
                        "may have forgotten locks (restarted, flushed or new), so it does not vote for \
                         another {left}"
                    ),
                    fix,
                );
            }
            (Some(_), false) => self.find(
                Severity::Warning,
                "restarted",
                format!(
                    "restarted less than {max_ttl} ago and may have forgotten locks, and \
                     still votes"
                ),
                format!("use --restart-policy delay, or {SYNC}"),
            ),
            (None, _)
                if facts.append_only == Some(true)
                    && (facts.fsync.is_none() || facts.syncs_while_saving.is_none()) =>
            {
                self.find(
                    Severity::Note,
                    "persistence",
                    "cannot tell whether it syncs every write to disk: this user may not run CONFIG GET",
                    format!("run ACL SETUSER {} +config|get", facts.user),
                );
            }
            (None, _) if keeps_all => self.find(
                Severity::Note,
                "persistence",
                format!(
                    "syncs every write to disk, but nobody has promised that it always did: it will not \
                     vote for {max_ttl} after each restart"
                ),
                PROMISE,
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
                    mend,
                );
            }
        }
    }

    /// A server that does not say when it started.
    fn hidden_start(&mut self, facts: &RedisFacts) {
        let max_ttl = Readable(self.policy.max_ttl);
        let (severity, follows) = match self.delays() {
            true => (
                Severity::Bad,
                format!("so it votes for each new client only after {max_ttl}"),
            ),
            false => (
                Severity::Note,
                "so whether it may have forgotten locks is unknown".to_owned(),
            ),
        };
        self.find(
            severity,
            "hidden_start",
            format!("cannot tell when it started, because this user may not run INFO; {follows}"),
            format!("ACL SETUSER {} +info", facts.user),
        );
    }
}
