//! The verdicts, as a table for people and as markdown for the README.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::row::Promise;
use crate::run::Verdict;

const HEADS: [&str; 9] = [
    "row",
    "n",
    "faults",
    "seconds",
    "acquired",
    "losses told",
    "old tokens refused",
    "not promised",
    "violations",
];

fn cells(verdict: &Verdict) -> [String; 9] {
    let violations = match verdict.skipped {
        Some(_) => "skipped".to_owned(),
        None => verdict.violations.len().to_string(),
    };
    let not_promised = match verdict.row.promise {
        Promise::Everything => "-".to_owned(),
        Promise::AllButExclusion => verdict.not_promised.to_string(),
    };
    [
        verdict.row.name.to_owned(),
        verdict.nodes.to_string(),
        verdict.faults.to_string(),
        format!("{:.1}", verdict.took.as_secs_f64()),
        verdict.acquisitions.to_string(),
        verdict.losses.to_string(),
        verdict.refusals.to_string(),
        not_promised,
        violations,
    ]
}

/// The head of the table, in the widths of its lines.
#[must_use]
pub fn head() -> String {
    line(&HEADS.map(str::to_owned))
}

/// One line of the table.
#[must_use]
pub fn row(verdict: &Verdict) -> String {
    line(&cells(verdict))
}

fn line(cells: &[String; 9]) -> String {
    let mut line = format!("{:<18}", cells[0]);
    for (cell, head) in cells.iter().zip(HEADS).skip(1) {
        // Writing to a string does not fail.
        let _ = write!(line, "  {cell:>width$}", width = head.len().max(5));
    }
    line
}

/// Where the rows ran.
#[must_use]
pub fn networks(verdicts: &[Verdict]) -> BTreeSet<&'static str> {
    let run = verdicts.iter().filter(|verdict| verdict.skipped.is_none());
    run.map(|verdict| verdict.network).collect()
}

/// All of it, as markdown.
#[must_use]
pub fn markdown(verdicts: &[Verdict]) -> String {
    let mut text = String::from("# Faults on real servers\n\n");
    let total = |number: fn(&Verdict) -> usize| verdicts.iter().map(number).sum::<usize>();
    let _ = writeln!(
        text,
        "{} runs, {} faults, {} acquisitions, {} losses told, {} old tokens refused by the \
         resource: **{} violations**.\n",
        verdicts.iter().filter(|v| v.skipped.is_none()).count(),
        total(|v| v.faults),
        total(|v| v.acquisitions),
        total(|v| v.losses),
        total(|v| v.refusals),
        total(|v| v.violations.len()),
    );
    for network in networks(verdicts) {
        let _ = writeln!(
            text,
            "Servers and clients are real processes, in {network}.\n"
        );
    }
    let _ = writeln!(text, "| {} | what is done |", HEADS.join(" | "));
    let _ = writeln!(text, "|{}", " --- |".repeat(HEADS.len() + 1));
    for verdict in verdicts {
        let cells = cells(verdict).join(" | ");
        let _ = writeln!(text, "| {cells} | {} |", verdict.row.what);
    }
    text.push_str(
        "\n*Not promised*: how often two leases were valid at a time, or a holder was told late, \
         under a fault for which the absence of that is not promised. GUARANTEES.md says why. The \
         tokens stayed unique and in order all the same, and the resource lost nothing.\n",
    );
    for verdict in verdicts {
        if let Some(why) = verdict.skipped {
            let _ = writeln!(text, "\n`{}` was skipped: {why}.", verdict.row.name);
        }
    }
    text
}
