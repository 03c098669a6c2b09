//! From times to figures and bars. Pure.

use std::time::Duration;

/// How many buckets a time that is twice as long is away.
const PER_DOUBLING: f64 = 2.0;
/// The widest bar, in characters.
const WIDEST: usize = 50;
/// The parts of a character that a bar can end with.
const PARTS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];

/// The figures of one operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Summary {
    pub(super) count: usize,
    pub(super) median: Duration,
    pub(super) p90: Duration,
    pub(super) p99: Duration,
    pub(super) longest: Duration,
}

impl Summary {
    pub(super) fn of(times: &[Duration]) -> Self {
        let mut sorted = times.to_vec();
        sorted.sort_unstable();
        let at = |share: f64| {
            // The smallest time that this share of all times does not exceed.
            let rank = (share * sorted.len() as f64).ceil() as usize;
            let index = rank.saturating_sub(1);
            sorted.get(index).copied().unwrap_or_default()
        };
        Self {
            count: sorted.len(),
            median: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            longest: at(1.0),
        }
    }
}

/// How many times fell where. The buckets grow with the times, so that both the usual and the rare
/// can be seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Histogram {
    /// The number of the first bucket.
    first: i32,
    counts: Vec<usize>,
}

impl Histogram {
    pub(super) fn of(times: &[Duration]) -> Self {
        let buckets: Vec<i32> = times.iter().copied().map(bucket).collect();
        let (Some(&first), Some(&last)) = (buckets.iter().min(), buckets.iter().max()) else {
            return Self::default();
        };
        // At most a hundred: from a nanosecond to a century.
        let mut counts = vec![0; usize::try_from(last - first).unwrap_or(0) + 1];
        for bucket in buckets {
            let index = usize::try_from(bucket - first).unwrap_or(0);
            counts[index] += 1;
        }
        Self { first, counts }
    }

    /// From, to, and how many.
    pub(super) fn buckets(&self) -> impl Iterator<Item = (Duration, Duration, usize)> {
        let numbered = (self.first..).zip(&self.counts);
        numbered.map(|(number, count)| (lower(number), lower(number + 1), *count))
    }

    /// One line a bucket, each with its bar.
    pub(super) fn bars(&self) -> String {
        let most = self.counts.iter().max().copied().unwrap_or(0).max(1);
        let line = |(from, to, count): (Duration, Duration, usize)| {
            let from = format!("{from:.1?}");
            let to = format!("{to:.1?}");
            let bar = bar(count, most);
            let line = format!("{from:>9} – {to:>9}  {count:>8}  {bar}");
            format!("{}\n", line.trim_end())
        };
        self.buckets().map(line).collect()
    }
}

fn bucket(time: Duration) -> i32 {
    let nanos = time.as_nanos().max(1) as f64;
    (nanos.log2() * PER_DOUBLING).floor() as i32
}

fn lower(bucket: i32) -> Duration {
    let nanos = (f64::from(bucket) / PER_DOUBLING).exp2();
    Duration::from_nanos(nanos.round() as u64)
}

fn bar(count: usize, most: usize) -> String {
    let eighths = (count * WIDEST * 8).div_ceil(most);
    format!("{}{}", "█".repeat(eighths / 8), PARTS[eighths % 8])
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn us(micros: u64) -> Duration {
        Duration::from_micros(micros)
    }

    #[test]
    fn figures_are_those_of_the_times() {
        let times: Vec<_> = (1..=100).rev().map(us).collect();
        let summary = Summary::of(&times);
        assert_eq!(summary.count, 100);
        assert_eq!(
            [summary.median, summary.p90, summary.p99, summary.longest],
            [us(50), us(90), us(99), us(100)]
        );
        assert_eq!(Summary::of(&[]), Summary::default());
    }

    #[test]
    fn every_time_is_in_the_bucket_that_says_so() {
        let times: Vec<_> = [1, 2, 3, 100, 101, 5000].map(us).to_vec();
        let histogram = Histogram::of(&times);
        let all: usize = histogram.buckets().map(|(_, _, count)| count).sum();
        assert_eq!(all, times.len());
        for (from, to, count) in histogram.buckets() {
            let inside = times.iter().filter(|time| (from..to).contains(time));
            assert_eq!(inside.count(), count, "{from:?} {to:?}");
        }
        assert_eq!(Histogram::of(&[Duration::ZERO]).bars().lines().count(), 1);
        assert_eq!(Histogram::of(&[]).bars(), "");
    }

    #[test]
    fn the_longest_bar_is_full_and_the_shortest_is_seen() {
        assert_eq!(bar(7, 7).chars().count(), WIDEST);
        assert_eq!(bar(0, 7), "");
        assert_eq!(bar(1, 1_000_000), "▏");
    }
}
