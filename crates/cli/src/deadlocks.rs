//! `fencepost deadlocks`: cycles of sessions that wait for each other's locks.

use std::process::ExitCode;

use fencepost::{Client, NamePattern};
use fencepost_server::waits_for::{Cycle, cycles};
use serde_json::json;

use crate::args::DeadlocksJob;
use crate::client::{self, Connect, fault};
use crate::exit::{Exit, Failure};
use crate::list::too_few;
use crate::voice;

pub(crate) fn run(job: &DeadlocksJob) -> Result<ExitCode, Failure> {
    let found = client::with(|| job.place.builder(), Connect::Meanwhile, look)?;
    let text = match job.json {
        true => format!("{:#}\n", as_json(&found)),
        false => as_text(&found),
    };
    let code = match found.is_empty() {
        true => ExitCode::SUCCESS,
        false => Exit::Nothing.code().into(),
    };
    match voice::print(&text) {
        ExitCode::SUCCESS => Ok(code),
        unread => Ok(unread),
    }
}

/// Twice: of locks that change hands while they are looked at, one look may show a cycle that never was.
async fn look(locks: &Client) -> Result<Vec<Cycle>, Failure> {
    let first = look_once(locks).await?;
    match first.is_empty() {
        true => Ok(first),
        false => {
            let second = look_once(locks).await?;
            Ok(first.into_iter().filter(|it| second.contains(it)).collect())
        }
    }
}

async fn look_once(locks: &Client) -> Result<Vec<Cycle>, Failure> {
    let listing = locks.list(&NamePattern::new("*")).await;
    let listing = listing.map_err(|error| fault(&error))?;
    if let Some(failure) = too_few(&listing, locks.node_count()) {
        return Err(failure);
    }
    let mut contended = Vec::new();
    for lock in listing.locks.iter().filter(|lock| lock.waiting > 0) {
        let queue = locks.queue(lock.name.as_str()).await;
        let queue = queue.map_err(|error| fault(&error))?;
        contended.extend(fencepost_server::contended(lock, &queue));
    }
    Ok(cycles(&contended))
}

fn as_text(found: &[Cycle]) -> String {
    if found.is_empty() {
        return "no cycle: no session waits for a lock whose holder waits for it\n".into();
    }
    let mut text = String::new();
    for cycle in found {
        text += &format!("cycle of {}:\n", cycle.len());
        let next = cycle.iter().cycle().skip(1);
        for (step, next) in cycle.iter().zip(next) {
            let (owner, lock, holder) = (&step.owner, &step.lock, &next.owner);
            text += &format!("  {owner} waits for \"{lock}\", held by {holder}\n");
        }
    }
    text
}

fn as_json(found: &[Cycle]) -> serde_json::Value {
    let cycles = found.iter().map(|cycle| {
        let steps = cycle.iter().map(|step| {
            json!({
                "session": step.session.to_string(), "owner": step.owner, "waits_for": step.lock,
            })
        });
        json!({ "steps": steps.collect::<Vec<_>>() })
    });
    json!({ "cycles": cycles.collect::<Vec<_>>() })
}
