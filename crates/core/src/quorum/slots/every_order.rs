//! One slot, two shards and two clients in every order of events, up to so many: no two of them hold the lock. And
//! without each of the rules, they do.
//!
//! A lease is over when the quarantine ends that began after it was last renewed: that is what the length of
//! a quarantine is for.

use std::collections::HashSet;

use super::Stamp;

/// How many events follow each other.
const DEPTH: usize = 9;

/// A rule that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    /// A slot votes wherever its shard does.
    Unstamped,
    /// A slot under another stamp votes at once.
    Hasty,
    /// A stamp does not name the epoch.
    Timeless,
    /// A promoted master votes at once.
    Trusting,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    max_epoch: u64,
    shards: [Shard; 2],
    /// Where the slot is.
    owner: usize,
    stamp: Option<String>,
    /// Who is stored as the holder.
    stored: Option<usize>,
    /// Who holds a lease, and which quarantines have begun since it was renewed.
    leases: [Option<[bool; 2]>; 2],
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Shard {
    process: u64,
    epoch: u64,
    is_quarantined: bool,
}

impl State {
    fn first() -> Self {
        let shard = |number| Shard {
            process: number,
            epoch: number,
            is_quarantined: false,
        };
        Self {
            max_epoch: 2,
            shards: [shard(1), shard(2)],
            owner: 0,
            stamp: None,
            stored: None,
            leases: [None, None],
        }
    }

    /// Whether a vote of the slot counts; where that is sure it is stamped.
    fn counts(&mut self, flaw: Option<Flaw>) -> bool {
        let shard = &self.shards[self.owner];
        let stamp = Stamp {
            run_id: shard.process.to_string(),
            epoch: match flaw {
                Some(Flaw::Timeless) => 0,
                _ => shard.epoch,
            },
        };
        let is_calm = !self.shards.iter().any(|shard| shard.is_quarantined);
        if shard.is_quarantined {
            return false;
        }
        if flaw == Some(Flaw::Unstamped) || stamp.vouches_for(self.stamp.as_deref()) {
            return true;
        }
        let may_stamp = is_calm || flaw == Some(Flaw::Hasty);
        if may_stamp {
            self.stamp = Some(stamp.written("x"));
        }
        may_stamp
    }

    /// All that may come next.
    fn next(&self, flaw: Option<Flaw>) -> Vec<Self> {
        let mut all = Vec::new();
        for shard in 0..2 {
            // With and without the last writes.
            for loses in [false, true] {
                let mut next = self.clone();
                next.max_epoch += 1;
                next.shards[shard] = Shard {
                    process: next.max_epoch + 100,
                    epoch: next.max_epoch,
                    is_quarantined: flaw != Some(Flaw::Trusting),
                };
                if loses && next.owner == shard {
                    next.stored = None;
                }
                for lease in next.leases.iter_mut().flatten() {
                    lease[shard] = true;
                }
                all.push(next);
            }
            if self.shards[shard].is_quarantined {
                let mut next = self.clone();
                next.shards[shard].is_quarantined = false;
                for lease in &mut next.leases {
                    *lease = lease.filter(|begun| !begun[shard]);
                }
                all.push(next);
            }
        }
        let mut moved = self.clone();
        moved.owner = 1 - moved.owner;
        let to = &mut moved.shards[moved.owner];
        if to.epoch != moved.max_epoch {
            moved.max_epoch += 1;
            to.epoch = moved.max_epoch;
        }
        all.push(moved);
        for client in 0..2 {
            // An acquire where it is free, and a renewal where it is ours.
            let mut next = self.clone();
            let is_ours = next.stored == Some(client) && next.leases[client].is_some();
            if next.counts(flaw) && (next.stored.is_none() || is_ours) {
                next.stored = Some(client);
                next.leases[client] = Some([false; 2]);
            }
            all.push(next);
            // It ends by itself, and so does what is stored.
            let mut next = self.clone();
            next.leases[client] = None;
            next.stored = next.stored.filter(|stored| *stored != client);
            all.push(next);
        }
        all
    }
}

/// Whether two hold the lock in some order of events.
fn has_two_holders(flaw: Option<Flaw>) -> bool {
    let mut seen = HashSet::from([State::first()]);
    let mut edge = vec![State::first()];
    for _ in 0..DEPTH {
        let mut further = Vec::new();
        for state in edge {
            for next in state.next(flaw) {
                if next.leases.iter().all(Option::is_some) {
                    return true;
                }
                if seen.insert(next.clone()) {
                    further.push(next);
                }
            }
        }
        edge = further;
    }
    false
}

#[test]
fn no_order_of_failovers_and_moves_makes_two_holders() {
    assert!(!has_two_holders(None));
}

#[test]
fn without_any_of_the_rules_some_order_does() {
    for flaw in [Flaw::Unstamped, Flaw::Hasty, Flaw::Timeless, Flaw::Trusting] {
        assert!(has_two_holders(Some(flaw)), "{flaw:?}");
    }
}
