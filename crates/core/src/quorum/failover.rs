//! When a voter counts whose address moves: a Sentinel group, which promotes a replica when its
//! master fails and loses what was not replicated.
//!
//! # Why it is safe
//! A Sentinel names one master at a time: an address, and the epoch of the failover that put it
//! there. A master's reply counts only while a majority of the *configured* Sentinels has named it
//! within the last `F` ([`Naming::counts`]). Two majorities share a Sentinel. So a client that sees
//! the new master named has asked a Sentinel that had switched, and what that Sentinel said before
//! is older: `F` later, no client counts a reply of the old master. The last lock granted there
//! expires `max_ttl` after that. The new master does not vote for longer, [`quarantine`]; that time
//! starts when a client first finds it named.
//!
//! An isolated master that still has a majority of the Sentinels on its side cannot be replaced.
//! One that has not stops counting within `F`, because no majority names it. It must also refuse
//! writes by itself when its replicas are gone ([`check_fencing`]), for clients with another list
//! of Sentinels.

use std::time::Duration;

use crate::words::Moment;

/// The maximum number of Sentinels of one group.
pub const MOST_SENTINELS: usize = 9;
/// The default `F`.
pub const FAILOVER: Duration = Duration::from_secs(10);
/// The minimum `F`: a server measures the lag of its replicas in whole seconds.
pub const SHORTEST_FAILOVER: Duration = Duration::from_secs(1);
/// The maximum `F`.
pub const LONGEST_FAILOVER: Duration = Duration::from_secs(10 * 60);

/// A master as a Sentinel names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Master {
    /// Its host.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// Grows with every failover: the same address may return as another master.
    pub epoch: u64,
}

/// The last answer of one Sentinel.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Word<M> {
    /// The Sentinel's own id, if it tells.
    identity: Option<String>,
    /// When it was asked: the answer is not older.
    asked: Moment,
    /// The master that it named.
    master: Option<M>,
}

/// The answers of the Sentinels of one group. The listed nodes of a Cluster name the owner of a
/// [slot](super::slots) by the same rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Naming<M = Master> {
    within: Duration,
    words: Vec<Option<Word<M>>>,
}

impl<M: Clone + PartialEq> Naming<M> {
    /// For this many configured Sentinels, without answers so far. An answer counts for `within`.
    #[must_use]
    pub fn of(sentinels: usize, within: Duration) -> Self {
        let words = (0..sentinels).map(|_| None).collect();
        Self { within, words }
    }

    /// How many Sentinels must name a master: a majority of the configured ones.
    #[must_use]
    pub fn needed(&self) -> usize {
        self.words.len() / 2 + 1
    }

    /// Records the answer of a Sentinel that was asked at that moment. Answers to older questions
    /// are ignored.
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

    /// The master named by a majority.
    #[must_use]
    pub fn master(&self, now: Moment) -> Option<&M> {
        let mut named = self
            .words
            .iter()
            .flatten()
            .filter_map(|w| w.master.as_ref());
        named.find(|master| self.counts(master, now))
    }

    /// Whether a reply of this master at that moment counts.
    #[must_use]
    pub fn counts(&self, master: &M, now: Moment) -> bool {
        self.until(master).is_some_and(|until| now < until)
    }

    /// Until when its replies count without further answers.
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

    /// Whether it is the same Sentinel as an earlier one in the list: none counts twice.
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

/// How long a master does not vote after a promotion or other possible data loss: until every lock
/// that the old master may have granted has expired, including the time for which its replies
/// counted (`F`) and it accepted writes without its replicas (`F`).
#[must_use]
pub fn quarantine(max_ttl: Duration, failover: Duration) -> Duration {
    max_ttl.saturating_add(failover.saturating_mul(2))
}

/// A master's settings for lost replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fencing {
    /// `min-replicas-to-write`
    pub min_replicas: u64,
    /// `min-replicas-max-lag`, in seconds.
    pub max_lag: u64,
}

/// Checks that a master which is partitioned from its replicas refuses writes in time.
///
/// # Errors
/// The unsafe setting, its value, and the right value.
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
    // Zero disables the check.
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
