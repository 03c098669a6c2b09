//! [`Ballots`]: how often each node voted which way, and how long it took. For metrics: nothing is decided by it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fencepost_core::lock::Reply;

use crate::error::NodeError;

/// The upper ends of the buckets in microseconds; one more bucket has the rest.
const BOUNDS_US: [u64; 12] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 1_000_000,
];

/// The votes of all nodes since the client was made.
#[derive(Debug)]
pub(crate) struct Ballots(Vec<Counts>);

#[derive(Debug, Default)]
struct Counts {
    granted: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
    buckets: [AtomicU64; BOUNDS_US.len() + 1],
    micros: AtomicU64,
}

/// The votes of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeVotes {
    /// The node's address.
    pub node: String,
    /// Votes in favour: locks granted, raised and extended.
    pub granted: u64,
    /// Votes against.
    pub refused: u64,
    /// Votes that did not come: time-outs, errors, quarantine.
    pub failed: u64,
    /// How many answers took up to so long: each bucket has what the ones before it do not.
    pub round_trips: Vec<(Option<Duration>, u64)>,
    /// How long all answers took together.
    pub answering: Duration,
}

impl Ballots {
    pub(super) fn new(nodes: usize) -> Self {
        Self((0..nodes).map(|_| Counts::default()).collect())
    }

    /// A node was asked for its vote, and answered after that time or not at all.
    pub(super) fn cast(&self, node: usize, answer: &Result<Reply, NodeError>, took: Duration) {
        let Some(counts) = self.0.get(node) else {
            return;
        };
        let kind = match answer {
            Err(_) | Ok(Reply::Exhausted) => &counts.failed,
            Ok(reply) if reply.holds() => &counts.granted,
            Ok(_) => &counts.refused,
        };
        kind.fetch_add(1, Ordering::Relaxed);
        if answer.is_ok() {
            let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
            let bucket = BOUNDS_US.partition_point(|bound| *bound < micros);
            counts.buckets[bucket].fetch_add(1, Ordering::Relaxed);
            counts.micros.fetch_add(micros, Ordering::Relaxed);
        }
    }

    /// What each node has said, with the addresses in the same order.
    pub(crate) fn seen<'a>(&self, addresses: impl Iterator<Item = &'a str>) -> Vec<NodeVotes> {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let bounds = BOUNDS_US.map(|bound| Some(Duration::from_micros(bound)));
        let seen = |(counts, node): (&Counts, &str)| NodeVotes {
            node: node.to_owned(),
            granted: load(&counts.granted),
            refused: load(&counts.refused),
            failed: load(&counts.failed),
            round_trips: {
                let bounds = bounds.into_iter().chain([None]);
                bounds.zip(counts.buckets.iter().map(load)).collect()
            },
            answering: Duration::from_micros(load(&counts.micros)),
        };
        self.0.iter().zip(addresses).map(seen).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn votes_are_told_apart_and_only_answers_have_a_round_trip() {
        let ballots = Ballots::new(2);
        let ms = Duration::from_millis;
        ballots.cast(0, &Ok(Reply::Extended), ms(2));
        ballots.cast(0, &Ok(Reply::NotHeld(None)), ms(1));
        ballots.cast(0, &Err(NodeError::Loading), ms(900));
        ballots.cast(7, &Ok(Reply::Extended), ms(1));
        let seen = ballots.seen(["a", "b"].into_iter());
        let counts = |at: usize| (seen[at].granted, seen[at].refused, seen[at].failed);
        assert_eq!((counts(0), counts(1)), ((1, 1, 1), (0, 0, 0)));
        assert_eq!(seen[0].answering, ms(3));
        let taken: Vec<_> = seen[0].round_trips.iter().filter(|it| it.1 > 0).collect();
        assert_eq!(
            taken,
            [&(Some(ms(1)), 1), &(Some(Duration::from_micros(2_500)), 1)]
        );
    }
}
