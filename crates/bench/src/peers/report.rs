//! What the figures come to: the tables, who is ahead of fencepost, and what the README quotes.

use fencepost_interop::table::Table;

use super::{ALONE, Figures, Slice, TOGETHER};

/// How much better another client has to be to count as ahead: less is noise.
const AHEAD: f64 = 1.05;
/// The README quotes what is between these lines, and nothing else.
const BEGIN: &str = "<!-- peers: written by `fencepost-bench -- peers`; do not edit -->\n";
const END: &str = "<!-- /peers -->\n";

/// One measure of all contenders; fencepost comes first.
pub(super) struct Measure {
    pub(super) what: String,
    pub(super) more_is_better: bool,
    pub(super) figures: Vec<(String, Option<f64>)>,
}

impl Measure {
    fn of(
        what: String,
        more_is_better: bool,
        all: &[Figures],
        figure: impl Fn(&Figures) -> Option<f64>,
    ) -> Self {
        Self {
            what,
            more_is_better,
            figures: all
                .iter()
                .map(|one| (one.label.clone(), figure(one)))
                .collect(),
        }
    }

    /// Who is ahead of fencepost, and how far; `None` if nobody is.
    pub(super) fn ahead(&self) -> Option<String> {
        let ours = self.figures.first()?.1?;
        let better = self.figures.iter().filter_map(|(label, figure)| {
            let theirs = (*figure)?;
            let by = match self.more_is_better {
                true => theirs / ours,
                false => ours / theirs,
            };
            // A fair queue of ours is not another client.
            let is_other = !label.starts_with("fencepost");
            (is_other && by > AHEAD).then(|| format!("{label} by {by:.2} x"))
        });
        let better: Vec<_> = better.collect();
        (!better.is_empty()).then(|| format!("{}: {}", self.what, better.join(", ")))
    }

    /// The same measure for a contender, and as a multiple of fencepost's.
    fn cells(&self, at: usize, decimals: usize) -> [String; 2] {
        let figure = self.figures[at].1;
        let ours = self.figures[0].1;
        let ratio = figure.zip(ours).map(|(figure, ours)| figure / ours);
        [cell(figure, decimals), cell(ratio, 2)]
    }
}

/// What the README quotes of the runs on one node and on five.
pub(super) fn quoted(nodes: usize, all: &[Figures]) -> Vec<Measure> {
    let mut quoted = vec![Measure::of(
        format!("cycles/s, n = {nodes}"),
        true,
        all,
        |one| median(&one.alone[0], |slice| slice.rate),
    )];
    if nodes > 1 {
        let last = TOGETHER.len() - 1;
        let workers = TOGETHER[last];
        quoted.push(Measure::of(
            format!("cycles/s, {workers} for one lock, n = {nodes}"),
            true,
            all,
            move |one| median(&one.together[last], |slice| slice.rate),
        ));
        quoted.push(Measure::of(
            format!("their p99 wait, ms, n = {nodes}"),
            false,
            all,
            move |one| median(&one.together[last], |slice| slice.p99 / 1000.0),
        ));
    }
    quoted
}

