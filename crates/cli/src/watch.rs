//! `fencepost watch`: each change of a lock's holder.
//!
//! It looks again and again; it must never look more often than it was told to.

use std::process::ExitCode;
use std::time::{Duration, UNIX_EPOCH};

use fencepost::{HolderStatus, Owner, Status};
use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval};

use crate::args::WatchJob;
use crate::client::{self, Connect, fault};
use crate::duration::millis;
use crate::exit::Failure;
use crate::fault::held;
use crate::majority::{has_forgotten, is_known, on_some_nodes};
use crate::table::{clock, since_1970, since_json, token};
use crate::voice;

/// What a change is a change of.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    known: bool,
    holder: Option<String>,
    split: Vec<Owner>,
    token: Option<u64>,
}

pub(crate) fn run(job: &WatchJob) -> Result<ExitCode, Failure> {
    client::with(
        || job.place.builder(),
        Connect::Meanwhile,
        async |locks| {
            let mut last = None;
            let mut ticks = interval(job.every);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                if !voice::is_heard() {
                    return Ok(ExitCode::SUCCESS);
                }
                let status = locks.status(job.name.as_str()).await;
                let status = status.map_err(|error| fault(&error))?;
                let seen = Some(Seen::of(&status));
                if seen == last {
                    continue;
                }
                let now = since_1970();
                let line = match job.json {
                    true => format!("{}\n", as_json(&status, millis(now))),
                    false => format!("{}  {}\n", clock(now), sentence(&status)),
                };
                if let Err(end) = voice::go_on_printing(&line) {
                    return Ok(end);
                }
                last = seen;
            }
        },
    )
}

impl Seen {
    fn of(status: &Status) -> Self {
        Self {
            known: is_known(status),
            holder: status
                .holder
                .as_ref()
                .map(|holder| holder.owner.to_string()),
            split: status.split.clone(),
            token: status.token.map(u64::from),
        }
    }
}

fn sentence(status: &Status) -> String {
    let token = token(status.token);
    match &status.holder {
        Some(holder) => {
            format!("{}; token {token}", held(holder))
        }
        None if is_known(status) && status.split.is_empty() => "free".into(),
        None if is_known(status) => on_some_nodes(&status.split),
        None if status.nodes.iter().any(has_forgotten) => {
            "unknown: too few nodes can tell; the others may have forgotten it".into()
        }
        None => "unknown: too few nodes answer".into(),
    }
}

fn as_json(status: &Status, now: u64) -> Value {
    let holder = status.holder.as_ref();
    json!({
        "at_ms": now,
        "time": since_json(Some(UNIX_EPOCH + Duration::from_millis(now))),
        "lock": status.name.as_str(),
        "held": status.held,
        "holder": holder.map(|holder| holder.owner.as_str()),
        "split": status.split.iter().map(Owner::as_str).collect::<Vec<_>>(),
        "since": since_json(holder.and_then(HolderStatus::since)),
        "remaining_ms": holder.and_then(|holder| holder.remaining).map(millis),
        "token": status.token.map(u64::from),
        "waiting": status.waiting,
    })
}
