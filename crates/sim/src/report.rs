//! [`Tally`]: what many runs came to, as a table for people and as Markdown.

use std::fmt::Write as _;
use std::time::Duration;

use crate::faults::{Fault, FaultCounts};
use crate::plan::Work;
use crate::run::{Deeds, Outcome};

/// What many runs came to.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// What the clients worked with.
    pub work: Work,
    /// The first seed.
    pub from: u64,
    /// How many runs there were.
    pub runs: u64,
    /// The real time that they took.
    pub took: Duration,
    /// Faults of each kind.
    pub faults: FaultCounts,
    /// What the clients did.
    pub deeds: Deeds,
    /// The seeds that failed, each with the checkers that found something.
    pub failed: Vec<(u64, Vec<&'static str>)>,
}

impl Tally {
    /// A tally of that work that begins with that seed.
    #[must_use]
    pub fn from(seed: u64, work: Work) -> Self {
        Self {
            work,
            from: seed,
            ..Self::default()
        }
    }

    /// Takes in one run.
    pub fn add(&mut self, outcome: &Outcome) {
        self.runs += 1;
        self.faults.add(&outcome.faults);
        self.deeds.add(&outcome.deeds);
        if !outcome.violations.is_empty() {
            let mut checkers: Vec<_> = outcome.violations.iter().map(|v| v.checker).collect();
            checkers.sort_unstable();
            checkers.dedup();
            self.failed.push((outcome.plan.seed, checkers));
        }
    }

    /// Runs in a second.
    #[must_use]
    pub fn per_second(&self) -> f64 {
        self.runs as f64 / self.took.as_secs_f64().max(0.001)
    }

    /// As Markdown.
    #[must_use]
    pub fn markdown(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = self.write(&mut text);
        text
    }

    fn write(&self, to: &mut String) -> std::fmt::Result {
        let last = (self.from + self.runs).saturating_sub(1);
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let work = self.work.name();
        writeln!(to, "# Simulation, {work}: seeds {} to {last}\n", self.from)?;
        writeln!(
            to,
            "{} runs in {:.0} s on one of {cores} cores: {:.0} runs a second.\n",
            self.runs,
            self.took.as_secs_f64(),
            self.per_second()
        )?;
        writeln!(to, "| what | how often |\n| --- | ---: |")?;
        let Deeds {
            acquired,
            failed,
            told,
            extended,
            accepted,
            refused,
        } = self.deeds;
        for (what, count) in [
            ("runs", self.runs),
            ("**runs that broke a rule**", self.failed.len() as u64),
            ("locks acquired", acquired),
            ("requests that ended without the lock", failed),
            ("renewals and extensions seen", extended),
            ("losses told", told),
            ("writes that the guarded resource took", accepted),
            ("writes that it refused for an old token", refused),
        ] {
            writeln!(to, "| {what} | {count} |")?;
        }
        writeln!(to, "\n| fault | how often |\n| --- | ---: |")?;
        for fault in Fault::ALL {
            writeln!(to, "| {} | {} |", fault.name(), self.faults.of(fault))?;
        }
        if !self.failed.is_empty() {
            writeln!(to, "\nFailing seeds:\n")?;
            for (seed, checkers) in &self.failed {
                writeln!(to, "- {seed}: {}", checkers.join(", "))?;
            }
        }
        Ok(())
    }
}
