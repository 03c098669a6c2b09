//! What the figures come to: the tables, who is ahead of fencepost, and what the README quotes.

use fencepost_interop::table::Table;

use super::{ALONE, Figures, Slice, TOGETHER};

/// How much better another client has to be to count as ahead: less is noise.
const AHEAD: f64 = 1.05;
/// What comes before the list of those who are.
const AHEAD_HEAD: &str = "\
Ahead of fencepost by 5 % or more, in any measure of that run. Where many want one lock, a short p50 with a long p99 is \
that of a client which polls: most of its acquisitions find the lock free while the others sleep.";
/// The README quotes what is between these lines, and nothing else.
const BEGIN: &str = "<!-- peers: written by `fencepost-bench -- peers`; do not edit -->\n";
const END: &str = "<!-- /peers -->\n";

/// One measure of all contenders; fencepost comes first.
pub(super) struct Measure {
    pub(super) what: String,
    pub(super) more_is_better: bool,
    pub(super) figures: Vec<Figure>,
}

/// What one contender came to.
pub(super) struct Figure {
    /// The same on any number of nodes.
    pub(super) name: &'static str,
    /// With its version, and as it is called on that many nodes.
    pub(super) label: String,
    pub(super) value: Option<f64>,
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
                .map(|one| Figure {
                    name: one.name,
                    label: one.label.clone(),
                    value: figure(one),
                })
                .collect(),
        }
    }

    /// Who is ahead of fencepost, and how far.
    fn ahead(&self) -> Vec<(&str, f64)> {
        let Some(ours) = self.figures.first().and_then(|one| one.value) else {
            return Vec::new();
        };
        let better = self.figures.iter().filter_map(|one| {
            let theirs = one.value?;
            let by = match self.more_is_better {
                true => theirs / ours,
                false => ours / theirs,
            };
            // A fair queue of ours is not another client.
            let is_other = !one.label.starts_with("fencepost");
            (is_other && by > AHEAD).then_some((one.label.as_str(), by))
        });
        better.collect()
    }

    /// All who are, on a line; `None` if nobody is.
    fn all_ahead(&self) -> Option<String> {
        let better = self.ahead();
        let better = better
            .iter()
            .map(|(label, by)| format!("{label} by {by:.2} x"));
        let better: Vec<_> = better.collect();
        (!better.is_empty()).then(|| format!("{}: {}", self.what, better.join(", ")))
    }

    /// The first of them, and how many there are behind; `None` if nobody is ahead.
    fn most_ahead(&self) -> Option<String> {
        let better = self.ahead();
        let (label, by) = better
            .iter()
            .max_by(|one, other| one.1.total_cmp(&other.1))?;
        let others = match better.len() - 1 {
            0 => String::new(),
            others => format!(", and {others} more"),
        };
        Some(format!("{}: {label} by {by:.2} x{others}", self.what))
    }

    /// The same measure for a contender, and as a multiple of fencepost's.
    fn cells(&self, at: usize, decimals: usize) -> [String; 2] {
        let figure = self.figures[at].value;
        let ours = self.figures[0].value;
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
        for (kind, more, figure) in times.into_iter().chain([rate]) {
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
    // Nobody runs in no memory: it was not measured.
    let what = format!("n = {nodes}, memory after that");
    measures.push(Measure::of(what, false, all, |one| {
        (one.resident > 0).then_some(one.resident as f64)
    }));
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
    let mut heads = vec![String::new()];
    for workers in ALONE {
        let of = |head: &str| format!("{workers}: {head}");
        heads.extend([of("p50 us"), "x ours".to_owned()]);
        heads.extend([of("p99 us"), of("cycles/s"), "x ours".to_owned()]);
    }
    let mut table = Table::of(&heads.iter().map(String::as_str).collect::<Vec<_>>());
    for figures in all {
        let mut row = vec![figures.label.clone()];
        for (at, seen) in figures.alone.iter().enumerate() {
            let ratio = |figure: fn(&Slice) -> f64| {
                let ours = all.first().and_then(|ours| median(&ours.alone[at], figure));
                let ratio = median(seen, figure).zip(ours).map(|(a, b)| a / b);
                cell(ratio, 2)
            };
            row.push(cell(median(seen, |slice| slice.p50), 0));
            row.push(ratio(|slice| slice.p50));
            row.push(cell(median(seen, |slice| slice.p99), 0));
            row.push(cell(median(seen, |slice| slice.rate), 0));
            row.push(ratio(|slice| slice.rate));
        }
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
    for Figure { name, label, .. } in &first.figures {
        let of = |measure: &'_ Measure| measure.figures.iter().position(|one| one.name == *name);
        // Redisson has a lock of its own for several nodes.
        let mut labels = vec![label.as_str()];
        for measure in quoted {
            let other = of(measure).map(|at| measure.figures[at].label.as_str());
            if let Some(other) = other.filter(|other| !labels.contains(other)) {
                labels.push(other);
            }
        }
        let mut row = vec![labels.join(" / ")];
        for measure in quoted {
            // Not everybody knows a quorum.
            let cells =
                of(measure).map_or(["-".to_owned(), "-".to_owned()], |at| measure.cells(at, 0));
            row.extend(cells);
        }
        table.push(row);
    }
    table.text()
}

/// Where others are ahead, and who.
pub(super) fn who_is_ahead(measures: &[Measure]) -> String {
    list(measures.iter().filter_map(Measure::all_ahead))
}

fn list(lines: impl Iterator<Item = String>) -> String {
    let lines: String = lines.map(|line| format!("- {line}\n")).collect();
    match lines.is_empty() {
        true => "- nobody\n".to_owned(),
        false => lines,
    }
}

/// What the README says about them, in its place there.
///
/// Whoever is ahead is named in every measure, also in those that the table does not have: what is shown of that must not
/// be chosen by us. For the same reason whoever was not measured is named.
pub(super) fn block(
    quoted: &[Measure],
    measures: &[Measure],
    made: &str,
    skipped: &[&str],
) -> String {
    let table = short_table(quoted);
    let ahead = list(measures.iter().filter_map(Measure::most_ahead));
    let skipped = match skipped {
        [] => String::new(),
        names => format!(
            "Not measured, because its tools or dependencies were missing: {}.\n\n",
            names.join(", ")
        ),
    };
    format!(
        "{table}\nOne run of `cargo run --release -p fencepost-bench -- peers` ({made}). In the first columns one \
         worker acquires and releases a lock of its own. In the last ones 32 workers want one lock and hold it for \
         1 ms, so 1000 cycles/s is the limit. [All figures, with versions](interop/bench.md).\n\n\
         {skipped}{AHEAD_HEAD}\n\n{ahead}\n\
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

    fn figures(label: &'static str, rate: f64, p99: f64) -> Figures {
        let slice = Slice {
            rate,
            p50: p99 / 2.0,
            p99,
            longest: 2.0 * p99,
        };
        Figures {
            name: label,
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
            .filter_map(Measure::all_ahead)
            .collect();
        let alone = "n = 5, alone, 1 at once, cycles/s: quick 1.2 by 1.50 x";
        let wait = "n = 5, 32 for one lock, longest wait: quick 1.2 by 1.11 x";
        for workers in ALONE {
            for (kind, by) in [("p50", 1.11), ("p99", 1.11), ("cycles/s", 1.5)] {
                let line =
                    format!("n = 5, alone, {workers} at once, {kind}: quick 1.2 by {by:.2} x");
                assert!(ahead.contains(&line), "{line}: {ahead:?}");
            }
        }
        assert!(ahead.iter().any(|line| line == alone), "{ahead:?}");
        assert!(ahead.iter().any(|line| line == wait), "{ahead:?}");
        assert!(!ahead.iter().any(|line| line.contains("fair")), "{ahead:?}");
        assert!(!ahead.iter().any(|line| line.contains("good")), "{ahead:?}");
    }

    #[test]
    fn the_block_replaces_the_one_before_and_leaves_the_rest_alone() {
        let page = format!("a\n{BEGIN}stale\n{END}z\n");
        let all = [figures("fencepost", 1.0, 1.0), figures("b", 2.0, 1.0)];
        let block = block(&quoted(5, &all), &measures(5, &all), "2 cores", &[]);
        let page = with_block(&page, &block).unwrap();
        assert!(page.starts_with("a\n") && page.ends_with("z\n") && !page.contains("stale"));
        assert_eq!(with_block(&page, &block).as_ref(), Some(&page));
        assert_eq!(with_block("no place", &block), None);
    }

    /// Once the README named those who were ahead in its own columns only, which nobody was.
    #[test]
    fn the_readme_names_whoever_is_ahead_also_where_it_quotes_no_column() {
        let all = [figures("fencepost", 9.0, 1.0), figures("b", 10.0, 1.0)];
        let mut measures = measures(1, &all);
        measures.push(Measure {
            what: "memory per waiter".to_owned(),
            more_is_better: false,
            figures: [("fencepost", 4.0), ("b", 2.0)]
                .map(|(name, kb)| Figure {
                    name,
                    label: name.to_owned(),
                    value: Some(kb),
                })
                .into(),
        });
        let block = block(&quoted(1, &all), &measures, "2 cores", &[]);
        for line in [
            "- n = 1, 4 for one lock, cycles/s: b by 1.11 x\n",
            "- memory per waiter: b by 2.00 x\n",
        ] {
            assert!(block.contains(line), "{block}");
        }
        assert_eq!(who_is_ahead(&measures[..1]), "- nobody\n");
    }

    /// Once the tables had this column, and nobody could be ahead in it.
    #[test]
    fn whoever_needs_less_memory_is_ahead_and_whoever_was_not_measured_is_not() {
        let megabytes = |label, megabytes: u64| Figures {
            resident: megabytes << 20,
            ..figures(label, 1.0, 1.0)
        };
        let all = [
            megabytes("fencepost", 9),
            megabytes("small", 6),
            megabytes("failed", 0),
            megabytes("large", 90),
        ];
        let measures = measures(5, &all);
        let expected = "- n = 5, memory after that: small by 1.50 x\n";
        assert_eq!(who_is_ahead(&measures), expected);
    }

    #[test]
    fn the_readme_names_whoever_was_not_measured() {
        let all = [figures("fencepost", 9.0, 1.0)];
        let made =
            |skipped: &[&str]| block(&quoted(1, &all), &measures(1, &all), "2 cores", skipped);
        let line = "were missing: redsync, pottery.\n\n";
        assert!(made(&["redsync", "pottery"]).contains(line));
        assert!(!made(&[]).contains("Not measured"));
    }

    #[test]
    fn a_client_that_has_another_lock_for_several_nodes_is_one_row_with_both_names() {
        let one = [figures("fencepost", 9.0, 1.0), figures("r", 10.0, 1.0)];
        let mut five = [figures("fencepost", 9.0, 1.0), figures("r", 3.0, 1.0)];
        five[1].label = "RedissonRedLock".to_owned();
        let table = short_table(
            &[quoted(1, &one), quoted(5, &five)]
                .into_iter()
                .flatten()
                .collect::<Vec<_>>(),
        );
        let row = table
            .lines()
            .find(|line| line.contains("r / RedissonRedLock"));
        assert!(
            row.is_some_and(|row| row.contains(" 10 ") && row.contains(" 3 ")),
            "{table}"
        );
    }

    #[test]
    fn latencies_are_shown_for_every_number_of_workers() {
        let table = alone(&[figures("fencepost", 1.0, 8.0), figures("b", 1.0, 6.0)]);
        for workers in ALONE {
            for head in ["p50 us", "p99 us", "cycles/s"] {
                assert!(table.contains(&format!("{workers}: {head}")), "{table}");
            }
        }
        assert_eq!(table.matches(" 6 ").count(), ALONE.len(), "{table}");
    }

    /// A figure that somebody typed or that is older than the table would stay there for ever.
    #[test]
    fn the_readme_quotes_the_table_of_the_last_run() {
        let root = crate::root();
        let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
        let (_, quoted) = readme.split_once(BEGIN).expect("a place for the figures");
        let (quoted, _) = quoted.split_once(END).expect("its end");
        let report_text = std::fs::read_to_string(root.join(super::super::REPORT)).unwrap();
        let report: Vec<_> = report_text.lines().collect();
        let rows: Vec<_> = quoted
            .lines()
            .filter(|line| line.starts_with('|'))
            .collect();
        assert_eq!(rows.is_empty(), report.is_empty(), "run it again");
        for row in rows {
            assert!(report.contains(&row), "not in the report: {row}");
        }
        // And nobody who is ahead is left out.
        let (_, named) = report_text.split_once("\n## Who is ahead").expect("a list");
        let (named, _) = named.split_once("\n## ").expect("its end");
        let named = named.lines().filter_map(|line| line.strip_prefix("- "));
        let named: Vec<_> = named.collect();
        let ahead = quoted.lines().filter_map(|line| line.strip_prefix("- "));
        let ahead: Vec<_> = ahead.collect();
        assert_eq!(named.len(), ahead.len(), "{named:?}");
        for (all, most) in named.iter().zip(ahead) {
            let (most, _) = most.split_once(", and ").unwrap_or((most, ""));
            let (what, who) = most.rsplit_once(": ").unwrap_or((most, ""));
            assert!(all.starts_with(what) && all.contains(who), "{most}");
        }
    }
}
