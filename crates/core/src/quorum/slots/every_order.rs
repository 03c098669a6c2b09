//! One slot, three shards and two clients in every order of events, up to so many: no two of them hold the lock. And
//! without each of the rules, they do.
//!
//! The third shard is there for one to leave: it gives its last slot away, or is lost with all of them. One that
//! had none and gets one has been looked at before anything else befalls it.
//!
//! A lease is over when the quarantine ends that began after it was last renewed: that is what the length of
//! a quarantine is for.

use std::collections::HashSet;

use super::Stamp;

/// How many events follow each other.
const DEPTH: usize = 7;
const SHARDS: usize = 3;
/// The quarantine that begins when an owner is missed.
const MISSED: usize = SHARDS;

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
    /// Only those are asked that have slots now.
    Forgetful,
    /// An owner that is missed is forgotten at once.
    Fleeting,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    max_epoch: u64,
    shards: [Shard; SHARDS],
    /// Which owners are recorded.
    recorded: [bool; SHARDS],
    /// Whether slots wait because one of those is gone.
    is_missed: bool,
    /// Where the slot is.
    owner: usize,
    stamp: Option<String>,
    /// Who is stored as the holder.
    stored: Option<usize>,
    /// Who holds a lease, and which quarantines have begun since it was renewed.
    leases: [Option<[bool; SHARDS + 1]>; 2],
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Shard {
    process: u64,
    epoch: u64,
    is_quarantined: bool,
    /// Whether it has other slots than this one.
    has_others: bool,
}

impl State {
    fn first() -> Self {
        let shard = |number| Shard {
            process: number,
            epoch: number,
            is_quarantined: false,
            has_others: true,
        };
        Self {
            max_epoch: 3,
            shards: [shard(1), shard(2), shard(3)],
            recorded: [true; SHARDS],
            is_missed: false,
            owner: 0,
            stamp: None,
            stored: None,
            leases: [None, None],
        }
    }

    fn owns(&self, shard: usize) -> bool {
        self.owner == shard || self.shards[shard].has_others
    }

    /// Records who owns slots, and whether one is missed that did.
    fn record(&mut self, flaw: Option<Flaw>) {
        let owners: [bool; SHARDS] = std::array::from_fn(|shard| self.owns(shard));
        let is_missed = (0..SHARDS).any(|shard| self.recorded[shard] && !owners[shard]);
        if is_missed && flaw != Some(Flaw::Fleeting) {
            self.is_missed = true;
            for lease in self.leases.iter_mut().flatten() {
                lease[MISSED] = true;
            }
        }
        self.recorded = owners;
    }

    /// A shard is lost with all that it has; the slot is assigned to another.
    fn lost(&self, shard: usize, to: usize) -> Self {
        let mut next = self.clone();
        next.shards[shard].has_others = false;
        if next.owner == shard {
            (next.owner, next.stored, next.stamp) = (to, None, None);
        }
        next
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
        if shard.is_quarantined {
            return false;
        }
        if flaw == Some(Flaw::Unstamped) || stamp.vouches_for(self.stamp.as_deref()) {
            return true;
        }
        self.record(flaw);
        let mut asked = (0..SHARDS).filter(|shard| self.owns(*shard));
        let is_calm = !asked.any(|shard| self.shards[shard].is_quarantined)
            && (!self.is_missed || flaw == Some(Flaw::Forgetful));
        let may_stamp = is_calm || flaw == Some(Flaw::Hasty);
        if may_stamp {
            self.stamp = Some(stamp.written("x"));
        }
        may_stamp
    }

    /// All that may come next.
    fn next(&self, flaw: Option<Flaw>) -> Vec<Self> {
        let mut all = Vec::new();
        for shard in (0..SHARDS).filter(|shard| self.owns(*shard)) {
            let others =
                (0..SHARDS).filter(|other| *other != shard && self.shards[*other].has_others);
            for other in others {
                all.push(self.lost(shard, other));
            }
            // It gives all its other slots away.
            if self.shards[shard].has_others {
                let mut next = self.clone();
                next.shards[shard].has_others = false;
                all.push(next);
            }
            // With and without the last writes.
            for loses in [false, true] {
                let mut next = self.clone();
                next.max_epoch += 1;
                next.shards[shard] = Shard {
                    process: next.max_epoch + 100,
                    epoch: next.max_epoch,
                    is_quarantined: flaw != Some(Flaw::Trusting),
                    has_others: next.shards[shard].has_others,
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
                next.end(shard);
                all.push(next);
            }
        }
        if self.is_missed {
            let mut next = self.clone();
            next.is_missed = false;
            next.end(MISSED);
            all.push(next);
        }
        for to in (0..SHARDS).filter(|to| *to != self.owner) {
            let mut moved = self.clone();
            if !self.owns(to) {
                // Its markers are gone, so that it is looked at as one that is new.
                moved.shards[to].is_quarantined = flaw != Some(Flaw::Trusting);
                for lease in moved.leases.iter_mut().flatten() {
                    lease[to] = true;
                }
                moved.owner = to;
                moved.record(flaw);
            }
            moved.owner = to;
            if moved.shards[to].epoch != moved.max_epoch {
                moved.max_epoch += 1;
                moved.shards[to].epoch = moved.max_epoch;
            }
            all.push(moved);
        }
        for client in 0..2 {
            // An acquire where it is free, and a renewal where it is ours.
            let mut next = self.clone();
            let is_ours = next.stored == Some(client) && next.leases[client].is_some();
            if next.counts(flaw) && (next.stored.is_none() || is_ours) {
                next.stored = Some(client);
                next.leases[client] = Some([false; SHARDS + 1]);
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

impl State {
    /// A quarantine ends, and what was renewed before it began has ended.
    fn end(&mut self, quarantine: usize) {
        for lease in &mut self.leases {
            *lease = lease.filter(|begun| !begun[quarantine]);
        }
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
    for flaw in [
        Flaw::Unstamped,
        Flaw::Hasty,
        Flaw::Timeless,
        Flaw::Trusting,
        Flaw::Forgetful,
        Flaw::Fleeting,
    ] {
        assert!(has_two_holders(Some(flaw)), "{flaw:?}");
    }
}
