//! `fencepost list`: the locks that are held.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::{Duration, UNIX_EPOCH};

use fencepost::{Client, FencingToken, HolderStatus, Listing, NamePattern, Owner, Status};
use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval};

use crate::args::ListJob;
use crate::client::{self, Connect, fault};
use crate::duration::millis;
use crate::exit::{Exit, Failure};
use crate::fault;
use crate::majority::{holder, is_held_somewhere};
use crate::names::typed;
use crate::table::{
    NOTHING, clock, columns, fitted, left, since_1970, since_cell, since_json, token,
};
use crate::voice::{self, Event, Voice};

pub(crate) fn run(job: &ListJob) -> Result<ExitCode, Failure> {
    client::with(
        || job.place.builder(),
        Connect::Meanwhile,
        async |locks| match job.every {
            None => once(job, locks).await,
            Some(every) => again_and_again(job, locks, every).await,
        },
    )
}

async fn once(job: &ListJob, locks: &Client) -> Result<ExitCode, Failure> {
    let listing = locks
        .list(&job.pattern)
        .await
        .map_err(|error| fault(&error))?;
    let shown = shown(job, &listing);
    let trouble = too_few(&listing, locks.node_count());
    let printed = voice::print(&match job.json {
        true => format!("{:#}\n", as_json(&listing, &shown)),
        // That nobody holds one was not observed.
        false if shown.is_empty() && trouble.is_some() => String::new(),
        false => as_text(job, &shown),
    });
    if listing.truncated {
        let message = "more locks than can be listed; give a pattern";
        Voice::Plain.tell(&Event::Failed(&Failure::usage(message)));
    }
    if let Some(failure) = trouble {
        return Err(failure);
    }
    if let Some(away) = unanswered(&listing, locks.node_count()) {
        Voice::Plain.tell(&Event::Failed(&away));
    }
    Ok(printed)
}

/// Prints it anew whenever a holder changes, or a waiter comes or goes.
async fn again_and_again(
    job: &ListJob,
    locks: &Client,
    every: Duration,
) -> Result<ExitCode, Failure> {
    let at_terminal = std::io::stdout().is_terminal() && !job.json;
    let mut last = None;
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if !voice::is_heard() {
            return Ok(ExitCode::SUCCESS);
        }
        let listing = locks
            .list(&job.pattern)
            .await
            .map_err(|error| fault(&error))?;
        let shown = shown(job, &listing);
        let nodes = locks.node_count();
        let (too_few, away) = (too_few(&listing, nodes), unanswered(&listing, nodes));
        let is_unknown = too_few.is_some() && shown.is_empty();
        let trouble = too_few.or(away).map(|failure| failure.to_string());
        let seen = (
            shown.iter().map(|lock| Seen::of(lock)).collect::<Vec<_>>(),
            trouble,
        );
        // At a terminal the times go on; elsewhere only changes are of interest.
        if !at_terminal && last.as_ref() == Some(&seen) {
            continue;
        }
        let now = since_1970();
        let trouble = seen
            .1
            .as_ref()
            .map(|why| format!("{why}\n"))
            .unwrap_or_default();
        let text = match job.json {
            true => {
                let mut told = as_json(&listing, &shown);
                told["at_ms"] = millis(now).into();
                told["time"] = since_json(Some(UNIX_EPOCH + now));
                format!("{told}\n")
            }
            false => {
                let text = match is_unknown {
                    true => String::new(),
                    false => as_text(job, &shown),
                };
                match at_terminal {
                    true => format!("{HOME}{}\n\n{text}{trouble}", clock(now)),
                    false => format!("{}\n{text}{trouble}\n", clock(now)),
                }
            }
        };
        if let Err(end) = voice::go_on_printing(&text) {
            return Ok(end);
        }
        last = Some(seen);
    }
}

/// To the upper left corner, and away with all that is there.
const HOME: &str = "\x1b[H\x1b[J";

/// What a change is a change of.
#[derive(PartialEq, Eq)]
struct Seen(String, String, Option<FencingToken>, usize);

impl Seen {
    fn of(lock: &Status) -> Self {
        let name = lock.name.to_string();
        Self(name, holder(lock), lock.token, lock.waiting)
    }
}

