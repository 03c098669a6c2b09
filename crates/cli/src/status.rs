//! `fencepost status`: who holds a lock, and what each node says of it.

use std::process::ExitCode;
use std::time::Duration;

use fencepost::{NodeStatus, Status};
use serde_json::{Value, json};

use crate::args::StatusJob;
use crate::duration::{Readable, millis};
use crate::exit::{Exit, Failure};
use crate::voice;

pub(crate) fn run(job: &StatusJob) -> Result<ExitCode, Failure> {
    let runtime = crate::run::runtime()?;
    let status = runtime.block_on(async {
        let locks = job.place.builder().build()?;
        locks.status(job.name.as_str()).await
    });
    // A name that is being looked up must not keep us.
    runtime.shutdown_background();
    let status = status.map_err(|error| Failure::of(&error, Exit::BUSY))?;
    let text = match job.json {
        true => format!("{:#}\n", as_json(&status)),
        false => as_table(&status),
    };
    let printed = voice::print(&text);
    if is_known(&status) {
        return Ok(printed);
    }
    let (answered, all) = (answered(&status), status.nodes.len());
    let message = format!("no quorum: {answered} of {all} nodes answered");
    Err(Failure::new(Exit::Unavailable, message))
}

fn answered(status: &Status) -> usize {
    status.nodes.iter().filter(|node| node.lock.is_ok()).count()
}

/// Whether enough nodes answered to tell that nobody holds it.
fn is_known(status: &Status) -> bool {
    answered(status) * 2 > status.nodes.len()
}

const FREE: &str = "nobody";
const NOTHING: &str = "-";

fn as_table(status: &Status) -> String {
    let (holder, remaining) = match &status.holder {
        Some(holder) => (holder.owner.to_string(), left(holder.remaining)),
        None if is_known(status) => (FREE.into(), NOTHING.into()),
        None => ("unknown".into(), NOTHING.into()),
    };
    let head = [
        ["lock".into(), status.name.to_string()],
        ["holder".into(), holder],
        ["remaining".into(), remaining],
        ["token".into(), token(status.token.get())],
    ];
    let titles = ["node", "holder", "remaining", "token"].map(str::to_owned);
    let mut nodes = vec![titles];
    nodes.extend(status.nodes.iter().map(node_row));
    format!("{}\n{}", aligned(&head), aligned(&nodes))
}

fn node_row(node: &NodeStatus) -> [String; 4] {
    let name = node.node.clone();
    match &node.lock {
        Err(error) => [name, format!("({error})"), NOTHING.into(), NOTHING.into()],
        Ok(lock) => {
            let counter = token(lock.counter.get());
            match &lock.holder {
                None => [name, FREE.into(), NOTHING.into(), counter],
                Some(holder) => {
                    let owner = holder.value.owner().to_string();
                    [name, owner, left(holder.remaining), counter]
                }
            }
        }
    }
}

fn left(remaining: Option<Duration>) -> String {
    match remaining {
        Some(time) => Readable(time).to_string(),
        None => "for ever".into(),
    }
}

/// Zero is what a counter says that was never used.
fn token(number: u64) -> String {
    match number {
        0 => NOTHING.into(),
        number => number.to_string(),
    }
}

/// Columns of equal width, two spaces apart, and none after the last.
fn aligned<const N: usize>(rows: &[[String; N]]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.max().unwrap_or(0)
    };
    let widths: [usize; N] = std::array::from_fn(width);
    let line = |row: &[String; N]| {
        let cells = row.iter().zip(widths);
        let cells: Vec<_> = cells
            .map(|(cell, width)| format!("{cell:width$}"))
            .collect();
        format!("{}\n", cells.join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

fn as_json(status: &Status) -> Value {
    let nodes = status.nodes.iter().map(|node| match &node.lock {
        Err(error) => json!({ "node": node.node, "error": error.to_string() }),
        Ok(lock) => {
            let holder = lock.holder.as_ref();
            json!({
                "node": node.node,
                "holder": holder.map(|holder| holder.value.owner().to_string()),
                "remaining_ms": holder.and_then(|holder| holder.remaining).map(millis),
                "token": lock.counter.get(),
            })
        }
    });
    let holder = status.holder.as_ref();
    json!({
        "lock": status.name.as_str(),
        "held": is_known(status).then_some(holder.is_some()),
        "holder": holder.map(|holder| holder.owner.as_str()),
        "remaining_ms": holder.and_then(|holder| holder.remaining).map(millis),
        "token": status.token.get(),
        "nodes": nodes.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_by_characters_and_lines_have_no_tail() {
        let rows = [["täg", "x"], ["a", ""], ["long", "yy"]].map(|row| row.map(str::to_owned));
        assert_eq!(aligned(&rows), "täg   x\na\nlong  yy\n");
    }
}
