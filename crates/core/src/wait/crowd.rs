//! [`Crowds`]: the locks for which a client had to wait lately. Pure.
//!
//! A request for such a lock queues at once: its first attempt would be one for nothing, and take nodes
//! from the waiter whose turn it is.

use std::collections::HashMap;
use std::time::Duration;

use crate::words::moment::Moment;
use crate::words::name::LockName;

/// How many names are remembered. They are found out again by an attempt each.
const MOST_NAMES: usize = 1024;
/// How many requests in a row have to wait before the next one expects to.
const IN_A_ROW: u8 = 2;
/// How long that is expected after the last of them.
const LASTS: Duration = Duration::from_secs(1);

/// How often in a row requests had to wait, by name.
#[derive(Clone, Debug, Default)]
pub struct Crowds {
    waited: HashMap<LockName, (u8, Moment)>,
}

impl Crowds {
    /// Whether nothing is known of any name.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waited.is_empty()
    }

    /// A request had to wait for this lock.
    pub fn had_to_wait(&mut self, name: &LockName, now: Moment) {
        if self.waited.len() >= MOST_NAMES && !self.waited.contains_key(name) {
            self.waited.clear();
        }
        let (times, last) = self.waited.entry(name.clone()).or_insert((0, now));
        *times = times.saturating_add(1);
        *last = now;
    }

    /// A request found this lock free.
    pub fn found_free(&mut self, name: &LockName) {
        self.waited.remove(name);
    }

    /// Whether the next request will have to wait, as far as can be told.
    #[must_use]
    pub fn expects_to_wait(&self, name: &LockName, now: Moment) -> bool {
        let is_recent =
            |(times, last): &(u8, Moment)| *times >= IN_A_ROW && now.since(*last) < LASTS;
        self.waited.get(name).is_some_and(is_recent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Moment {
        Moment::from_start(Duration::from_millis(millis))
    }

    #[test]
    fn a_lock_is_crowded_after_two_waits_in_a_row_until_one_finds_it_free() {
        let (mut crowds, name) = (Crowds::default(), LockName::new("job").unwrap());
        crowds.had_to_wait(&name, at(0));
        assert!(!crowds.expects_to_wait(&name, at(0)));
        crowds.had_to_wait(&name, at(10));
        assert!(crowds.expects_to_wait(&name, at(20)));
        crowds.found_free(&name);
        assert!(!crowds.expects_to_wait(&name, at(20)) && crowds.is_empty());
    }

    #[test]
    fn a_crowd_is_forgotten_in_time() {
        let (mut crowds, name) = (Crowds::default(), LockName::new("job").unwrap());
        crowds.had_to_wait(&name, at(0));
        crowds.had_to_wait(&name, at(10));
        assert!(crowds.expects_to_wait(&name, at(1_009)));
        assert!(!crowds.expects_to_wait(&name, at(1_010)));
    }

    #[test]
    fn only_so_many_names_are_remembered() {
        let mut crowds = Crowds::default();
        for n in 0..=MOST_NAMES {
            crowds.had_to_wait(&LockName::new(format!("job-{n}")).unwrap(), at(0));
        }
        assert_eq!(crowds.waited.len(), 1);
    }
}
