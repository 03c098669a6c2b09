//! `fencepost status`: who holds a lock, and what each node says of it.

use std::process::ExitCode;

use fencepost::{Client, HolderStatus, LockName, NodeStatus, Owner, Status};
use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::args::StatusJob;
use crate::client::{self, Connect, fault};
use crate::duration::millis;
use crate::exit::Failure;
use crate::fault::{self, expiry};
use crate::majority::{FREE, UNKNOWN, holder, is_known, too_few};
use crate::slots;
use crate::table::{self, NOTHING, aligned, columns, fitted, left, since_json, token};
use crate::voice;

pub(crate) fn run(job: &StatusJob) -> Result<ExitCode, Failure> {
    if let (Some(count), [name]) = (job.slots, job.names.as_slice()) {
        return slots::run(job, name, count);
    }
    let seen = client::with(
        || job.place.builder(),
        Connect::Meanwhile,
        async |locks| {
            let mut seen = Vec::new();
            for names in job.names.chunks(AT_ONCE) {
                let looks = names.iter().map(|name| look(job, locks, name));
                for look in join_all(looks).await {
                    seen.push(look?);
                }
            }
            Ok(seen)
        },
    )?;
    let text = match (job.json, seen.as_slice()) {
        (true, [(status, _)]) => format!("{:#}\n", as_json(status)),
        (true, _) => {
            let all = seen.iter().map(|(status, _)| as_json(status));
            format!("{:#}\n", Value::Array(all.collect()))
        }
        (false, _) => {
            let all = seen.iter().map(|(status, has_slots)| {
                let hint = if *has_slots { SLOTS_HINT } else { "" };
                format!("{}{hint}", as_table(status))
            });
            all.collect::<Vec<_>>().join("\n\n")
        }
    };
    let printed = voice::print(&text);
    match seen.iter().find(|(status, _)| !is_known(status)) {
        None => Ok(printed),
        Some((unknown, _)) => Err(too_few(unknown)),
    }
}

/// How many locks are looked at at the same time.
const AT_ONCE: usize = 64;
const SLOTS_HINT: &str = "\nThe name is that of a semaphore, too: --slots K shows who holds which of \
                          its K slots.\n";

/// What is known of a lock, and whether slots of that name are used.
async fn look(job: &StatusJob, locks: &Client, name: &LockName) -> Result<(Status, bool), Failure> {
    // It is for people, and must not make them wait for longer.
    let has_slots = async { !job.json && slots::are_used(locks, name).await };
    let (status, has_slots) = tokio::join!(locks.status(name.as_str()), has_slots);
    Ok((status.map_err(|error| fault(&error))?, has_slots))
}

fn as_table(status: &Status) -> String {
    let remaining = status.holder.as_ref().map(|holder| left(holder.remaining));
    let remaining = remaining.unwrap_or_else(|| NOTHING.into());
    let mut head = vec![
        ["lock".into(), status.name.to_string()],
        ["holder".into(), holder(status)],
        ["held since".into(), since(status.holder.as_ref())],
        ["expires in".into(), remaining],
        ["token".into(), token(status.token)],
        ["waiting".into(), status.waiting.to_string()],
    ];
    head.extend(status.readers.iter().map(|reader| {
        let (owner, expiry) = (&reader.owner, expiry(reader.remaining));
        let reads = match reader.since() {
            Some(at) => format!("{owner} since about {}, {expiry}", table::since(at)),
            None => format!("{owner} ({expiry})"),
        };
        ["reader".into(), reads]
    }));
    let titles = ["node", "holder", "expires in", "token", ""].map(str::to_owned);
    let mut nodes = vec![titles];
    nodes.extend(status.nodes.iter().map(node_row));
    format!("{}\n{}", aligned(&head), fitted(&nodes, columns()))
}

fn since(holder: Option<&HolderStatus>) -> String {
    match holder.and_then(HolderStatus::since) {
        Some(at) => format!("about {}, by the holder's clock", table::since(at)),
        None => NOTHING.into(),
    }
}

/// Why a node says nothing may be long, and comes last: it must not push the others apart.
fn node_row(node: &NodeStatus) -> [String; 5] {
    let (holder, remaining, own, why) = match &node.lock {
        Err(error) => (
            UNKNOWN.into(),
            None,
            None,
            format!("({})", fault::node(error)),
        ),
        Ok(lock) => {
            let holder = lock.holder.as_ref();
            let owner = holder.map(|holder| holder.value.owner().to_string());
            let remaining = holder.map(|holder| left(holder.remaining));
            let own = holder.and_then(|holder| holder.token);
            let nobody = if node.can_tell() { FREE } else { UNKNOWN };
            let why = node.quarantine.map(fault::quarantined);
            (
                owner.unwrap_or_else(|| nobody.into()),
                remaining,
                own,
                why.map_or_else(String::new, |why| format!("({why})")),
            )
        }
    };
    let remaining = remaining.unwrap_or_else(|| NOTHING.into());
    [node.node.clone(), holder, remaining, token(own), why]
}

fn as_json(status: &Status) -> Value {
    let nodes = status.nodes.iter().map(|node| match &node.lock {
        Err(error) => json!({ "node": node.node, "error": fault::node(error) }),
        Ok(lock) => {
            let holder = lock.holder.as_ref();
            json!({
                "node": node.node,
                "holder": holder.map(|holder| holder.value.owner().to_string()),
                "remaining_ms": holder.and_then(|holder| holder.remaining).map(millis),
                "token": holder.and_then(|holder| holder.token).map(u64::from),
                "quarantine_ms": node.quarantine.map(millis),
            })
        }
    });
    let holder = status.holder.as_ref();
    let readers = status.readers.iter().map(|reader| {
        let left = reader.remaining.map(millis);
        let since = since_json(reader.since());
        json!({ "reader": reader.owner.as_str(), "since": since, "remaining_ms": left })
    });
    json!({
        "lock": status.name.as_str(),
        "held": status.held,
        "holder": holder.map(|holder| holder.owner.as_str()),
        "split": status.split.iter().map(Owner::as_str).collect::<Vec<_>>(),
        "since": since_json(holder.and_then(HolderStatus::since)),
        "remaining_ms": holder.and_then(|holder| holder.remaining).map(millis),
        "token": status.token.map(u64::from),
        "waiting": status.waiting,
        "readers": readers.collect::<Vec<_>>(),
        "nodes": nodes.collect::<Vec<_>>(),
    })
}
