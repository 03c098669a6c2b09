//! The table that `core` prints.

/// One measurement of all contenders.
pub(crate) struct Row {
    pub(crate) what: String,
    pub(crate) ours: f64,
    pub(crate) floor: f64,
    pub(crate) bare: f64,
    pub(crate) rslock: f64,
    pub(crate) better: Better,
}

/// Which figure is the better one.
pub(crate) enum Better {
    Less,
    More,
}

impl Row {
    /// What ours costs in units of what theirs costs.
    fn cost(&self, theirs: f64) -> f64 {
        match self.better {
            Better::Less => self.ours / theirs,
            Better::More => theirs / self.ours,
        }
    }
}

pub(crate) fn print(rows: &[Row]) {
    println!(
        "{:<26}{:>11}{:>9}{:>9}{:>9}{:>13}{:>13}",
        "", "fencepost", "floor", "rslock", "bare", "cost/floor", "cost/rslock"
    );
    for row in rows {
        println!(
            "{:<26}{:>11}{:>9}{:>9}{:>9}{:>12.2}x{:>12.2}x",
            row.what,
            figure(row.ours),
            figure(row.floor),
            figure(row.rslock),
            figure(row.bare),
            row.cost(row.floor),
            row.cost(row.rslock),
        );
    }
    println!(
        "\n\
         floor  a hand-written client of a fenced lock without Lua (SET NX GET PX, ZADD GT CH, a look at\n\
        \x20       the queue): what the library could be at best\n\
         bare   a hand-written classical client, without a token (SET NX PX): what rslock could be at best\n\
         cost   what fencepost takes, in units of what the other takes; below 1 it is faster"
    );
}

fn figure(figure: f64) -> String {
    match figure < 1000.0 {
        true => format!("{figure:.1}"),
        false => format!("{figure:.0}"),
    }
}
