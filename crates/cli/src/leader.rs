//! `fencepost leader`: who leads, once or again and again.

use std::process::ExitCode;
use std::time::Duration;

use fencepost::{Election, Leader};
use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval};

use crate::args::LeaderJob;
use crate::client::{self, Connect, fault};
use crate::duration::millis;
use crate::exit::Failure;
use crate::majority::FREE;
use crate::table::{NOTHING, aligned, clock, since_1970};
use crate::voice;

/// How often to check that stdout still has a reader.
const HEARD_LOOK: Duration = Duration::from_secs(1);
/// The exit code without a leader.
const NO_LEADER: u8 = 1;

pub(crate) fn run(job: &LeaderJob) -> Result<ExitCode, Failure> {
    client::with(
        || job.place.builder(),
        Connect::Meanwhile,
        async |locks| {
            let election = locks.election(job.name.as_str());
            match job.every {
                None => once(job, &election).await,
                Some(every) => again_and_again(job, &election, every).await,
            }
        },
    )
}

async fn once(job: &LeaderJob, election: &Election) -> Result<ExitCode, Failure> {
    let leader = election.leader().await.map_err(|error| fault(&error))?;
    let text = match job.json {
        true => format!("{:#}\n", as_json(job, leader.as_ref())),
        false => as_table(job, leader.as_ref()),
    };
    let printed = voice::print(&text);
    Ok(match leader {
        None if printed == ExitCode::SUCCESS => NO_LEADER.into(),
        _ => printed,
    })
}

async fn again_and_again(
    job: &LeaderJob,
    election: &Election,
    every: Duration,
) -> Result<ExitCode, Failure> {
    let observer = election.observe_every(every);
    let mut observer = observer.map_err(|error| fault(&error))?;
    let mut ticks = interval(HEARD_LOOK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            leader = observer.next() => {
                if let Err(end) = voice::go_on_printing(&line(job, &leader)) {
                    return Ok(end);
                }
            }
            _ = ticks.tick() => if !voice::is_heard() {
                return Ok(ExitCode::SUCCESS);
            }
        }
    }
}

/// What is printed of a new leader.
fn line(job: &LeaderJob, leader: &Leader) -> String {
    let now = since_1970();
    if !job.json {
        let Leader { value, token, .. } = leader;
        return format!("{}  {value} leads, token {token}\n", clock(now));
    }
    let mut told = as_json(job, Some(leader));
    told["at_ms"] = millis(now).into();
    format!("{told}\n")
}

fn as_table(job: &LeaderJob, leader: Option<&Leader>) -> String {
    let value = leader.map_or(FREE, |leader| leader.value.as_str());
    let token = leader.map(|leader| leader.token.to_string());
    aligned(&[
        ["election".into(), job.name.to_string()],
        ["leader".into(), value.to_owned()],
        ["token".into(), token.unwrap_or_else(|| NOTHING.into())],
    ])
}

fn as_json(job: &LeaderJob, leader: Option<&Leader>) -> Value {
    json!({
        "election": job.name.as_str(),
        "leader": leader.map(|leader| leader.value.as_str()),
        "token": leader.map(|leader| leader.token.get()),
    })
}
