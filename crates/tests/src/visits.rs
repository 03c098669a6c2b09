//! What the readers and writers of one lock did, and whether it was allowed: a writer together with
//! anybody, or a token that tells the wrong order.

use std::fmt;
use std::str::FromStr;

use crate::history::{Turn, check, most_at_once};

/// One lease on a read-write lock, as its holder saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Visit {
    /// Whether it wrote.
    pub writes: bool,
    /// When, and with which token.
    pub turn: Turn,
}

impl fmt::Display for Visit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.writes { 'w' } else { 'r' };
        write!(f, "{kind} {}", self.turn)
    }
}

impl FromStr for Visit {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let (writes, turn) = match line.split_once(' ') {
            Some(("w", turn)) => (true, turn),
            Some(("r", turn)) => (false, turn),
            _ => return Err(format!("not a visit: {line:?}")),
        };
        let turn = turn.parse()?;
        Ok(Self { writes, turn })
    }
}

/// Checks of the writers what is checked of a lock, that nobody read while one of them wrote, that a
/// reader's token is at least that of every writer before it, and a writer's larger than that of every
/// reader before it. Returns how many read at once, at the most.
///
/// # Errors
/// The first thing that is wrong.
pub fn check_visits(visits: &[Visit]) -> Result<usize, String> {
    let turns = |writes: bool| {
        let those = visits.iter().filter(move |visit| visit.writes == writes);
        those.map(|visit| visit.turn).collect::<Vec<_>>()
    };
    let (readers, writers) = (turns(false), turns(true));
    check(&writers).map_err(|fault| format!("writers: {fault}"))?;
    for reader in readers.iter().filter(|reader| reader.begin < reader.end) {
        let lasting = writers.iter().filter(|writer| writer.begin < writer.end);
        let mut meets = lasting.filter(|w| w.begin < reader.end && reader.begin < w.end);
        if let Some(writer) = meets.next() {
            return Err(format!("read {reader} while another wrote: {writer}"));
        }
    }
    for reader in &readers {
        let mut before = writers.iter().filter(|w| w.begin < reader.asked);
        if let Some(writer) = before.find(|writer| writer.token > reader.token) {
            return Err(format!(
                "reader {reader} is below the writer before it: {writer}"
            ));
        }
        let mut after = writers.iter().filter(|w| reader.begin < w.asked);
        if let Some(writer) = after.find(|writer| writer.token <= reader.token) {
            return Err(format!(
                "writer {writer} is not above the reader before it: {reader}"
            ));
        }
    }
    Ok(most_at_once(&readers))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn visit(kind: char, asked: u64, begin: u64, end: u64, token: u64) -> Visit {
        let turn = Turn {
            asked,
            begin,
            end,
            token,
        };
        let writes = kind == 'w';
        Visit { writes, turn }
    }

    #[test]
    fn a_good_history_passes() {
        let visits = [
            visit('w', 0, 1, 5, 10),
            // The writer became a reader.
            visit('r', 5, 5, 9, 10),
            visit('r', 2, 6, 8, 11),
            visit('w', 3, 9, 10, 12),
            visit('r', 11, 12, 13, 12),
        ];
        assert_eq!(check_visits(&visits), Ok(2));
        assert_eq!(visits[1].to_string().parse(), Ok(visits[1]));
        assert!("x 1 2 3 4".parse::<Visit>().is_err());
        assert!("w 1 2 3".parse::<Visit>().is_err());
    }

    #[test]
    fn a_reader_beside_a_writer_is_found_whoever_came_first() {
        for reader in [visit('r', 0, 1, 5, 9), visit('r', 0, 5, 9, 10)] {
            let fault = check_visits(&[reader, visit('w', 0, 4, 6, 10)]).unwrap_err();
            assert!(fault.contains("while another wrote"), "{fault}");
        }
    }

    #[test]
    fn two_who_write_are_found() {
        let fault = check_visits(&[visit('w', 0, 1, 5, 10), visit('w', 0, 4, 6, 11)]).unwrap_err();
        assert!(fault.contains("two at a time"), "{fault}");
    }

    #[test]
    fn tokens_that_tell_the_wrong_order_are_found() {
        let below = [visit('w', 0, 1, 2, 10), visit('r', 3, 4, 5, 9)];
        assert!(check_visits(&below).unwrap_err().contains("below"));
        let not_above = [visit('r', 0, 1, 2, 10), visit('w', 3, 4, 5, 10)];
        assert!(check_visits(&not_above).unwrap_err().contains("not above"));
    }
}
