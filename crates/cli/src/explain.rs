//! `fencepost explain CODE`: what an exit code or an error means, from the pages of the book.
//!
//! The pages are part of the program, so that they can be read where nothing else can be reached.

use std::process::ExitCode;

use crate::args::ExplainJob;
use crate::exit::{Failure, SIGNAL_BASE};
use crate::table::{aligned, columns, wrapped};
use crate::voice;

/// A page: its word, the other words for the same, its exit code if it has one, and its text.
struct Page {
    word: &'static str,
    also: &'static [&'static str],
    exit: Option<u8>,
    text: &'static str,
}

macro_rules! page {
    ($word:literal, $exit:expr, $also:expr) => {
        Page {
            word: $word,
            also: $also,
            exit: $exit,
            text: include_str!(concat!("../explain/", $word, ".md")),
        }
    };
}

/// In the order of their exit codes; the first one of a code is what the code means in general.
const PAGES: [Page; 18] = [
    page!("nothing", Some(1), &[]),
    page!(
        "usage",
        Some(64),
        &[
            "invalid-name",
            "invalid-ttl",
            "invalid-url",
            "invalid-option"
        ]
    ),
    page!("no-quorum", Some(69), &["unavailable"]),
    page!("unreachable", Some(69), &[]),
    page!("quarantined", Some(69), &["quarantine"]),
    page!("too-late", Some(69), &[]),
    page!("store", Some(69), &[]),
    page!(
        "internal",
        Some(70),
        &["no-runtime", "no-thread", "no-randomness"]
    ),
    page!("cannot-create", Some(73), &[]),
    page!("cannot-print", Some(74), &[]),
    page!("held", Some(75), &["busy"]),
    page!("timeout", Some(75), &["timed-out"]),
    page!(
        "lost",
        Some(79),
        &[
            "expired",
            "stolen",
            "max-hold",
            "suspended",
            "client-gone",
            "unknown"
        ]
    ),
    page!("cannot-execute", Some(126), &[]),
    page!("not-found", Some(127), &[]),
    page!("signal", None, &[]),
    page!("not-open", None, &[]),
    page!("no-place", None, &[]),
];

pub(crate) fn run(job: &ExplainJob) -> Result<ExitCode, Failure> {
    let Some(code) = &job.code else {
        return Ok(voice::print(&index()));
    };
    let Some(page) = find(code) else {
        return Err(Failure::usage(format!(
            "no page for {code:?}; `fencepost explain` lists all exit codes and errors"
        )));
    };
    let mut text = readable(page.text, columns());
    let others = PAGES
        .iter()
        .filter(|other| page.exit.is_some() && other.exit == page.exit && other.word != page.word);
    let others: Vec<_> = others.map(|other| other.word).collect();
    if !others.is_empty() {
        let exit = page.exit.unwrap_or_default();
        let more = format!("Other pages of exit code {exit}: {}.", others.join(", "));
        text = format!("{text}\n{}", wrapped(&more, columns(), "", ""));
    }
    Ok(voice::print(&text))
}

/// All pages, by exit code.
fn index() -> String {
    let rows = PAGES.iter().map(|page| {
        let exit = match (page.exit, page.word) {
            (Some(exit), _) => exit.to_string(),
            (None, "signal") => format!("{SIGNAL_BASE}+n"),
            (None, _) => String::new(),
        };
        [page.word.to_owned(), exit, title(page.text).to_owned()]
    });
    let titles = ["error", "exit code", "what it means"].map(str::to_owned);
    let rows: Vec<_> = std::iter::once(titles).chain(rows).collect();
    aligned(&rows)
}

/// What stands behind the word in a page's first line.
fn title(text: &str) -> &str {
    let first = text.lines().next().unwrap_or_default();
    first.split_once(": ").map_or(first, |(_, title)| title)
}

/// By exit code, or by a word, as it is written in prose, in JSON or in a log.
fn find(code: &str) -> Option<&'static Page> {
    if let Ok(exit) = code.parse::<u8>() {
        let word = match exit {
            129.. => "signal",
            _ => PAGES.iter().find(|page| page.exit == Some(exit))?.word,
        };
        return PAGES.iter().find(|page| page.word == word);
    }
    let word = code.to_ascii_lowercase().replace(['_', ' '], "-");
    let mut pages = PAGES.iter();
    pages.find(|page| page.word == word || page.also.contains(&word.as_str()))
}

