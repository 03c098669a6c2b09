//! The names in a lock file.
//!
//! By a connection of its own, so that a long list never holds up a lock; and through SQLite, as
//! everything that opens the file must be.

use std::path::Path;

use super::fault::explain;
use super::file;
use super::fork::Open;
use super::row::Row;
use fencepost_core::name::LockName;
use fencepost_core::pattern::{NamePattern, Names};

/// How many rows are read at once.
const PAGE: u32 = 1000;

pub(super) fn names(path: &Path, wanted: &NamePattern) -> Result<Names, String> {
    let _open = Open::register()?;
    let connection = file::open(path)?;
    let mut names = Names::default();
    let mut last = String::new();
    loop {
        let page = Row::names_after(&connection, &last, PAGE).map_err(|error| explain(&error))?;
        let Some(end) = page.last() else {
            return Ok(names);
        };
        last.clone_from(end);
        for name in page.iter().filter(|name| wanted.matches(name)) {
            // What is no name was not written by us.
            if let Ok(name) = LockName::new(name)
                && !names.push(name)
            {
                return Ok(names);
            }
        }
    }
}
