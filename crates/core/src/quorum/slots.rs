//! Who owns which hash slots of a Redis Cluster, and whether a slot's data is complete.
//!
//! # Why it is safe
//! A Cluster is one voter made of shards, and every slot is at one shard at a time.
//!
//! *Who owns a slot* is named by the nodes listed in the URL, as Sentinels name a master: an
//! owner's reply counts only while a majority of the *listed* nodes has named it as the owner of
//! that slot within the last `F` ([`Slots`], by the rule of [`failover`](super::failover)).
//!
//! *Whether a shard has forgotten* is decided by its markers, by the rule of
//! [`membership`](super::membership): a master that was promoted, restarted or flushed does not
//! vote for `max_ttl + 2 F`.
//!
//! *Whether a slot is complete* is decided by the slot's own [`Stamp`], which is stored in the slot
//! and migrates with it. It names the process and the config epoch of the owner that it was written
//! under. An owner whose process has not changed, and which was not flushed, has kept every slot
//! that it had. It can gain a slot only by an import. If any failover has happened since the slot
//! was stamped, that import raises the owner's config epoch, because another node then has a larger
//! one. So a slot with the owner's own process and epoch has been nowhere else where it could have
//! lost data.
//!
//! A slot with any other stamp, or none, was never used or came from elsewhere: perhaps from a
//! shard that had failed over and does not vote itself. It votes only once *no* shard may have
//! forgotten, which is normally at once; then it is stamped. Migrating a slot in normal operation
//! costs its holders nothing.
//!
//! *The shard that it came from* may be gone by then: emptied, replaced or lost, and its markers with
//! it. So every shard records the [`Owners`] seen so far, and no slot is stamped before all of them
//! have recorded all owners. Where one of those owns nothing any more, nobody can tell what it had
//! forgotten: for `max_ttl + 2 F` from when that is noticed, slots are not stamped anywhere. It is
//! noticed by answers that name an owner of every slot and were asked for after the record was read:
//! the owners of before were named by a majority, which these answers have heard from again.
//!
//! Not seen is a shard that gets its first slot, fails over and is emptied before any client has
//! looked.

use std::collections::BTreeSet;
use std::time::Duration;

use super::failover::Naming;
use crate::words::Moment;

/// How many hash slots a Cluster has.
pub const SLOTS: u16 = 16_384;

/// The slots from the first to the last, and the id of their owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// The first of them.
    pub first: u16,
    /// The last of them.
    pub last: u16,
    /// The id of the owner.
    pub owner: String,
}

/// A range with one owner named by a majority, and until when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owned {
    /// Which slots, and whose.
    pub range: Range,
    /// Until when the owner's replies count without further answers.
    pub until: Moment,
}

/// The answer of one listed node.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Word {
    identity: Option<String>,
    asked: Moment,
    ranges: Vec<Range>,
}

/// The answers of the listed nodes of a Cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slots {
    words: Vec<Option<Word>>,
    owned: Vec<Owned>,
}

impl Slots {
    /// For this many listed nodes, without answers so far.
    #[must_use]
    pub fn of(listed: usize) -> Self {
        Self {
            words: vec![None; listed],
            owned: Vec::new(),
        }
    }

    /// How many nodes must name an owner: a majority of the listed ones.
    #[must_use]
    pub fn needed(&self) -> usize {
        self.words.len() / 2 + 1
    }

    /// Records the answer of a node that was asked at that moment. An answer counts for `within`.
    pub fn on_answer(
        &mut self,
        node: usize,
        identity: Option<&str>,
        asked: Moment,
        ranges: Vec<Range>,
        within: Duration,
    ) {
        let Some(word) = self.words.get_mut(node) else {
            return;
        };
        if word.as_ref().is_some_and(|word| word.asked > asked) {
            return;
        }
        *word = Some(Word {
            identity: identity.map(str::to_owned),
            asked,
            ranges,
        });
        self.owned = self.agreed(within);
    }

