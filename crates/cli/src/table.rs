//! Tables for people.

use fencepost::FencingToken;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::duration::Readable;

/// Where there is nothing to say.
pub(crate) const NOTHING: &str = "-";

/// Columns of equal width, two spaces apart, and none after the last.
pub(crate) fn aligned<const N: usize>(rows: &[[String; N]]) -> String {
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

/// How long a lock still lasts.
pub(crate) fn left(remaining: Option<Duration>) -> String {
    match remaining {
        Some(time) => Readable(time).to_string(),
        None => "for ever".into(),
    }
}

/// A holder's token.
pub(crate) fn token(own: Option<FencingToken>) -> String {
    own.map_or_else(|| NOTHING.into(), |own| own.to_string())
}

/// The time by this machine's clock.
pub(crate) fn since_1970() -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    // A clock before 1970 is as wrong as one that shows it.
    now.unwrap_or_default()
}

/// The time of day in UTC: `14:03:59Z`.
pub(crate) fn clock(since_1970: Duration) -> String {
    let since_1970 = since_1970.as_secs();
    let (hours, minutes, seconds) = (
        since_1970 / 3600 % 24,
        since_1970 / 60 % 60,
        since_1970 % 60,
    );
    format!("{hours:02}:{minutes:02}:{seconds:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_by_characters_and_lines_have_no_tail() {
        let rows = [["täg", "x"], ["a", ""], ["long", "yy"]].map(|row| row.map(str::to_owned));
        assert_eq!(aligned(&rows), "täg   x\na\nlong  yy\n");
    }

    #[test]
    fn the_clock_shows_the_time_of_day() {
        assert_eq!(clock(Duration::ZERO), "00:00:00Z");
        assert_eq!(clock(Duration::from_secs(86_399)), "23:59:59Z");
        assert_eq!(clock(Duration::from_secs(1_700_000_000)), "22:13:20Z");
    }
}
