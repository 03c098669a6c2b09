//! The table of all rows, one file for each group.

mod clock;
mod forget;
mod fork;
mod late;
mod line;
mod lists;
mod partition;
mod pause;
mod redis_cluster;
mod refusal;
mod replica;
mod restart;
mod sentinel;
mod service;
mod wire;

use std::io;
use std::time::{Duration, Instant};

use crate::row::Row;

/// How long servers may take to agree, and how often they are asked.
const AGREE_LIMIT: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(20);

/// All rows, in the order of the report.
#[must_use]
pub fn all() -> Vec<Row> {
    [
        restart::ROWS,
        replica::ROWS,
        sentinel::ROWS,
        redis_cluster::ROWS,
        forget::ROWS,
        lists::ROWS,
        pause::ROWS,
        fork::ROWS,
        line::ROWS,
        partition::ROWS,
        wire::ROWS,
        late::ROWS,
        clock::ROWS,
        refusal::ROWS,
        service::ROWS,
    ]
    .concat()
}

/// The row of that name.
#[must_use]
pub fn by_name(name: &str) -> Option<Row> {
    all().into_iter().find(|row| row.name == name)
}

/// Waits until servers have come to what a row needs.
fn until(what: &str, mut condition: impl FnMut() -> io::Result<bool>) -> io::Result<()> {
    let end = Instant::now() + AGREE_LIMIT;
    while !condition()? {
        if Instant::now() >= end {
            let why = format!("not within {AGREE_LIMIT:?}: {what}");
            return Err(io::Error::other(why));
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_a_name_of_its_own() {
        let mut names: Vec<_> = all().iter().map(|row| row.name).collect();
        names.sort_unstable();
        let many = names.len();
        names.dedup();
        assert_eq!(names.len(), many);
        assert!(by_name("flushall").is_some() && by_name("nonsense").is_none());
    }
}