    /// The owner of a slot, if a majority has named it and its replies count now.
    #[must_use]
    pub fn owner(&self, slot: u16, now: Moment) -> Option<&str> {
        let owned = self.owned.iter().find(|owned| owned.range.has(slot))?;
        (now < owned.until).then_some(owned.range.owner.as_str())
    }

    /// Whether a majority of the nodes has answered within that time, and knows no owner of the slot.
    #[must_use]
    pub fn is_unowned(&self, slot: u16, now: Moment, within: Duration) -> bool {
        let words = self.words.iter().flatten();
        let knows_none = |word: &&Word| {
            now < word.asked + within && !word.ranges.iter().any(|range| range.has(slot))
        };
        words.filter(knows_none).count() >= self.needed()
    }

    /// Every range named by a majority, including those that no longer count.
    #[must_use]
    pub fn owned(&self) -> &[Owned] {
        &self.owned
    }

    /// The slots of this owner, in order.
    pub fn slots_of<'a>(&'a self, owner: &'a str) -> impl Iterator<Item = u16> + 'a {
        let own = self.owned.iter().filter(move |o| o.range.owner == owner);
        own.flat_map(|owned| owned.range.first..=owned.range.last)
    }

    /// All owners, if every slot has one that was named by answers to questions asked at that moment or later.
    #[must_use]
    pub fn owners_since(&self, asked: Moment, within: Duration) -> Option<BTreeSet<String>> {
        let fresh = || {
            let fresh = self.owned.iter();
            fresh.filter(|owned| owned.until >= asked + within)
        };
        let slots = fresh().map(|owned| usize::from(owned.range.last - owned.range.first) + 1);
        let is_whole = slots.sum::<usize>() == usize::from(SLOTS);
        is_whole.then(|| fresh().map(|owned| owned.range.owner.clone()).collect())
    }

    fn agreed(&self, within: Duration) -> Vec<Owned> {
        let ranges = || self.words.iter().flatten().flat_map(|word| &word.ranges);
        // Every start of a range: between two of these, each node names one owner or none.
        let edges: BTreeSet<u16> = ranges()
            .flat_map(|range| [range.first, range.last.saturating_add(1)])
            .collect();
        let ends = edges.iter().skip(1).map(|next| next - 1);
        let mut agreed: Vec<Owned> = Vec::new();
        for (first, last) in edges.iter().copied().zip(ends) {
            let mut naming: Naming<&str> = Naming::of(self.words.len(), within);
            for (node, word) in self.words.iter().enumerate() {
                let Some(word) = word else { continue };
                let owner = word.ranges.iter().find(|range| range.has(first));
                let owner = owner.map(|range| range.owner.as_str());
                naming.on_answer(node, word.identity.as_deref(), word.asked, owner);
            }
            let named = ranges().filter(|range| range.has(first));
            let found = named.into_iter().find_map(|range| {
                let until = naming.until(&range.owner.as_str())?;
                Some((range.owner.clone(), until))
            });
            match (found, agreed.last_mut()) {
                (Some((owner, until)), Some(before))
                    if before.range.last + 1 == first
                        && before.range.owner == owner
                        && before.until == until =>
                {
                    before.range.last = last;
                }
                (Some((owner, until)), _) => agreed.push(Owned {
                    range: Range { first, last, owner },
                    until,
                }),
                (None, _) => {}
            }
        }
        agreed
    }
}

impl Range {
    fn has(&self, slot: u16) -> bool {
        (self.first..=self.last).contains(&slot)
    }
}

/// The owner under which a slot was last known to be complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The owner's process.
    pub run_id: String,
    /// The owner's config epoch.
    pub epoch: u64,
}

impl Stamp {
    /// The text stored in the slot. The random number makes every stamp unique.
    #[must_use]
    pub fn written(&self, random: &str) -> String {
        format!("{} {} {random}", self.run_id, self.epoch)
    }

    /// Whether a stored text proves that the slot is complete under this owner.
    #[must_use]
    pub fn vouches_for(&self, found: Option<&str>) -> bool {
        let mut words = found.unwrap_or_default().split(' ');
        words.next() == Some(self.run_id.as_str())
            && words.next() == Some(self.epoch.to_string().as_str())
    }
}

