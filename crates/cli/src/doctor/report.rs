//! How the findings are shown.

use std::time::Duration;

use anstyle::AnsiColor;
use fencepost::diagnostics::{
    ClusterFacts, Facts, FileFacts, GroupFacts, LinkKind, NodeSurvey, RedisFacts, ShardedFacts,
};
use serde_json::{Value, json};

use super::findings::{Diagnosis, Finding, Severity};
use crate::duration::{Readable, millis};
use crate::fault;
use crate::table::{NOTHING, columns, fitted, since_1970, wrapped};

/// How it is shown: how wide, and in which colours.
#[derive(Clone, Copy)]
pub(super) struct Look {
    pub(super) width: Option<usize>,
    pub(super) colours: bool,
}

impl Look {
    /// For stdout.
    pub(super) fn of_stdout() -> Self {
        // It knows of NO_COLOR, of dumb terminals, and of pipes.
        let choice = anstream::AutoStream::choice(&std::io::stdout());
        Self {
            width: columns(),
            colours: choice != anstream::ColorChoice::Never,
        }
    }

    fn painted(self, text: &str, colour: AnsiColor) -> String {
        match self.colours {
            true => {
                let style = colour.on_default().bold();
                format!("{style}{text}{style:#}")
            }
            false => text.to_owned(),
        }
    }
}

pub(super) fn text(surveys: &[NodeSurvey], diagnosis: &Diagnosis, look: Look) -> String {
    let mut text = fitted(&rows(surveys), look.width);
    for (title, severity, colour) in [
        ("unsafe", Severity::Bad, AnsiColor::Red),
        ("warnings", Severity::Warning, AnsiColor::Yellow),
        ("notes", Severity::Note, AnsiColor::Cyan),
    ] {
        let of_it = |finding: &&Finding| finding.severity == severity;
        let found: Vec<_> = diagnosis.findings.iter().filter(of_it).collect();
        if found.is_empty() {
            continue;
        }
        text += &format!("\n{}\n", look.painted(title, colour));
        for group in grouped(&found) {
            text += &shown(surveys, &group, look);
        }
    }
    let (voters, nodes, needed) = (diagnosis.voters, surveys.len(), diagnosis.needed);
    let verdict = match voters >= needed {
        true => {
            let verdict = format!("{voters} of {nodes} nodes can vote, {needed} needed");
            look.painted(&verdict, AnsiColor::Green)
        }
        false => {
            let verdict = format!("no quorum: {voters} of {nodes} nodes can vote, {needed} needed");
            look.painted(&verdict, AnsiColor::Red)
        }
    };
    format!("{text}\n{verdict}\n")
}

/// Findings that are fixed in the same way, together, in the order of the first of each.
fn grouped<'a>(found: &[&'a Finding]) -> Vec<Vec<&'a Finding>> {
    let mut groups: Vec<Vec<&Finding>> = Vec::new();
    for finding in found {
        let same = groups
            .iter_mut()
            .find(|group| group[0].what == finding.what && group[0].fix == finding.fix);
        match same {
            Some(group) => group.push(finding),
            None => groups.push(vec![finding]),
        }
    }
    groups
}

/// What was found of several nodes, and how it is fixed, once.
fn shown(surveys: &[NodeSurvey], group: &[&Finding], look: Look) -> String {
    let node = |finding: &Finding| match finding.node {
        Some(index) => surveys[index].node.as_str(),
        None => "all nodes",
    };
    let mut text = String::new();
    let mut said: Vec<&str> = Vec::new();
    for finding in group {
        if said.contains(&finding.why.as_str()) {
            continue;
        }
        said.push(&finding.why);
        let same = group.iter().filter(|other| other.why == finding.why);
        let nodes: Vec<_> = same.map(|other| node(other)).collect();
        let sentence = format!("{}: {}", nodes.join(", "), finding.why);
        text += &wrapped(&sentence, look.width, "  ", "    ");
    }
    let fix = group.first().map_or("", |finding| &finding.fix);
    text + &wrapped(&format!("fix: {fix}"), look.width, "    ", "      ")
}

