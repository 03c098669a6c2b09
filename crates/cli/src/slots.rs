//! `fencepost status NAME --slots K`: who has which slot of a semaphore, and how many are free.

use std::process::ExitCode;

use fencepost::{Client, HolderStatus, LockName, Owner, Status};
use serde_json::{Value, json};

use crate::args::StatusJob;
use crate::client::{self, Connect, fault};
use crate::duration::millis;
use crate::exit::Failure;
use crate::fault;
use crate::majority::{holder, is_known, too_few};
use crate::table::{NOTHING, aligned, columns, fitted, left, since_cell, since_json, token};
use crate::voice;

/// How many slots are looked at to see whether a name is a semaphore's, too.
const LOOKED_AT: usize = 16;

/// The slots of a semaphore, one by one.
struct Slots<'a> {
    of: &'a LockName,
    all: Vec<Status>,
}

pub(crate) fn run(job: &StatusJob, of: &LockName, slots: usize) -> Result<ExitCode, Failure> {
    let all = client::with(
        || job.place.builder(),
        Connect::Meanwhile,
        async |locks| {
            let status = locks.semaphore(of.as_str(), slots).status().await;
            status.map_err(|error| fault(&error))
        },
    )?;
    let slots = Slots { of, all };
    let printed = voice::print(&match job.json {
        true => format!("{:#}\n", slots.as_json()),
        false => slots.as_table(),
    });
    match slots.all.iter().find(|slot| !is_known(slot)) {
        None => Ok(printed),
        Some(unknown) => Err(too_few(unknown)),
    }
}

/// Whether slots of that name have been used.
pub(crate) async fn are_used(locks: &Client, name: &LockName) -> bool {
    let slots = locks.semaphore(name.as_str(), LOOKED_AT).status().await;
    // A name that cannot be a semaphore's is none.
    slots.is_ok_and(|slots| slots.iter().any(|slot| slot.register.get() > 0))
}

impl Slots<'_> {
    /// How many are free, if that is known.
    fn free(&self) -> Option<usize> {
        let known = self.all.iter().all(is_known);
        let free = self.all.iter().filter(|slot| slot.holder.is_none());
        known.then(|| free.count())
    }

    /// A waiter is in the queue of every slot.
    fn waiting(&self) -> usize {
        let waiting = self.all.iter().map(|slot| slot.waiting);
        waiting.max().unwrap_or(0)
    }

    /// What each node says: how many slots are taken there, or why it does not tell.
    fn nodes(&self) -> Vec<(&str, Result<usize, String>)> {
        let Some(first) = self.all.first() else {
            return Vec::new();
        };
        let said = |place: usize| {
            let mut taken = 0;
            for slot in &self.all {
                match &slot.nodes[place].lock {
                    Ok(lock) => taken += usize::from(lock.holder.is_some()),
                    Err(error) => return Err(fault::node(error)),
                }
            }
            Ok(taken)
        };
        let nodes = first.nodes.iter().enumerate();
        let nodes = nodes.map(|(place, node)| (node.node.as_str(), said(place)));
        nodes.collect()
    }

    fn as_table(&self) -> String {
        let free = match self.free() {
            Some(free) => format!("{free} free of {}", self.all.len()),
            None => format!("unknown of {}", self.all.len()),
        };
        let head = [
            ["semaphore".into(), self.of.to_string()],
            ["slots".into(), free],
            ["waiting".into(), self.waiting().to_string()],
        ];
        let mut slots =
            vec![["slot", "holder", "held since", "expires in", "token"].map(str::to_owned)];
        slots.extend(self.all.iter().enumerate().map(|(number, slot)| {
            let remaining = slot.holder.as_ref().map(|holder| left(holder.remaining));
            [
                number.to_string(),
                holder(slot),
                since_cell(slot.holder.as_ref()),
                remaining.unwrap_or_else(|| NOTHING.into()),
                token(slot.token),
            ]
        }));
        let mut nodes = vec![["node", "taken"].map(str::to_owned)];
        nodes.extend(self.nodes().into_iter().map(|(node, said)| {
            let said = said.map_or_else(|error| format!("({error})"), |taken| taken.to_string());
            [node.to_owned(), said]
        }));
        let width = columns();
        let (slots, nodes) = (fitted(&slots, width), fitted(&nodes, width));
        let head = aligned(&head);
        format!("{head}\n{slots}\n{nodes}")
    }

    fn as_json(&self) -> Value {
        let slots = self.all.iter().enumerate().map(|(number, slot)| {
            let holder = slot.holder.as_ref();
            json!({
                "slot": number,
                "lock": slot.name.as_str(),
                "held": slot.held,
                "holder": holder.map(|holder| holder.owner.as_str()),
                "split": slot.split.iter().map(Owner::as_str).collect::<Vec<_>>(),
                "since": since_json(holder.and_then(HolderStatus::since)),
                "remaining_ms": holder.and_then(|holder| holder.remaining).map(millis),
                "token": slot.token.map(u64::from),
            })
        });
        let nodes = self.nodes().into_iter().map(|(node, said)| match said {
            Ok(taken) => json!({ "node": node, "taken": taken }),
            Err(error) => json!({ "node": node, "error": error }),
        });
        json!({
            "semaphore": self.of.as_str(),
            "free": self.free(),
            "waiting": self.waiting(),
            "slots": slots.collect::<Vec<_>>(),
            "nodes": nodes.collect::<Vec<_>>(),
        })
    }
}