/// The owners that a shard has recorded, beside its marker. A slot that comes to it comes from one of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owners {
    /// Their ids.
    pub ids: BTreeSet<String>,
    /// When one of them was last missed, in microseconds of the shard's clock.
    pub missed_us: u64,
}

impl Owners {
    /// The lines stored behind a marker.
    #[must_use]
    pub fn written(&self) -> String {
        let ids: Vec<&str> = self.ids.iter().map(String::as_str).collect();
        format!("owners {}\nmissed_us {}\n", ids.join(","), self.missed_us)
    }

    /// What was stored behind a marker, if it was.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let field = |key: &str| {
            let mut fields = text.lines().filter_map(|line| line.split_once(' '));
            fields.find_map(|(name, value)| (name == key).then_some(value))
        };
        let ids = field("owners")?.split(',').filter(|id| !id.is_empty());
        Some(Self {
            ids: ids.map(str::to_owned).collect(),
            missed_us: field("missed_us")?.parse().ok()?,
        })
    }

    /// What two records of one shard say together.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.ids.extend(other.ids);
        self.missed_us = self.missed_us.max(other.missed_us);
        self
    }

    /// Whether a recorded owner is none of these.
    #[must_use]
    pub fn misses_any(&self, owners: &BTreeSet<String>) -> bool {
        !self.ids.is_subset(owners)
    }

    /// The record once these are all the owners there are.
    #[must_use]
    pub fn replaced(&self, owners: BTreeSet<String>, now_us: u64) -> Self {
        let missed_us = match self.misses_any(&owners) {
            true => now_us,
            // A clock that went back begins anew.
            false => self.missed_us.min(now_us),
        };
        Self {
            ids: owners,
            missed_us,
        }
    }

    /// For how long no slot is stamped on account of one that was missed.
    #[must_use]
    pub fn left(&self, now_us: u64, quarantine: Duration) -> Option<Duration> {
        let passed = Duration::from_micros(now_us.saturating_sub(self.missed_us));
        let left = quarantine.saturating_sub(passed);
        (!left.is_zero()).then_some(left)
    }
}

#[cfg(test)]
mod every_order;

#[cfg(test)]
mod tests {
    use super::*;

    const F: Duration = Duration::from_secs(10);

    fn at(seconds: u64) -> Moment {
        Moment::from_start(Duration::from_secs(seconds))
    }

    fn ranges(all: &[(u16, u16, &str)]) -> Vec<Range> {
        let range = |(first, last, owner): &(u16, u16, &str)| Range {
            first: *first,
            last: *last,
            owner: (*owner).to_owned(),
        };
        all.iter().map(range).collect()
    }

    #[test]
    fn a_slot_has_the_owner_that_a_majority_of_the_listed_nodes_names() {
        let mut slots = Slots::of(3);
        let before = ranges(&[(0, 99, "a"), (100, 16_383, "b")]);
        slots.on_answer(0, None, at(100), before.clone(), F);
        assert_eq!(slots.owner(0, at(100)), None, "one of three");
        slots.on_answer(1, None, at(102), before, F);
        assert_eq!(slots.owner(99, at(100)), Some("a"));
        assert_eq!(slots.owner(16_383, at(109)), Some("b"));
        assert_eq!(slots.owner(0, at(110)), None, "too long ago");
        // Slots 50 to 99 move: one node knows, then two.
        let after = ranges(&[(0, 49, "a"), (50, 16_383, "b")]);
        slots.on_answer(2, None, at(104), after.clone(), F);
        assert_eq!(slots.owner(50, at(105)), Some("a"));
        assert_eq!(slots.owner(49, at(111)), Some("a"), "named by three");
        slots.on_answer(0, None, at(105), after, F);
        assert_eq!(slots.owner(50, at(105)), Some("b"));
        assert_eq!(slots.slots_of("a").max(), Some(49));
        // What took long is not news.
        slots.on_answer(0, None, at(1), Vec::new(), F);
        assert_eq!(slots.owner(50, at(105)), Some("b"));
    }