/// The table. A column that no node has a value for is left out.
fn rows(surveys: &[NodeSurvey]) -> Vec<Vec<String>> {
    let titles = [
        "node",
        "version",
        "role",
        "up",
        "persistence",
        "eviction",
        "clock",
        "latency",
        "link",
    ];
    let mut rows = vec![titles.map(str::to_owned)];
    rows.extend(surveys.iter().map(row));
    let is_told = |column: &usize| rows[1..].iter().any(|row| row[*column] != NOTHING);
    let columns: Vec<_> = (0..titles.len()).filter(is_told).collect();
    let rows = rows.iter();
    rows.map(|row| columns.iter().map(|column| row[*column].clone()).collect())
        .collect()
}

fn row(survey: &NodeSurvey) -> [String; 9] {
    let mut row = [NOTHING; 9].map(str::to_owned);
    row[0].clone_from(&survey.node);
    match &survey.facts {
        Ok(Facts::Redis(facts)) => {
            row[1] = version(facts);
            row[2] = facts.role.clone().unwrap_or_else(unknown);
            row[3] = facts
                .uptime
                .map_or_else(unknown, |up| Readable(up).to_string());
            row[4] = persistence(facts);
            row[5] = eviction(facts);
            row[6] = facts.clock_ahead_us.map_or_else(unknown, clock);
            row[7] = latency(facts.round_trip);
            row[8] = link(facts.link).to_owned();
        }
        Ok(Facts::File(facts)) => {
            row[1] = format!("SQLite {}", facts.sqlite);
            row[2] = "file".into();
            row[4] = "until a reboot".into();
            row[5] = "none".into();
            row[7] = latency(facts.round_trip);
        }
        Ok(_) | Err(_) => {}
    }
    row
}

fn unknown() -> String {
    "?".into()
}

fn version(facts: &RedisFacts) -> String {
    let version = facts.version.as_deref().unwrap_or("?");
    format!("{} {version}", facts.product)
}

fn persistence(facts: &RedisFacts) -> String {
    match (facts.append_only, facts.fsync.as_deref(), facts.snapshots) {
        (Some(true), fsync, _) => format!("aof {}", fsync.unwrap_or("?")),
        (Some(false), _, Some(true)) => "rdb".into(),
        (Some(false), _, Some(false)) => "none".into(),
        (Some(false), _, None) => "no aof".into(),
        (None, ..) => unknown(),
    }
}

fn eviction(facts: &RedisFacts) -> String {
    match (facts.memory_limit, &facts.eviction_policy) {
        (Some(0), _) => "none".into(),
        (_, Some(policy)) => policy.clone(),
        (_, None) => unknown(),
    }
}

fn clock(ahead: i64) -> String {
    // Half a round trip of it is guesswork: parts of a millisecond would only look exact.
    let sign = match ahead / 1000 {
        0 => "",
        1.. => "+",
        _ => "-",
    };
    let millis = Duration::from_millis(ahead.unsigned_abs() / 1000);
    format!("{sign}{}", Readable(millis))
}

fn latency(time: Duration) -> String {
    Readable(time).to_string()
}

fn link(kind: LinkKind) -> &'static str {
    match kind {
        LinkKind::Tls => "tls",
        LinkKind::Unix => "unix",
        LinkKind::Loopback => "loopback",
        _ => "plain",
    }
}

