//! When a voter counts whose address moves: a Sentinel group, which promotes a replica when its master is
//! gone and loses what had not reached it.
//!
//! # Why it is safe
//! A Sentinel names one master at a time: an address, and the epoch of the failover that put it there. A
//! reply of a master counts only while a majority of the *configured* Sentinels has named it within the last
//! `F` ([`Naming::counts`]). Two majorities share a Sentinel. So whoever sees the new master named has met a
//! Sentinel that had changed its mind, and what that Sentinel said before is older than that: `F` later no
//! reply of the old master counts for anybody. The last lock granted there is over `max_ttl` after that. The
//! new master does not vote for longer, [`quarantine`]; that time begins when somebody first finds it named.
//!
//! An isolated master that still has a majority of the Sentinels on its side cannot be replaced. One that has
//! not is told so within `F` by what it does *not* hear; besides, it has to refuse writes by itself when its
//! replicas are gone ([`check_fencing`]), for whoever has another list of Sentinels.

use std::time::Duration;

use crate::words::Moment;

/// The most Sentinels of one group.
pub const MOST_SENTINELS: usize = 9;
/// `F` unless it is set.
pub const FAILOVER: Duration = Duration::from_secs(10);
/// The shortest `F`: a server counts the lag of its replicas in whole seconds.
pub const SHORTEST_FAILOVER: Duration = Duration::from_secs(1);
/// The longest `F`.
pub const LONGEST_FAILOVER: Duration = Duration::from_secs(10 * 60);

/// A master as a Sentinel names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Master {
    /// Its host.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// Grows with every failover: the same address comes back as another master.
    pub epoch: u64,
}

/// What one Sentinel said last.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Word<M> {
    /// Which Sentinel it says it is, where it tells.
    identity: Option<String>,
    /// When it was asked: what it says is not older.
    asked: Moment,
    /// What it named.
    master: Option<M>,
}

/// What the Sentinels of one group have named. The listed nodes of a Cluster name the owner of a
/// [slot](super::slots) by the same rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Naming<M = Master> {
    within: Duration,
    words: Vec<Option<Word<M>>>,
}

impl<M: Clone + PartialEq> Naming<M> {
    /// That many Sentinels are configured, of which none has said anything. What they say counts for
    /// `within`.
    #[must_use]
    pub fn of(sentinels: usize, within: Duration) -> Self {
        let words = (0..sentinels).map(|_| None).collect();
        Self { within, words }
    }

    /// How many Sentinels have to name a master: more than half of those that are configured.
    #[must_use]
    pub fn needed(&self) -> usize {
        self.words.len() / 2 + 1
    }

    /// A Sentinel answered what it was asked at that moment. An answer to an older question is not heard.
    pub fn on_answer(
        &mut self,
        sentinel: usize,
        identity: Option<&str>,
        asked: Moment,
        master: Option<M>,
    ) {
        let Some(word) = self.words.get_mut(sentinel) else {
            return;
        };
        if word.as_ref().is_some_and(|word| word.asked > asked) {
            return;
        }
        *word = Some(Word {
            identity: identity.map(str::to_owned),
            asked,
            master,
        });
    }

    /// The master that a majority names.
    #[must_use]
    pub fn master(&self, now: Moment) -> Option<&M> {
        let mut named = self
            .words
            .iter()
            .flatten()
            .filter_map(|w| w.master.as_ref());
        named.find(|master| self.counts(master, now))
    }

    /// Whether a reply of this master counts that came at that moment.
    #[must_use]
    pub fn counts(&self, master: &M, now: Moment) -> bool {
        self.until(master).is_some_and(|until| now < until)
    }

    /// Until when its replies count, if no Sentinel says anything more.
    #[must_use]
    pub fn until(&self, master: &M) -> Option<Moment> {
        let mut asked: Vec<Moment> = Vec::new();
        for (index, word) in self.words.iter().enumerate() {
            if let Some(word) = word
                && word.master.as_ref() == Some(master)
                && !self.is_repeated(index)
            {
                asked.push(word.asked);
            }
        }
        asked.sort_unstable_by(|one, other| other.cmp(one));
        asked
            .get(self.needed() - 1)
            .map(|asked| *asked + self.within)
    }

    /// Whether it is the same Sentinel as one before it in the list: none counts twice.
    #[must_use]
    pub fn is_repeated(&self, sentinel: usize) -> bool {
        let identity =
            |word: &Option<Word<M>>| word.as_ref().and_then(|word| word.identity.clone());
        let own = self.words.get(sentinel).and_then(identity);
        own.is_some()
            && self.words[..sentinel]
                .iter()
                .any(|other| identity(other) == own)
    }
}

/// How long a master does not vote that was promoted, or may have forgotten for another reason: until every
/// lock from before is over that the old one may have granted, for as long as its replies counted (`F`) and
/// as it took writes without its replicas (`F`).
#[must_use]
pub fn quarantine(max_ttl: Duration, failover: Duration) -> Duration {
    max_ttl.saturating_add(failover.saturating_mul(2))
}

