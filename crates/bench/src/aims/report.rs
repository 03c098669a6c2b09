//! Figures beside their aims: as a table in the terminal, as Markdown, and as JSON.

use std::fmt::Write as _;

use fencepost_interop::table::Table;
use serde_json::{Value, json};

use crate::measure::median;

/// What a figure should be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Aim {
    AtMost(f64),
    AtLeast(f64),
}

impl Aim {
    fn is_met(self, figure: f64) -> bool {
        match self {
            Self::AtMost(most) => figure <= most,
            Self::AtLeast(least) => figure >= least,
        }
    }

    fn text(self) -> String {
        match self {
            Self::AtMost(most) => format!("≤ {most}"),
            Self::AtLeast(least) => format!("≥ {least}"),
        }
    }
}

/// One figure of one run.
#[derive(Clone, Debug)]
pub(crate) struct Figure {
    pub(crate) what: String,
    pub(crate) aim: Aim,
    /// Or why there is none.
    pub(crate) value: Result<f64, String>,
    /// What it was made of.
    pub(crate) detail: String,
}

/// The same figure of every run.
struct Row<'a> {
    first: &'a Figure,
    values: Vec<f64>,
    /// Of the run in the middle.
    detail: &'a str,
}

impl<'a> Row<'a> {
    fn of(runs: &'a [Vec<Figure>], at: usize) -> Self {
        let figures = || runs.iter().map(|run| &run[at]);
        let values: Vec<_> = figures().filter_map(|one| one.value.clone().ok()).collect();
        let middle = (!values.is_empty()).then(|| median(&values));
        let is_middle = |figure: &&Figure| figure.value.as_ref().ok() == middle.as_ref();
        let first = &runs[0][at];
        Self {
            first,
            values,
            detail: &figures().find(is_middle).unwrap_or(first).detail,
        }
    }

    fn cells(&self) -> [String; 5] {
        let aim = self.first.aim;
        if let (true, Err(why)) = (self.values.is_empty(), &self.first.value) {
            return [
                self.first.what.clone(),
                "skipped".to_owned(),
                aim.text(),
                String::new(),
                why.clone(),
            ];
        }
        let middle = median(&self.values);
        let least = self.values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = self
            .values
            .iter()
            .copied()
            .fold(f64::NEG_INFINITY, f64::max);
        let measured = match self.values.len() {
            1 => number(middle),
            _ => format!("{} ({} to {})", number(middle), number(least), number(most)),
        };
        let met = if aim.is_met(middle) { "yes" } else { "no" };
        [
            self.first.what.clone(),
            measured,
            aim.text(),
            met.to_owned(),
            self.detail.to_owned(),
        ]
    }

    fn json(&self) -> Value {
        let (least, most) = match self.first.aim {
            Aim::AtMost(most) => (None, Some(most)),
            Aim::AtLeast(least) => (Some(least), None),
        };
        json!({
            "what": self.first.what,
            "runs": self.values,
            "median": (!self.values.is_empty()).then(|| median(&self.values)),
            "at_least": least,
            "at_most": most,
            "skipped": self.first.value.as_ref().err(),
            "detail": self.detail,
        })
    }
}

fn number(figure: f64) -> String {
    match figure.abs() {
        size if size >= 100.0 => format!("{figure:.0}"),
        size if size >= 10.0 => format!("{figure:.1}"),
        _ => format!("{figure:.2}"),
    }
}

fn rows(runs: &[Vec<Figure>]) -> impl Iterator<Item = Row<'_>> {
    let figures = runs.first().map_or(0, Vec::len);
    (0..figures).map(|at| Row::of(runs, at))
}

/// One figure of one run, on one line.
pub(crate) fn line(figure: &Figure) -> String {
    let run = [vec![figure.clone()]];
    let [what, measured, aim, met, detail] = Row::of(&run, 0).cells();
    let met = if met == "no" { ", not met" } else { "" };
    format!("{what}: {measured} (aim {aim}{met}); {detail}")
}

/// Aligned, and Markdown.
pub(crate) fn table(runs: &[Vec<Figure>]) -> String {
    let mut table = Table::of(&["", "measured", "aim", "met", "made of"]);
    for row in rows(runs) {
        table.push(row.cells().to_vec());
    }
    table.text()
}

/// The Markdown file.
pub(crate) fn markdown(runs: &[Vec<Figure>], command: &str, versions: &[String]) -> String {
    let mut text = String::from("# fencepost beside its aims\n\n");
    // Writing to a string does not fail.
    let _ = writeln!(
        text,
        "Made by `{command}`: the median of {} (and the range). Figures of different runs do not compare; \
         ratios are made of contenders that took turns in one run.\n\n\
         The figures of fencepost and rslock differ from those of `interop/bench.md`: here both run in \
         the benchmark's process on one runtime; there each is a process that is asked over pipes. Compare within a \
         table only.\n",
        match runs.len() {
            1 => "one run".to_owned(),
            runs => format!("{runs} runs"),
        }
    );
    text.push_str(&table(runs));
    text.push('\n');
    for line in versions {
        let _ = writeln!(text, "- {line}");
    }
    text
}

/// The JSON file.
pub(crate) fn json(runs: &[Vec<Figure>], command: &str, versions: &[String]) -> String {
    let rows: Vec<_> = rows(runs).map(|row| row.json()).collect();
    let all = json!({ "command": command, "versions": versions, "rows": rows });
    format!("{all:#}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(value: Result<f64, String>, detail: &str) -> Vec<Figure> {
        vec![Figure {
            what: "cost".to_owned(),
            aim: Aim::AtMost(1.05),
            value,
            detail: detail.to_owned(),
        }]
    }

    #[test]
    fn a_row_shows_the_run_in_the_middle() {
        let runs = [
            run(Ok(1.1), "high"),
            run(Ok(1.0), "middle"),
            run(Ok(0.9), "low"),
        ];
        let [_, measured, aim, met, detail] = Row::of(&runs, 0).cells();
        assert_eq!(measured, "1.00 (0.90 to 1.10)");
        assert_eq!([&*aim, &met, &detail], ["≤ 1.05", "yes", "middle"]);
        assert!(!Aim::AtLeast(1.5).is_met(1.4));
    }

    #[test]
    fn the_page_says_why_the_peers_page_has_other_figures() {
        let page = markdown(
            &[run(Ok(1.0), "")],
            "command",
            &["rslock: 1.2.3".to_owned()],
        );
        assert!(page.contains("`interop/bench.md`"), "{page}");
        assert!(page.ends_with("- rslock: 1.2.3\n"), "{page}");
    }

    #[test]
    fn what_could_not_be_measured_says_why() {
        let runs = [run(Err("Go is not installed".to_owned()), "")];
        let [_, measured, _, met, detail] = Row::of(&runs, 0).cells();
        assert_eq!(
            [&*measured, &met, &detail],
            ["skipped", "", "Go is not installed"]
        );
    }
}
