//! The names in a lock file.
//!
//! Uses a separate connection, so that a long list never delays a lock, and goes through SQLite, as
//! everything that opens the file must.

use rusqlite::Connection;

use super::fault::explain;
use super::file;
use super::place::FileSpec;
use super::row::Row;
use crate::error::NodeError;
use crate::runtime::clock::{Clock as _, SystemClock};
use crate::store::{MOST_LISTED, Queued};
use fencepost_core::name::LockName;
use fencepost_core::pattern::{NamePattern, Names};

/// How many rows are read at once.
const PAGE: u32 = 1000;

pub(super) fn names(spec: &FileSpec, wanted: &NamePattern) -> Result<Names, NodeError> {
    match file::open(spec, file::WHEN_OPENED) {
        Ok(open) => read(&open.connection, wanted).map_err(|error| explain(&error)),
        Err(NodeError::ReadOnly(_)) => file::look(spec, |connection| read(connection, wanted)),
        Err(error) => Err(error),
    }
}

/// The waiters for this lock. Expired tickets are left out, by this machine's boot time.
pub(super) fn queue(spec: &FileSpec, name: &LockName) -> Result<Vec<Queued>, NodeError> {
    let now = SystemClock.now().since_start();
    let read = |connection: &Connection| -> rusqlite::Result<Vec<Queued>> {
        let Some(row) = Row::read(connection, name.queue().as_str())? else {
            return Ok(Vec::new());
        };
        let waiting = row.state.waiting_at(now).take(MOST_LISTED);
        Ok(waiting.map(|(id, number)| (id.clone(), number)).collect())
    };
    match file::open(spec, file::WHEN_OPENED) {
        Ok(open) => read(&open.connection).map_err(|error| explain(&error)),
        Err(NodeError::ReadOnly(_)) => file::look(spec, read),
        Err(error) => Err(error),
    }
}

fn read(connection: &Connection, wanted: &NamePattern) -> rusqlite::Result<Names> {
    let mut names = Names::default();
    let mut last = String::new();
    loop {
        let page = Row::names_after(connection, &last, PAGE)?;
        let Some(end) = page.last() else {
            return Ok(names);
        };
        last.clone_from(end);
        for name in page.iter().filter(|name| wanted.matches(name)) {
            // An invalid name was not written by us.
            if let Ok(name) = LockName::new(name)
                && !name.is_queue_for_slots()
                && !names.push(name)
            {
                return Ok(names);
            }
        }
    }
}