/// What a master does when its replicas are gone, as it is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fencing {
    /// `min-replicas-to-write`
    pub min_replicas: u64,
    /// `min-replicas-max-lag`, in seconds.
    pub max_lag: u64,
}

/// Whether a master that is cut off from its replicas refuses writes in time.
///
/// # Errors
/// The setting that is unsafe, its value, and what would be right.
pub fn check_fencing(fencing: Fencing, failover: Duration) -> Result<(), String> {
    let Fencing {
        min_replicas,
        max_lag,
    } = fencing;
    let most = failover.as_secs();
    if min_replicas == 0 {
        return Err(
            "min-replicas-to-write is 0; set it to 1 or more, in the configuration of every server \
             of the group"
                .to_owned(),
        );
    }
    // Zero turns the check off.
    if max_lag == 0 || Duration::from_secs(max_lag) > failover {
        return Err(format!(
            "min-replicas-max-lag is {max_lag}; set it to 1 to {most} (seconds), in the \
             configuration of every server of the group"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const F: Duration = Duration::from_secs(10);

    fn at(seconds: u64) -> Moment {
        Moment::from_start(Duration::from_secs(seconds))
    }

    fn master(host: &str, epoch: u64) -> Master {
        let host = host.to_owned();
        Master {
            host,
            port: 6379,
            epoch,
        }
    }

    #[test]
    fn a_master_counts_while_a_majority_of_the_configured_sentinels_names_it() {
        let mut naming = Naming::of(3, F);
        let m = master("m", 1);
        assert_eq!(naming.master(at(100)), None);
        naming.on_answer(0, None, at(100), Some(m.clone()));
        assert!(
            !naming.counts(&m, at(100)),
            "one of three, though it is all that answer"
        );
        naming.on_answer(2, None, at(103), Some(m.clone()));
        assert_eq!(naming.master(at(104)), Some(&m));
        assert_eq!(
            naming.until(&m),
            Some(at(110)),
            "the older of the two that are needed"
        );
        assert!(naming.counts(&m, at(109)) && !naming.counts(&m, at(110)));
        naming.on_answer(1, None, at(105), Some(m.clone()));
        assert_eq!(naming.until(&m), Some(at(113)), "the newest two");
    }

    #[test]
    fn who_has_changed_its_mind_does_not_count_for_the_old_master() {
        let mut naming = Naming::of(3, F);
        let (old, new) = (master("m", 1), master("r", 2));
        for sentinel in 0..3 {
            naming.on_answer(sentinel, None, at(100), Some(old.clone()));
        }
        naming.on_answer(0, None, at(101), Some(new.clone()));
        assert!(naming.counts(&old, at(102)) && !naming.counts(&new, at(102)));
        naming.on_answer(1, None, at(101), Some(new.clone()));
        assert!(!naming.counts(&old, at(102)) && naming.counts(&new, at(102)));
        // An answer that took long is not news.
        naming.on_answer(1, None, at(99), Some(old.clone()));
        assert!(naming.counts(&new, at(102)));
        // Nor does one that knows of no master any more.
        naming.on_answer(1, None, at(103), None);
        assert_eq!(naming.master(at(103)), None);
    }

    #[test]
    fn the_same_address_after_another_failover_is_another_master() {
        let mut naming = Naming::of(3, F);
        naming.on_answer(0, None, at(1), Some(master("m", 1)));
        naming.on_answer(1, None, at(1), Some(master("m", 3)));
        assert_eq!(naming.master(at(1)), None);
        naming.on_answer(0, None, at(2), Some(master("m", 3)));
        assert_eq!(naming.master(at(2)), Some(&master("m", 3)));
    }

    #[test]
    fn the_same_sentinel_under_two_addresses_counts_once() {
        let mut naming = Naming::of(3, F);
        let m = master("m", 1);
        naming.on_answer(0, Some("a"), at(1), Some(m.clone()));
        naming.on_answer(1, Some("a"), at(1), Some(m.clone()));
        assert!(naming.is_repeated(1) && !naming.is_repeated(0));
        assert!(!naming.counts(&m, at(1)));
        naming.on_answer(2, Some("b"), at(1), Some(m.clone()));
        assert!(naming.counts(&m, at(1)));
    }

    #[test]
    fn a_master_that_goes_on_writing_alone_is_refused_by_the_name_of_the_setting() {
        let check = |min_replicas, max_lag| {
            let fencing = Fencing {
                min_replicas,
                max_lag,
            };
            check_fencing(fencing, F)
        };
        assert_eq!(check(1, 10), Ok(()));
        assert_eq!(check(2, 1), Ok(()));
        assert!(check(0, 10).is_err_and(|why| why.contains("min-replicas-to-write is 0")));
        for lag in [0, 11] {
            assert!(check(1, lag).is_err_and(|why| why.contains("min-replicas-max-lag is")));
        }
    }
}
