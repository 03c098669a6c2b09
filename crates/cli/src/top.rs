//! `fencepost top`: locks and nodes in the terminal, again and again.

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::time::Duration;

use fencepost::{Client, NamePattern, Status};
use fencepost_server::warnings;
use serde_json::Value;
use tokio::time::{MissedTickBehavior, interval};

use crate::args::TopJob;
use crate::client::{self, Connect, fault};
use crate::doctor;
use crate::duration::{Readable, millis};
use crate::exit::Failure;
use crate::majority::{holder, is_held_somewhere, is_known};
use crate::table::{NOTHING, aligned, clock, columns, fitting, left, since_1970, token};
use crate::voice;

/// Clears the screen, and goes to its first place.
const CLEAR: &str = "\x1b[H\x1b[2J";
/// How many looks there are between two examinations of the nodes.
const EXAMINE_EACH: u64 = 5;
/// How many lines a terminal has that does not say so.
const LINES: usize = 24;

pub(crate) fn run(job: &TopJob) -> Result<ExitCode, Failure> {
    client::with(
        || job.place.builder(),
        Connect::Meanwhile,
        async |locks| {
            let is_screen = std::io::stdout().is_terminal();
            let mut ticks = interval(job.every);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let mut nodes = Value::Null;
            let mut shown = 0;
            while job.count.is_none_or(|most| shown < most) {
                ticks.tick().await;
                if !voice::is_heard() {
                    return Ok(ExitCode::SUCCESS);
                }
                if shown.is_multiple_of(EXAMINE_EACH) {
                    let policy = doctor::Policy {
                        restart: job.place.restart_policy,
                        max_ttl: job.place.max_ttl,
                    };
                    nodes = doctor::examine(job.place.builder(), policy).await;
                }
                let picture = picture(locks, &nodes, is_screen).await?;
                if let Err(end) = voice::go_on_printing(&picture) {
                    return Ok(end);
                }
                shown += 1;
            }
            Ok(ExitCode::SUCCESS)
        },
    )
}

async fn picture(locks: &Client, nodes: &Value, is_screen: bool) -> Result<String, Failure> {
    let listing = locks.list(&NamePattern::new("*")).await;
    let mut text = format!("fencepost top  {}\n\n", clock(since_1970()));
    text += &about_nodes(nodes);
    text.push('\n');
    let listing = match listing {
        Ok(listing) => listing,
        // A node that is away is part of the picture.
        Err(error) => {
            text += &format!("{}\n", fault(&error).message);
            return Ok(framed(&text, is_screen));
        }
    };
    let mut busy: Vec<_> = listing.locks.iter().filter(|it| is_busy(it)).collect();
    busy.sort_by(|a, b| b.waiting.cmp(&a.waiting).then(a.name.cmp(&b.name)));
    let held = busy.iter().filter(|lock| lock.holder.is_some()).count();
    let waiting: usize = busy.iter().map(|lock| lock.waiting).sum();
    text += &format!("{held} held, {waiting} waiting\n\n");
    text += &about_locks(&busy);
    Ok(framed(&text, is_screen))
}

fn is_busy(lock: &Status) -> bool {
    is_held_somewhere(lock) || lock.waiting > 0 || !is_known(lock)
}

fn about_locks(busy: &[&Status]) -> String {
    let titles = [
        "lock",
        "holder",
        "held for",
        "expires in",
        "token",
        "waiting",
        "nodes",
        "warnings",
    ];
    let mut rows = vec![titles.map(str::to_owned)];
    let now = since_1970();
    rows.extend(busy.iter().map(|lock| {
        let remaining = lock.holder.as_ref().map(|it| left(it.remaining));
        // A token is the time of its acquisition, about.
        let since = lock
            .token
            .map(|token| Duration::from_micros(u64::from(token)));
        let held_for = since.and_then(|since| now.checked_sub(since));
        let held_for = held_for.filter(|time| *time < Duration::from_secs(400 * 24 * 60 * 60));
        let held_for = held_for.map(|time| Duration::from_secs(time.as_secs()));
        let has = |node: &&fencepost::NodeStatus| {
            node.lock.as_ref().is_ok_and(|lock| lock.holder.is_some())
        };
        let votes = lock.nodes.iter().filter(has).count();
        [
            lock.name.to_string(),
            holder(lock),
            held_for.map_or_else(|| NOTHING.into(), |time| Readable(time).to_string()),
            remaining.unwrap_or_else(|| NOTHING.into()),
            token(lock.token),
            lock.waiting.to_string(),
            format!("{votes}/{}", lock.nodes.len()),
            match &warnings(lock, millis(now))[..] {
                [] => NOTHING.into(),
                words => words.join(", ").replace('_', " "),
            },
        ]
    }));
    aligned(&rows)
}

fn about_nodes(found: &Value) -> String {
    let text = |value: &Value| value.as_str().map_or_else(|| NOTHING.into(), str::to_owned);
    let titles = ["node", "state", "version", "up", "round trip"];
    let mut rows = vec![titles.map(str::to_owned)];
    let findings = || found["findings"].as_array().into_iter().flatten();
    for node in found["nodes"].as_array().into_iter().flatten() {
        let is_bad = |it: &&Value| it["node"] == node["node"] && it["severity"] == "unsafe";
        let state = match (node["error"].as_str(), findings().find(is_bad)) {
            (Some(_), _) => "down".into(),
            (None, Some(bad)) => format!("does not vote: {}", text(&bad["what"])),
            (None, None) => "votes".into(),
        };
        let time = |value: &Value, unit: fn(u64) -> Duration| {
            let time = value.as_u64().map(unit);
            time.map_or_else(|| NOTHING.into(), |time| Readable(time).to_string())
        };
        rows.push([
            text(&node["node"]),
            state,
            text(&node["version"]),
            time(&node["uptime_s"], Duration::from_secs),
            time(&node["round_trip_us"], Duration::from_micros),
        ]);
    }
    let (voters, needed) = (found["voters"].as_u64(), found["needed"].as_u64());
    let verdict = match (voters, needed) {
        (Some(voters), Some(needed)) if voters > needed => {
            format!(
                "{voters} nodes vote, {needed} needed: {} more may fail",
                voters - needed
            )
        }
        (Some(voters), Some(needed)) if voters == needed => {
            format!("{voters} nodes vote, {needed} needed: none may fail")
        }
        (Some(voters), Some(needed)) => format!("no quorum: {voters} nodes vote, {needed} needed"),
        _ => text(&found["error"]),
    };
    format!("{}{verdict}\n", aligned(&rows))
}

/// On a screen only what fits it; everything into a pipe.
fn framed(text: &str, is_screen: bool) -> String {
    if !is_screen {
        return format!("{text}\n");
    }
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok();
    let rows = size.map_or(LINES, |size| usize::from(size.ws_row)).max(4);
    let width = columns().unwrap_or(80);
    let lines = text.lines().take(rows - 1).map(|line| fitting(line, width));
    format!("{CLEAR}{}", lines.collect::<Vec<_>>().join("\n"))
}