/// The page without the marks of Markdown that only disturb a reader at a terminal.
fn readable(text: &str, width: Option<usize>) -> String {
    let mut out = String::new();
    let mut is_code = false;
    let (mut paragraph, mut table) = (String::new(), Vec::new());
    // Lines of a paragraph or an item are joined, and wrapped where the terminal ends.
    let flush = |paragraph: &mut String, out: &mut String| {
        if !paragraph.is_empty() {
            let indent = if paragraph.starts_with("- ") {
                "  "
            } else {
                ""
            };
            out.push_str(&wrapped(paragraph, width, "", indent));
            paragraph.clear();
        }
    };
    for line in text.lines().chain([""]) {
        if line.starts_with("```") {
            flush(&mut paragraph, &mut out);
            is_code = !is_code;
        } else if is_code {
            out.push_str(&format!("    {line}\n"));
        } else if let Some(row) = line.strip_prefix("| ") {
            flush(&mut paragraph, &mut out);
            let row = row.trim_end_matches('|').replace("\\|", "\0");
            let cells = row
                .split(" | ")
                .map(|cell| cell.replace('\0', "|").trim().to_owned());
            let cells: Vec<_> = cells.collect();
            if !cells.iter().all(|cell| cell.chars().all(|c| c == '-')) {
                table.push(cells);
            }
        } else {
            if !table.is_empty() {
                out.push_str(&crate::table::fitted(&table, width));
                table.clear();
            }
            let is_break = line.is_empty() || line.starts_with("- ") || line.starts_with("# ");
            if is_break {
                flush(&mut paragraph, &mut out);
            }
            match line.strip_prefix("# ") {
                Some(title) => out.push_str(&format!("{title}\n")),
                None if line.is_empty() => out.push('\n'),
                None => {
                    if !paragraph.is_empty() {
                        paragraph.push(' ');
                    }
                    paragraph.push_str(line.trim_start());
                }
            }
        }
    }
    format!("{}\n", out.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::Exit;

    #[test]
    fn every_exit_code_has_a_page() {
        for exit in [
            Exit::Nothing,
            Exit::Usage,
            Exit::Unavailable,
            Exit::Internal,
            Exit::CannotCreate,
            Exit::CannotPrint,
            Exit::Busy(Exit::BUSY),
            Exit::Lost,
            Exit::CannotExecute,
            Exit::NotFound,
            Exit::Signal(15),
        ] {
            let code = exit.code().to_string();
            let page = find(&code).unwrap_or_else(|| panic!("{code}"));
            assert!(
                page.text.contains(&format!("Exit code {code}")) || page.word == "signal",
                "{code}"
            );
        }
    }

    #[test]
    fn words_are_found_as_they_are_written_anywhere() {
        for (said, word) in [
            ("no_quorum", "no-quorum"),
            ("No Quorum", "no-quorum"),
            ("max_hold", "lost"),
            ("137", "signal"),
            ("69", "no-quorum"),
        ] {
            assert_eq!(find(said).map(|page| page.word), Some(word), "{said}");
        }
        for unknown in ["", "2", "-1", "300", "nonsense"] {
            assert!(find(unknown).is_none(), "{unknown}");
        }
    }

    #[test]
    fn every_page_begins_with_its_word() {
        for page in &PAGES {
            let first = format!("# {}: ", page.word);
            assert!(page.text.starts_with(&first), "{}", page.word);
        }
    }

    #[test]
    fn marks_are_left_out_and_paragraphs_are_wrapped() {
        let page = "# a: b\n\nOne two\nthree.\n\n- item\n  goes on\n\n| x | y |\n| --- | --- |\n| 1 \\| 2 | 3 |\n\n```text\ncode\n```\n";
        assert_eq!(
            readable(page, Some(10)),
            "a: b\n\nOne two\nthree.\n\n- item\n  goes on\n\nx      y\n1 | 2  3\n\n    code\n"
        );
    }
}
