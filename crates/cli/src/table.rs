//! Tables for people, and how wide they may be.

use std::os::fd::AsFd;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fencepost::{FencingToken, HolderStatus};
use serde_json::Value;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::duration::{Readable, whole_seconds};

/// Where there is nothing to say.
pub(crate) const NOTHING: &str = "-";

/// Columns of equal width, two spaces apart, and none after the last.
pub(crate) fn aligned(rows: &[impl AsRef<[String]>]) -> String {
    let widths = widths(rows);
    let line = |row: &[String]| {
        let cells = row.iter().zip(&widths);
        let cells: Vec<_> = cells.map(|(cell, width)| padded(cell, *width)).collect();
        format!("{}\n", cells.join("  ").trim_end())
    };
    rows.iter().map(|row| line(row.as_ref())).collect()
}

/// A table whose first row has the titles. Where it is wider than that, each row becomes a block
/// with a line for each title.
pub(crate) fn fitted(rows: &[impl AsRef<[String]>], width: Option<usize>) -> String {
    let widths = widths(rows);
    let wide = widths.iter().sum::<usize>() + 2 * widths.len().saturating_sub(1);
    match (width, rows) {
        (Some(width), [titles, rows @ ..]) if wide > width => {
            let block = |row: &[String]| {
                let lines = titles.as_ref().iter().zip(row);
                // A column without a title has something for some rows only.
                let lines = lines.filter(|(title, cell)| !title.is_empty() || !cell.is_empty());
                let lines = lines.map(|(title, cell)| [title.clone(), cell.clone()]);
                aligned(&lines.collect::<Vec<_>>())
            };
            let blocks = rows.iter().map(|row| block(row.as_ref()));
            // Why a node says nothing may be a whole sentence.
            wrapped_lines(&blocks.collect::<Vec<_>>().join("\n"), Some(width))
        }
        _ => aligned(rows),
    }
}

fn widths(rows: &[impl AsRef<[String]>]) -> Vec<usize> {
    let columns = rows.iter().map(|row| row.as_ref().len()).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.as_ref().get(column));
        cells.map(|cell| cell.width()).max().unwrap_or(0)
    };
    (0..columns).map(width).collect()
}

/// Not by `{:width$}`, which counts characters: some take two columns.
fn padded(cell: &str, width: usize) -> String {
    let room = width.saturating_sub(cell.width());
    format!("{cell}{}", " ".repeat(room))
}

/// The beginning of the text that takes no more columns than that.
pub(crate) fn fitting(text: &str, columns: usize) -> &str {
    let mut taken = 0;
    let end = text.char_indices().find(|(_, c)| {
        taken += c.width().unwrap_or(0);
        taken > columns
    });
    end.map_or(text, |(at, _)| &text[..at])
}

/// The text in lines of at most so many columns, broken between words; all lines but the first are
/// indented.
pub(crate) fn wrapped(text: &str, width: Option<usize>, first: &str, others: &str) -> String {
    let mut lines = vec![first.to_owned()];
    let mut is_new = true;
    for word in text.split(' ') {
        let last = lines.len() - 1;
        let needed = lines[last].width() + usize::from(!is_new) + word.width();
        if !is_new && width.is_some_and(|width| needed > width) {
            lines.push(format!("{others}{word}"));
            continue;
        }
        if !is_new {
            lines[last].push(' ');
        }
        lines[last].push_str(word);
        is_new = false;
    }
    let lines = lines.iter().map(|line| format!("{}\n", line.trim_end()));
    lines.collect()
}

/// Each line of the text, wrapped. What was aligned stays so: a line goes on below its second column, if it has two.
pub(crate) fn wrapped_lines(text: &str, width: Option<usize>) -> String {
    let Some(width) = width else {
        return format!("{text}\n");
    };
    let line = |line: &str| {
        let words = line.trim_start();
        let lead = line.len() - words.len();
        let column = words.find("  ").map(|gap| {
            let rest = &words[gap..];
            lead + words[..gap].width() + rest.len() - rest.trim_start().len()
        });
        let below = column.filter(|column| *column <= width / 2);
        let indent = " ".repeat(below.unwrap_or(lead + 2));
        wrapped(words, Some(width), &line[..lead], &indent)
    };
    text.lines().map(line).collect()
}

/// How many columns there are on stdout, as far as that matters: a terminal's, or what COLUMNS says.
pub(crate) fn columns() -> Option<usize> {
    let out = std::io::stdout();
    let said = || std::env::var("COLUMNS").ok()?.parse().ok();
    width_of(&out).or_else(said).filter(|width| *width > 0)
}

/// How wide the terminal is, if it is one and tells.
pub(crate) fn width_of(terminal: &impl AsFd) -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(terminal).ok()?;
    (size.ws_col > 0).then_some(size.ws_col.into())
}