pub(super) fn json(surveys: &[NodeSurvey], diagnosis: &Diagnosis) -> Value {
    let nodes = surveys.iter().map(|survey| match &survey.facts {
        Err(error) => json!({ "node": survey.node, "error": fault::node(error) }),
        Ok(Facts::Redis(facts)) => redis(&survey.node, facts),
        Ok(Facts::File(facts)) => file(&survey.node, facts),
        Ok(_) => json!({ "node": survey.node }),
    });
    let findings = diagnosis.findings.iter().map(|finding| {
        json!({
            "node": finding.node.map(|index| &surveys[index].node),
            "severity": match finding.severity {
                Severity::Bad => "unsafe",
                Severity::Warning => "warning",
                Severity::Note => "note",
            },
            "what": finding.what,
            "why": finding.why,
            "fix": finding.fix,
        })
    });
    json!({
        "nodes": nodes.collect::<Vec<_>>(),
        "findings": findings.collect::<Vec<_>>(),
        "voters": diagnosis.voters,
        "needed": diagnosis.needed,
        "exit": diagnosis.exit_code(),
    })
}

fn redis(node: &str, facts: &RedisFacts) -> Value {
    let missing = facts.missing.iter().map(|right| right.rule.as_str());
    json!({
        "node": node,
        "kind": "redis",
        "version": version(facts),
        "role": facts.role,
        "uptime_s": facts.uptime.map(|up| up.as_secs()),
        "run_id": facts.run_id,
        "append_only": facts.append_only,
        "fsync": facts.fsync,
        "syncs_while_saving": facts.syncs_while_saving,
        "durable": facts.is_durable,
        "snapshots": facts.snapshots,
        "maxmemory": facts.memory_limit,
        "eviction_policy": facts.eviction_policy,
        "quarantine_ms": facts.quarantine.map(millis),
        // As a time too: an answer that is kept for a while says it as well later on.
        "quarantine_until_ms": facts.quarantine.map(|left| millis(since_1970() + left)),
        "cluster": cluster(&facts.cluster),
        "clock_ahead_us": facts.clock_ahead_us,
        "round_trip_us": micros(facts.round_trip),
        "link": link(facts.link),
        "user": facts.user,
        "missing_rights": missing.collect::<Vec<_>>(),
        "replicas": facts.replicas,
        "replicas_needed": facts.replicas_needed,
        "sentinel": facts.group.as_ref().map(group),
        "redis_cluster": facts.sharded.as_ref().map(sharded),
    })
}

fn group(group: &GroupFacts) -> Value {
    json!({
        "master": group.master,
        "listed": group.listed,
        "naming": group.naming,
        "known": group.known,
        "quorum": group.quorum,
        "down_after_ms": group.down_after.map(millis),
        "promotable": group.promotable,
        "failover_ms": millis(group.failover),
        "quarantine_ms": millis(group.quarantine),
    })
}

fn sharded(facts: &ShardedFacts) -> Value {
    let shards = facts.shards.iter().map(|shard| {
        json!({
            "master": shard.master,
            "slots": shard.slots,
            "promotable": shard.promotable,
            "min_replicas": shard.min_replicas,
            "max_lag_ms": shard.max_lag.map(millis),
        })
    });
    json!({
        "listed": facts.listed,
        "answering": facts.answering,
        "node_timeout_ms": facts.node_timeout.map(millis),
        "failover_ms": millis(facts.failover),
        "quarantine_ms": millis(facts.quarantine),
        "shards": shards.collect::<Vec<_>>(),
    })
}

/// One word, or the list of its nodes.
fn cluster(facts: &ClusterFacts) -> Value {
    match facts {
        ClusterFacts::None => "none".into(),
        ClusterFacts::Pending => "pending".into(),
        ClusterFacts::Replaced => "replaced".into(),
        ClusterFacts::Member { nodes, .. } => nodes.clone().into(),
        _ => Value::Null,
    }
}

fn file(node: &str, facts: &FileFacts) -> Value {
    json!({
        "node": node,
        "kind": "file",
        "version": format!("SQLite {}", facts.sqlite),
        "bytes": facts.bytes,
        "locks": facts.locks,
        "tells_processes": facts.tells_processes,
        "round_trip_us": micros(facts.round_trip),
    })
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