/// Every measure of the tables for that many nodes.
pub(super) fn measures(nodes: usize, all: &[Figures]) -> Vec<Measure> {
    type Kind = (&'static str, bool, fn(&Slice) -> f64);
    let times: [Kind; 2] = [
        ("p50", false, |slice| slice.p50),
        ("p99", false, |slice| slice.p99),
    ];
    let rate: Kind = ("cycles/s", true, |slice| slice.rate);
    let longest: Kind = ("longest wait", false, |slice| slice.longest);
    let mut measures = Vec::new();
    for (at, workers) in ALONE.into_iter().enumerate() {
        // Latencies are shown for one worker only.
        let kinds = times.into_iter().filter(|_| at == 0).chain([rate]);
        for (kind, more, figure) in kinds {
            let what = format!("n = {nodes}, alone, {workers} at once, {kind}");
            measures.push(Measure::of(what, more, all, move |one| {
                median(&one.alone[at], figure)
            }));
        }
    }
    for (at, workers) in TOGETHER.into_iter().enumerate() {
        for (kind, more, figure) in times.into_iter().chain([rate]) {
            let what = format!("n = {nodes}, {workers} for one lock, {kind}");
            measures.push(Measure::of(what, more, all, move |one| {
                median(&one.together[at], figure)
            }));
        }
        let (kind, more, figure) = longest;
        let what = format!("n = {nodes}, {workers} for one lock, {kind}");
        measures.push(Measure::of(what, more, all, move |one| {
            most(&one.together[at], figure)
        }));
    }
    measures
}

/// The median of one figure over the rounds.
pub(super) fn median(slices: &[Slice], figure: impl Fn(&Slice) -> f64) -> Option<f64> {
    let mut figures: Vec<_> = slices.iter().map(figure).collect();
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied()
}

fn most(slices: &[Slice], figure: impl Fn(&Slice) -> f64) -> Option<f64> {
    slices.iter().map(figure).reduce(f64::max)
}

pub(super) fn cell(figure: Option<f64>, decimals: usize) -> String {
    figure.map_or("-".to_owned(), |figure| format!("{figure:.decimals$}"))
}

pub(super) fn alone(all: &[Figures]) -> String {
    let mut table = Table::of(&[
        "",
        "p50 us",
        "x ours",
        "p99 us",
        "cycles/s, 1",
        "x ours",
        "16",
        "64",
    ]);
    let one = |one: &Figures, figure: fn(&Slice) -> f64| median(&one.alone[0], figure);
    let ours = |figure| all.first().and_then(|ours| one(ours, figure));
    for figures in all {
        let ratio = |figure| {
            cell(
                one(figures, figure).zip(ours(figure)).map(|(a, b)| a / b),
                2,
            )
        };
        let mut row = vec![
            figures.label.clone(),
            cell(one(figures, |slice| slice.p50), 0),
            ratio(|slice| slice.p50),
            cell(one(figures, |slice| slice.p99), 0),
            cell(one(figures, |slice| slice.rate), 0),
            ratio(|slice| slice.rate),
        ];
        let more = figures.alone[1..].iter();
        row.extend(more.map(|seen| cell(median(seen, |slice| slice.rate), 0)));
        row.extend(figures.fault.clone());
        table.push(row);
    }
    table.text()
}

pub(super) fn together(all: &[Figures]) -> String {
    let mut table = Table::of(&[
        "",
        "4: cycles/s",
        "p50",
        "p99",
        "longest",
        "32: cycles/s",
        "p50",
        "p99",
        "longest",
        "memory",
    ]);
    for figures in all {
        let mut row = vec![figures.label.clone()];
        for seen in &figures.together {
            row.push(cell(median(seen, |slice| slice.rate), 0));
            row.push(cell(median(seen, |slice| slice.p50 / 1000.0), 1));
            row.push(cell(median(seen, |slice| slice.p99 / 1000.0), 1));
            row.push(cell(most(seen, |slice| slice.longest / 1000.0), 0));
        }
        row.push(format!("{} MB", figures.resident >> 20));
        row.extend(figures.fault.clone());
        table.push(row);
    }
    table.text()
}

/// The table that the README quotes: a row for everybody who was measured on one node.
pub(super) fn short_table(quoted: &[Measure]) -> String {
    let Some(first) = quoted.first() else {
        return String::new();
    };
    let heads = quoted
        .iter()
        .flat_map(|measure| [measure.what.as_str(), "x ours"]);
    let mut table = Table::of(&std::iter::once("").chain(heads).collect::<Vec<_>>());
    for (label, _) in &first.figures {
        let mut row = vec![label.clone()];
        for measure in quoted {
            let at = measure.figures.iter().position(|(other, _)| other == label);
            // Not everybody knows a quorum.
            let cells = at.map_or(["-".to_owned(), "-".to_owned()], |at| measure.cells(at, 0));
            row.extend(cells);
        }
        table.push(row);
    }
    table.text()
}

/// What the README says about them, in its place there.
pub(super) fn block(quoted: &[Measure], machine: &str) -> String {
    let table = short_table(quoted);
    let ahead: Vec<_> = quoted.iter().filter_map(Measure::ahead).collect();
    let ahead = match ahead.is_empty() {
        true => "No client is ahead of fencepost in these columns.".to_owned(),
        false => format!("Ahead of fencepost: {}.", ahead.join("; ")),
    };
    format!(
        "{table}\nOne run of `cargo run --release -p fencepost-bench -- peers` ({machine}). In the first columns one \
         worker acquires and releases a lock of its own. In the last ones 32 workers want one lock and hold it for \
         1 ms, so 1000 cycles/s is the limit. {ahead} [All figures, with versions](interop/bench.md).\n\n\
         ![fencepost beside other clients](docs/figures/peers.svg)\n"
    )
}

/// The page with this block in its place; `None` if it has no place for one.
pub(super) fn with_block(page: &str, block: &str) -> Option<String> {
    let (before, rest) = page.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n{block}\n{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(label: &str, rate: f64, p99: f64) -> Figures {
        let slice = Slice {
            rate,
            p50: p99 / 2.0,
            p99,
            longest: 2.0 * p99,
        };
        Figures {
            name: "x",
            label: label.to_owned(),
            alone: vec![vec![slice]; ALONE.len()],
            together: vec![vec![slice]; TOGETHER.len()],
            resident: 0,
            fault: None,
        }
    }

    #[test]
    fn whoever_is_ahead_is_named_with_the_measure_and_how_far() {
        let all = [
            figures("fencepost", 100.0, 1000.0),
            figures("fencepost, fair", 900.0, 1.0),
            figures("quick 1.2", 150.0, 900.0),
            figures("as good 2.0", 104.0, 980.0),
        ];
        let ahead: Vec<_> = measures(5, &all)
            .iter()
            .filter_map(Measure::ahead)
            .collect();
        let alone = "n = 5, alone, 1 at once, cycles/s: quick 1.2 by 1.50 x";
        let wait = "n = 5, 32 for one lock, longest wait: quick 1.2 by 1.11 x";
        assert!(ahead.iter().any(|line| line == alone), "{ahead:?}");
        assert!(ahead.iter().any(|line| line == wait), "{ahead:?}");
        assert!(!ahead.iter().any(|line| line.contains("fair")), "{ahead:?}");
        assert!(!ahead.iter().any(|line| line.contains("good")), "{ahead:?}");
    }

    #[test]
    fn the_block_replaces_the_one_before_and_leaves_the_rest_alone() {
        let page = format!("a\n{BEGIN}stale\n{END}z\n");
        let quoted = quoted(5, &[figures("fencepost", 1.0, 1.0), figures("b", 2.0, 1.0)]);
        let block = block(&quoted, "2 cores");
        let page = with_block(&page, &block).unwrap();
        assert!(page.starts_with("a\n") && page.ends_with("z\n") && !page.contains("stale"));
        assert!(page.contains("Ahead of fencepost: cycles/s, n = 5: b by 2.00 x; "));
        assert_eq!(with_block(&page, &block).as_ref(), Some(&page));
        assert_eq!(with_block("no place", &block), None);
    }

    /// A figure that somebody typed or that is older than the table would stay there for ever.
    #[test]
    fn the_readme_quotes_the_table_of_the_last_run() {
        let root = crate::root();
        let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
        let (_, quoted) = readme.split_once(BEGIN).expect("a place for the figures");
        let (quoted, _) = quoted.split_once(END).expect("its end");
        let report = std::fs::read_to_string(root.join(super::super::REPORT)).unwrap_or_default();
        let report: Vec<_> = report.lines().collect();
        let rows: Vec<_> = quoted
            .lines()
            .filter(|line| line.starts_with('|'))
            .collect();
        assert_eq!(rows.is_empty(), report.is_empty(), "run it again");
        for row in rows {
            assert!(report.contains(&row), "not in the report: {row}");
        }
    }
}