fn shown<'a>(job: &ListJob, listing: &'a Listing) -> Vec<&'a Status> {
    let locks = listing.locks.iter();
    locks
        .filter(|lock| is_held_somewhere(lock) || (job.all && is_remembered(lock)))
        .collect()
}

/// That fewer than a majority of the nodes answered, if it is so.
pub(crate) fn too_few(listing: &Listing, nodes: usize) -> Option<Failure> {
    let answered = nodes - listing.failed.len();
    if answered * 2 > nodes {
        return None;
    }
    let message = format!("no quorum: {answered} of {nodes} nodes answered");
    Some(failed(listing, message))
}

/// That some nodes did not answer, if it is so.
fn unanswered(listing: &Listing, nodes: usize) -> Option<Failure> {
    let away = listing.failed.len();
    let message = format!("{away} of {nodes} nodes did not answer");
    (away > 0).then(|| failed(listing, message))
}

fn failed(listing: &Listing, message: String) -> Failure {
    let reasons = listing.failed.iter();
    let reasons = reasons.map(|it| (it.node.clone(), fault::outcome(&it.outcome)));
    Failure {
        nodes: reasons.collect(),
        ..Failure::new(Exit::Unavailable, message)
    }
}

fn as_text(job: &ListJob, shown: &[&Status]) -> String {
    match shown.is_empty() {
        _ if job.names => {
            let names = shown
                .iter()
                .map(|lock| format!("{}\n", typed([&lock.name])));
            names.collect()
        }
        true => nothing(job),
        false => as_table(shown),
    }
}

/// Whether it was ever held, or has waiters.
fn is_remembered(lock: &Status) -> bool {
    lock.register.get() > 0 || lock.waiting > 0
}

fn nothing(job: &ListJob) -> String {
    let is_any = job.pattern == NamePattern::all();
    match (job.all, is_any) {
        (true, true) => "no lock is remembered\n".to_owned(),
        (true, false) => "no lock that matches the pattern is remembered\n".to_owned(),
        // Clients of other libraries leave nothing by which their locks could be listed.
        (false, true) => format!("no lock that fencepost knows of is held; {LOOK}\n"),
        (false, false) => {
            format!(
                "no lock that fencepost knows of and that matches the pattern is held; {LOOK}\n"
            )
        }
    }
}

/// What else there is to see.
const LOOK: &str = "`fencepost status NAME` looks at one";

fn as_table(shown: &[&Status]) -> String {
    let titles = [
        "lock",
        "holder",
        "held since",
        "expires in",
        "token",
        "waiting",
    ]
    .map(str::to_owned);
    let rows = shown.iter().map(|lock| {
        let remaining = lock.holder.as_ref().map(|holder| left(holder.remaining));
        [
            lock.name.to_string(),
            holder(lock),
            since_cell(lock.holder.as_ref()),
            remaining.unwrap_or_else(|| NOTHING.into()),
            token(lock.token),
            lock.waiting.to_string(),
        ]
    });
    let rows: Vec<_> = std::iter::once(titles).chain(rows).collect();
    fitted(&rows, columns())
}

fn as_json(listing: &Listing, shown: &[&Status]) -> Value {
    let locks = shown.iter().map(|lock| {
        let holder = lock.holder.as_ref();
        json!({
            "lock": lock.name.as_str(),
            "held": lock.held,
            "holder": holder.map(|holder| holder.owner.as_str()),
            "split": lock.split.iter().map(Owner::as_str).collect::<Vec<_>>(),
            "since": since_json(holder.and_then(HolderStatus::since)),
            "remaining_ms": holder.and_then(|holder| holder.remaining).map(millis),
            "token": lock.token.map(u64::from),
            "waiting": lock.waiting,
        })
    });
    let failed = listing.failed.iter();
    let failed = failed.map(|it| json!({ "node": it.node, "error": fault::outcome(&it.outcome) }));
    json!({
        "locks": locks.collect::<Vec<_>>(),
        "failed": failed.collect::<Vec<_>>(),
        "more": listing.truncated,
    })
}