/// How long a lock still lasts.
pub(crate) fn left(remaining: Option<Duration>) -> String {
    match remaining {
        Some(time) => Readable(time).to_string(),
        None => "no expiry".into(),
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

/// Since when a lock is held, and for how long by our clock: `14:03:59Z (2m 5s)`. It follows from the
/// holder's token, and so from the holder's clock: say "about" with it.
pub(crate) fn since(since: SystemTime) -> String {
    let (now, since) = (since_1970(), since.duration_since(UNIX_EPOCH));
    let since = since.unwrap_or_default();
    let held = now.saturating_sub(since);
    let when = match held < ONE_DAY {
        true => clock(since),
        false => humantime::format_rfc3339_seconds(UNIX_EPOCH + since).to_string(),
    };
    format!("{when} ({})", whole_seconds(held))
}

/// Since when, as one cell of a table, which has no room for more: a time of day, or a date.
pub(crate) fn since_cell(holder: Option<&HolderStatus>) -> String {
    let Some(at) = holder.and_then(HolderStatus::since) else {
        return NOTHING.into();
    };
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    match since_1970().saturating_sub(since) < ONE_DAY {
        true => clock(since),
        false => humantime::format_rfc3339_seconds(at).to_string()[..DATE.len()].to_owned(),
    }
}

const DATE: &str = "2026-11-16";

/// The same for programs.
pub(crate) fn since_json(at: Option<SystemTime>) -> Value {
    let text = |at| humantime::format_rfc3339_millis(at).to_string();
    at.map_or(Value::Null, |at| text(at).into())
}

/// A time of day alone would be ambiguous from here on.
const ONE_DAY: Duration = Duration::from_secs(86_400);

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
        let rows = [["日本", "x"], ["long", "yy"]].map(|row| row.map(str::to_owned));
        assert_eq!(aligned(&rows), "日本  x\nlong  yy\n");
    }

    #[test]
    fn a_table_that_is_too_wide_becomes_a_block_for_each_row() {
        let rows = [
            ["lock", "holder", ""],
            ["a", "me", ""],
            ["b", "you", "(away)"],
        ];
        let rows = rows.map(|row| row.map(str::to_owned));
        let table = "lock  holder\na     me\nb     you     (away)\n";
        assert_eq!(fitted(&rows, None), table);
        assert_eq!(fitted(&rows, Some(20)), table);
        let blocks = "lock    a\nholder  me\n\nlock    b\nholder  you\n        (away)\n";
        assert_eq!(fitted(&rows, Some(19)), blocks);
        let rows = [["lock", ""], ["b", "(away for long)"]].map(|row| row.map(str::to_owned));
        let blocks = "lock  b\n      (away\n        for\n        long)\n";
        assert_eq!(fitted(&rows, Some(12)), blocks);
    }

    #[test]
    fn text_is_wrapped_between_words() {
        let text = "a word and another";
        assert_eq!(wrapped(text, None, "", ""), "a word and another\n");
        assert_eq!(
            wrapped(text, Some(12), "- ", "  "),
            "- a word and\n  another\n"
        );
        // What is too long stays whole.
        assert_eq!(wrapped(text, Some(3), "", ""), "a\nword\nand\nanother\n");
    }

    #[test]
    fn what_is_aligned_stays_so_when_it_is_wrapped() {
        let text =
            "no quorum: 1 of 3\n  a    agreed\n  b.c  does not vote yet\n  hint: wait for it";
        assert_eq!(wrapped_lines(text, None), format!("{text}\n"));
        assert_eq!(
            wrapped_lines(text, Some(16)),
            "no quorum: 1 of\n  3\n  a    agreed\n  b.c  does not\n       vote yet\n  hint: wait for\n    it\n"
        );
        // A column that begins too far to the right would leave no room.
        assert_eq!(
            wrapped_lines("  b.example  does not vote", Some(16)),
            "  b.example\n    does not\n    vote\n"
        );
    }

    #[test]
    fn since_when_is_a_time_of_day_or_a_date() {
        let now = SystemTime::now();
        let minutes = since(now - Duration::from_secs(125));
        assert!(
            minutes.ends_with("Z (2m 5s)") && minutes.len() == "15:53:57Z (2m 5s)".len(),
            "{minutes}"
        );
        let days = since(UNIX_EPOCH + Duration::from_secs(1_700_000_000));
        assert!(days.starts_with("2023-11-14T22:13:20Z ("), "{days}");
        // A clock that is behind the holder's.
        assert!(since(now + Duration::from_secs(9)).ends_with("(0s)"));
    }

    #[test]
    fn the_clock_shows_the_time_of_day() {
        assert_eq!(clock(Duration::ZERO), "00:00:00Z");
        assert_eq!(clock(Duration::from_secs(86_399)), "23:59:59Z");
        assert_eq!(clock(Duration::from_secs(1_700_000_000)), "22:13:20Z");
    }
}
