//! The table of all rows, one file for each group.

mod clock;
mod forget;
mod fork;
mod late;
mod line;
mod lists;
mod partition;
mod pause;
mod refusal;
mod replica;
mod restart;
mod wire;

use crate::row::Row;

/// All rows, in the order of the report.
#[must_use]
pub fn all() -> Vec<Row> {
    [
        restart::ROWS,
        replica::ROWS,
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
    ]
    .concat()
}

/// The row of that name.
#[must_use]
pub fn by_name(name: &str) -> Option<Row> {
    all().into_iter().find(|row| row.name == name)
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
