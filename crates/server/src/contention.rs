//! [`Contention`]: which names are waited for, how long holds and waits last, how often a lock changes
//! hands. Pure; from looks, as a profiler's: what comes and goes between two looks is not in it.

use std::collections::HashMap;

use serde::Serialize;
use serde_json::{Value, json};

/// The most names that are counted. The least waited for makes room.
const MOST_NAMES: usize = 5_000;
/// The most names that are shown.
const TOP: usize = 100;
/// The upper ends of the buckets, in milliseconds; one more bucket has the rest.
const BOUNDS_MS: [u64; 11] = [
    10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000,
];

/// How many lasted how long.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Histogram([u64; BOUNDS_MS.len() + 1]);

impl Histogram {
    fn add(&mut self, ms: u64) {
        let bucket = BOUNDS_MS.iter().position(|bound| ms <= *bound);
        self.0[bucket.unwrap_or(BOUNDS_MS.len())] += 1;
    }
}

#[derive(Clone, Debug, Default)]
struct Counts {
    /// Waiters times the time between two looks.
    waited_ms: u64,
    hand_offs: u64,
    most_waiting: usize,
    holds: Histogram,
    waits: Histogram,
}

/// What was seen since it began.
#[derive(Debug, Default)]
pub(crate) struct Contention {
    names: HashMap<String, Counts>,
    watched_ms: u64,
}

impl Contention {
    pub(crate) fn watched(&mut self, ms: u64) {
        self.watched_ms += ms;
    }

    /// So many waited for it while that time passed.
    pub(crate) fn waiting(&mut self, name: &str, waiting: usize, ms: u64) {
        let counts = self.of(name);
        counts.waited_ms += waiting as u64 * ms;
        counts.most_waiting = counts.most_waiting.max(waiting);
    }

    pub(crate) fn hold_ended(&mut self, name: &str, ms: u64, handed_off: bool) {
        let counts = self.of(name);
        counts.holds.add(ms);
        counts.hand_offs += u64::from(handed_off);
    }

    pub(crate) fn wait_ended(&mut self, name: &str, ms: u64) {
        self.of(name).waits.add(ms);
    }

    fn of(&mut self, name: &str) -> &mut Counts {
        if self.names.len() >= MOST_NAMES && !self.names.contains_key(name) {
            let least = self.names.iter().min_by_key(|(_, counts)| counts.waited_ms);
            if let Some(least) = least.map(|(name, _)| name.clone()) {
                self.names.remove(&least);
            }
        }
        self.names.entry(name.to_owned()).or_default()
    }

    /// Those that `sees` may see: the most waited for first, and all of them together.
    pub(crate) fn shown(&self, sees: impl Fn(&str) -> bool) -> Value {
        let mut seen: Vec<_> = self.names.iter().filter(|(name, _)| sees(name)).collect();
        seen.sort_by(|a, b| b.1.waited_ms.cmp(&a.1.waited_ms).then(a.0.cmp(b.0)));
        let (mut holds, mut waits, mut hand_offs) = (Histogram::default(), Histogram::default(), 0);
        for (_, counts) in &seen {
            for (all, one) in holds.0.iter_mut().zip(counts.holds.0) {
                *all += one;
            }
            for (all, one) in waits.0.iter_mut().zip(counts.waits.0) {
                *all += one;
            }
            hand_offs += counts.hand_offs;
        }
        let top = seen.iter().take(TOP).map(|(name, counts)| {
            json!({
                "name": name, "waited_ms": counts.waited_ms, "hand_offs": counts.hand_offs,
                "most_waiting": counts.most_waiting, "holds": counts.holds, "waits": counts.waits,
            })
        });
        json!({
            "watched_ms": self.watched_ms, "bounds_ms": BOUNDS_MS, "hand_offs": hand_offs,
            "holds": holds, "waits": waits, "names": seen.len(), "top": top.collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_waited_for_comes_first_and_what_may_not_be_seen_counts_for_nobody() {
        let mut contention = Contention::default();
        contention.waiting("calm", 1, 10);
        contention.waiting("hot", 5, 1_000);
        contention.waiting("secret", 50, 1_000);
        contention.hold_ended("hot", 20, true);
        contention.hold_ended("secret", 20, true);
        contention.wait_ended("hot", 2_000_000);
        let shown = contention.shown(|name| name != "secret");
        let names: Vec<_> = shown["top"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| &it["name"])
            .collect();
        assert_eq!(names, ["hot", "calm"]);
        assert_eq!(shown["top"][0]["waited_ms"], 5_000);
        assert_eq!(
            (&shown["hand_offs"], &shown["holds"][1]),
            (&json!(1), &json!(1))
        );
        assert_eq!(shown["waits"][BOUNDS_MS.len()], 1);
    }

    #[test]
    fn names_are_bounded() {
        let mut contention = Contention::default();
        for name in 0..MOST_NAMES + 10 {
            contention.waiting(&name.to_string(), 1, name as u64);
        }
        assert_eq!(contention.names.len(), MOST_NAMES);
        assert!(!contention.names.contains_key("0"));
    }
}
