//! The table that `core` prints.

/// One measurement of all three contenders.
pub(crate) struct Row {
    what: String,
    ours: f64,
    floor: f64,
    rslock: f64,
    more_is_better: bool,
}

impl Row {
    /// A row of figures that are the better the smaller they are.
    pub(crate) fn new(what: String, ours: f64, floor: f64, rslock: f64) -> Self {
        Self {
            what,
            ours,
            floor,
            rslock,
            more_is_better: false,
        }
    }

    pub(crate) fn more_is_better(self) -> Self {
        Self {
            more_is_better: true,
            ..self
        }
    }

    /// What ours costs in units of what theirs costs.
    fn cost(&self, theirs: f64) -> f64 {
        match self.more_is_better {
            true => theirs / self.ours,
            false => self.ours / theirs,
        }
    }
}

pub(crate) fn print(rows: &[Row]) {
    println!(
        "{:<24}{:>11}{:>11}{:>11}{:>12}{:>12}",
        "", "fencepost", "floor", "rslock", "cost/floor", "cost/rslock"
    );
    for row in rows {
        println!(
            "{:<24}{:>11}{:>11}{:>11}{:>11.2}x{:>11.2}x",
            row.what,
            figure(row.ours),
            figure(row.floor),
            figure(row.rslock),
            row.cost(row.floor),
            row.cost(row.rslock),
        );
    }
    println!(
        "\ncost: what fencepost takes, in units of what the other takes; below 1 it is faster"
    );
}

fn figure(figure: f64) -> String {
    match figure < 1000.0 {
        true => format!("{figure:.1}"),
        false => format!("{figure:.0}"),
    }
}
