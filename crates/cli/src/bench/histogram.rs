//! From times to figures and bars. Pure.

use std::time::Duration;

/// How many digits of a time are kept.
const DIGITS: u8 = 3;
/// How many buckets a time that is twice as long is away.
const PER_DOUBLING: f64 = 2.0;
/// The widest bar, in characters.
const WIDEST: usize = 50;
/// The parts of a character that a bar can end with.
const PARTS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];

/// The times of one operation, in nanoseconds, to three digits: however many there are, they take the
/// same room.
#[derive(Clone, Debug)]
pub(super) struct Times(hdrhistogram::Histogram<u64>);

impl Default for Times {
    fn default() -> Self {
        Self(hdrhistogram::Histogram::new(DIGITS).expect("as many digits as it can count"))
    }
}

impl Times {
    pub(super) fn add(&mut self, time: Duration) {
        // It grows to hold whatever there is.
        let _ = self.0.record(nanos(time));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn summary(&self) -> Summary {
        let at = |share| Duration::from_nanos(self.0.value_at_quantile(share));
        Summary {
            count: self.0.len(),
            median: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            longest: Duration::from_nanos(self.0.max()),
        }
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The figures of one operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Summary {
    pub(super) count: u64,
    pub(super) median: Duration,
    pub(super) p90: Duration,
    pub(super) p99: Duration,
    pub(super) longest: Duration,
}

/// How many times fell where. The buckets grow with the times, so that both the usual and the rare
/// can be seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Histogram {
    /// The number of the first bucket.
    first: i32,
    counts: Vec<u64>,
}

impl Histogram {
    pub(super) fn of(times: &Times) -> Self {
        let recorded = || {
            let recorded = times.0.iter_recorded();
            recorded.map(|it| (bucket(it.value_iterated_to()), it.count_at_value()))
        };
        let (Some((first, _)), Some((last, _))) = (recorded().next(), recorded().last()) else {
            return Self::default();
        };
        // At most a hundred: from a nanosecond to a century.
        let mut counts = vec![0; usize::try_from(last - first).unwrap_or(0) + 1];
        for (bucket, count) in recorded() {
            let index = usize::try_from(bucket - first).unwrap_or(0);
            counts[index] += count;
        }
        Self { first, counts }
    }

    /// From, to, and how many.
    pub(super) fn buckets(&self) -> impl Iterator<Item = (Duration, Duration, u64)> {
        let numbered = (self.first..).zip(&self.counts);
        numbered.map(|(number, count)| (lower(number), lower(number + 1), *count))
    }

    /// One line a bucket, each with its bar.
    pub(super) fn bars(&self) -> String {
        let most = self.counts.iter().max().copied().unwrap_or(0).max(1);
        let line = |(from, to, count): (Duration, Duration, u64)| {
            let from = format!("{from:.1?}");
            let to = format!("{to:.1?}");
            let bar = bar(count, most);
            let line = format!("{from:>9} – {to:>9}  {count:>8}  {bar}");
            format!("{}\n", line.trim_end())
        };
        self.buckets().map(line).collect()
    }
}

fn bucket(nanos: u64) -> i32 {
    ((nanos.max(1) as f64).log2() * PER_DOUBLING).floor() as i32
}

fn lower(bucket: i32) -> Duration {
    let nanos = (f64::from(bucket) / PER_DOUBLING).exp2();
    Duration::from_nanos(nanos.round() as u64)
}

fn bar(count: u64, most: u64) -> String {
    let eighths = (count * WIDEST as u64 * 8).div_ceil(most);
    let eighths = usize::try_from(eighths).unwrap_or(0);
    format!("{}{}", "█".repeat(eighths / 8), PARTS[eighths % 8])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(micros: impl IntoIterator<Item = u64>) -> Times {
        let mut times = Times::default();
        micros
            .into_iter()
            .for_each(|time| times.add(Duration::from_micros(time)));
        times
    }

    #[test]
    fn figures_are_those_of_the_times() {
        let summary = times((1..=100).rev()).summary();
        assert_eq!(summary.count, 100);
        let figures = [summary.median, summary.p90, summary.p99, summary.longest];
        for (figure, micros) in figures.into_iter().zip([50.0, 90.0, 99.0, 100.0]) {
            let off = figure.as_secs_f64() * 1e6 / micros;
            assert!((0.999..1.002).contains(&off), "{figure:?} {micros}");
        }
        assert_eq!(Times::default().summary(), Summary::default());
    }

    #[test]
    fn every_time_is_in_the_bucket_that_says_so() {
        let all = [1, 2, 3, 100, 101, 5000];
        let histogram = Histogram::of(&times(all));
        let count: u64 = histogram.buckets().map(|(_, _, count)| count).sum();
        assert_eq!(count, all.len() as u64);
        for (from, to, count) in histogram.buckets() {
            let inside = all.map(Duration::from_micros).into_iter();
            let inside = inside.filter(|time| (from..to).contains(time));
            assert_eq!(inside.count() as u64, count, "{from:?} {to:?}");
        }
        assert_eq!(Histogram::of(&times([0])).bars().lines().count(), 1);
        assert_eq!(Histogram::of(&times([])).bars(), "");
    }

    #[test]
    fn the_longest_bar_is_full_and_the_shortest_is_seen() {
        assert_eq!(bar(7, 7).chars().count(), WIDEST);
        assert_eq!(bar(0, 7), "");
        assert_eq!(bar(1, 1_000_000), "▏");
    }
}