    #[test]
    fn the_same_node_under_two_addresses_counts_once() {
        let mut slots = Slots::of(3);
        let all = ranges(&[(0, 16_383, "a")]);
        slots.on_answer(0, Some("a"), at(1), all.clone(), F);
        slots.on_answer(1, Some("a"), at(1), all.clone(), F);
        assert_eq!(slots.owner(7, at(1)), None);
        slots.on_answer(2, Some("b"), at(1), all, F);
        assert_eq!(slots.owner(7, at(1)), Some("a"));
    }

    #[test]
    fn all_owners_are_known_only_by_answers_asked_since() {
        let set = |ids: &[&str]| Some(ids.iter().map(|id| (*id).to_owned()).collect());
        let mut slots = Slots::of(3);
        let all = ranges(&[(0, 99, "a"), (100, 16_383, "b")]);
        slots.on_answer(0, None, at(100), all.clone(), F);
        slots.on_answer(1, None, at(102), all.clone(), F);
        assert_eq!(slots.owners_since(at(100), F), set(&["a", "b"]));
        assert_eq!(slots.owners_since(at(101), F), None, "one of three");
        // Slots without an owner may be those of anybody.
        let rest = ranges(&[(100, 16_383, "b")]);
        slots.on_answer(1, None, at(103), rest.clone(), F);
        slots.on_answer(2, None, at(103), rest, F);
        assert_eq!(slots.owners_since(at(100), F), None);
        assert!(slots.is_unowned(99, at(103), F) && !slots.is_unowned(100, at(103), F));
        assert!(!slots.is_unowned(99, at(113), F), "too long ago");
        let after = ranges(&[(0, 16_383, "b")]);
        slots.on_answer(1, None, at(104), after.clone(), F);
        slots.on_answer(2, None, at(104), after, F);
        assert_eq!(slots.owners_since(at(104), F), set(&["b"]));
    }

    #[test]
    fn an_owner_that_is_missed_keeps_slots_from_being_stamped() {
        const W: Duration = Duration::from_secs(60);
        let set = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect();
        let second = 1_000_000;
        let record = Owners::default().replaced(set(&["a", "b"]), 100 * second);
        assert_eq!(record.left(100 * second, W), None, "nobody is missed");
        let grown = record.replaced(set(&["a", "b", "c"]), 101 * second);
        assert_eq!(grown.left(101 * second, W), None);
        assert_eq!(Owners::read(&grown.written()), Some(grown.clone()));
        assert_eq!(Owners::read("fencepost-marker 1\nnode 0\n"), None);
        let missed = grown.replaced(set(&["a", "c"]), 102 * second);
        assert_eq!(missed.left(102 * second, W), Some(W));
        // It comes back, and what was said of it stays.
        let back = missed.replaced(set(&["a", "b", "c"]), 122 * second);
        assert_eq!(back.left(122 * second, W), Some(2 * W / 3));
        assert_eq!(back.left(162 * second, W), None);
        // A clock that goes back makes it longer and never shorter.
        let early = back.replaced(set(&["a", "b", "c"]), 50 * second);
        assert_eq!(early.left(50 * second, W), Some(W));
        // Any place of a shard may know of one that the others do not.
        let both = record.and(missed);
        assert!(both.misses_any(&set(&["a", "b"])) && both.missed_us == 102 * second);
    }

    #[test]
    fn only_the_same_process_under_the_same_epoch_vouches_for_a_slot() {
        let stamp = |run_id: &str, epoch| Stamp {
            run_id: run_id.to_owned(),
            epoch,
        };
        let found = stamp("a", 7).written("x");
        assert!(stamp("a", 7).vouches_for(Some(&found)));
        for other in [stamp("a", 8), stamp("b", 7), stamp("", 7), stamp("a", 70)] {
            assert!(!other.vouches_for(Some(&found)));
        }
        assert!(!stamp("a", 7).vouches_for(None) && !stamp("a", 7).vouches_for(Some("a")));
    }
}
