//! From what the nodes are like to what is unsafe about them. Pure.
//!
//! Each finding says what may go wrong and what to do, in words that can be typed. What would keep a
//! node from voting must be found here too, by the same rules.
//!
//! Here: what a finding is, and what is judged of all nodes together. One file for each thing that is
//! examined: `reach`, `server`, `voting`, `group`, `cluster`, `file`.

mod cluster;
mod file;
mod group;
mod reach;
mod server;
mod voting;

use std::time::Duration;

use fencepost::RestartPolicy;
use fencepost::diagnostics::{ClusterFacts, Facts, NodeSurvey};

pub(super) use self::file::is_file;
use crate::exit::Exit;

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
    let mut exam = Examination {
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
        exam.at = Some(index);
        let before = exam.findings.len();
        match &survey.facts {
            Err(error) => exam.unreachable(&survey.node, error),
            Ok(Facts::Redis(facts)) => {
                exam.redis(facts);
                exam.membership(facts, &addresses, is_made);
                exam.same_server(&surveys[..index], facts);
            }
            Ok(Facts::File(facts)) => exam.file(facts),
            Ok(_) => {}
        }
        let found = &exam.findings[before..];
        // As the library does: one shard of a Redis Cluster that votes is enough.
        let has_voter =
            matches!(&survey.facts, Ok(Facts::Redis(facts)) if cluster::has_voter(facts));
        let votes = |finding: &Finding| {
            !keeps_from_voting(finding) || (has_voter && cluster::is_of_a_shard(finding))
        };
        voters += usize::from(found.iter().all(votes));
    }
    exam.at = None;
    exam.together(surveys);
    Diagnosis {
        findings: exam.findings,
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

fn keeps_from_voting(finding: &Finding) -> bool {
    finding.severity == Severity::Bad
}

/// Where findings are collected.
struct Examination {
    policy: Policy,
    nodes: usize,
    findings: Vec<Finding>,
    at: Option<usize>,
}

impl Examination {
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
                "use one more or one fewer: 3 or 5 are best",
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
