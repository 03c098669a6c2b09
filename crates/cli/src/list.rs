//! `fencepost list`: the locks that are held.

use std::process::ExitCode;

use fencepost::{Listing, NamePattern, Status};
use serde_json::{Value, json};

use crate::args::ListJob;
use crate::client::{self, Connect, fault};
use crate::duration::millis;
use crate::exit::{Exit, Failure};
use crate::status::{holder, is_held_somewhere, is_known};
use crate::table::{NOTHING, aligned, left, token};
use crate::voice::{self, Event, Voice};

pub(crate) fn run(job: &ListJob) -> Result<ExitCode, Failure> {
    let (listing, nodes) = client::with(
        || job.place.builder(),
        Connect::Meanwhile,
        async |locks| {
            let listing = locks.list(&job.pattern).await;
            let nodes = locks.node_count();
            Ok((listing.map_err(|error| fault(&error))?, nodes))
        },
    )?;
    let shown: Vec<_> = listing
        .locks
        .iter()
        .filter(|lock| is_held_somewhere(lock) || (job.all && is_remembered(lock)))
        .collect();
    let text = match job.json {
        true => format!("{:#}\n", as_json(&listing, &shown)),
        false if shown.is_empty() => nothing(job),
        false => as_table(&shown),
    };
    let printed = voice::print(&text);
    if listing.more {
        let message = "there are more locks than are listed; give a pattern";
        Voice::Plain.tell(&Event::Failed(&Failure::usage(message)));
    }
    let answered = nodes - listing.failed.len();
    if answered * 2 > nodes {
        return Ok(printed);
    }
    let why = listing
        .failed
        .iter()
        .map(|(node, error)| format!("{node}: {error}"));
    let why: Vec<_> = why.collect();
    let message = format!(
        "no quorum: {answered} of {nodes} nodes answered; {}",
        why.join(", ")
    );
    Err(Failure::new(Exit::Unavailable, message))
}

/// Whether somebody has ever had it, or waits for it.
fn is_remembered(lock: &Status) -> bool {
    lock.register.get() > 0 || lock.waiting > 0
}

fn nothing(job: &ListJob) -> String {
    let which = match job.pattern == NamePattern::all() {
        true => "no lock",
        false => "no lock that fits the pattern",
    };
    let how = if job.all { "remembered" } else { "held" };
    format!("{which} is {how}\n")
}

fn as_table(shown: &[&Status]) -> String {
    let titles = ["lock", "holder", "remaining", "token", "waiting"].map(str::to_owned);
    let rows = shown.iter().map(|lock| {
        let remaining = lock.holder.as_ref().map(|holder| left(holder.remaining));
        [
            lock.name.to_string(),
            holder(lock),
            remaining.unwrap_or_else(|| NOTHING.into()),
            token(lock.token),
            lock.waiting.to_string(),
        ]
    });
    aligned(&std::iter::once(titles).chain(rows).collect::<Vec<_>>())
}

fn as_json(listing: &Listing, shown: &[&Status]) -> Value {
    let locks = shown.iter().map(|lock| {
        let holder = lock.holder.as_ref();
        json!({
            "lock": lock.name.as_str(),
            "held": is_known(lock).then_some(holder.is_some()),
            "holder": holder.map(|holder| holder.owner.as_str()),
            "remaining_ms": holder.and_then(|holder| holder.remaining).map(millis),
            "token": lock.token.map(u64::from),
            "waiting": lock.waiting,
        })
    });
    let failed = listing.failed.iter();
    let failed = failed.map(|(node, error)| json!({ "node": node, "error": error.to_string() }));
    json!({
        "locks": locks.collect::<Vec<_>>(),
        "failed": failed.collect::<Vec<_>>(),
        "more": listing.more,
    })
}
