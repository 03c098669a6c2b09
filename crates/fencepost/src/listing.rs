//! [`Listing`]: the locks that the nodes know.
//!
//! A listing is a look, not a promise: a lock may come and go while the nodes are asked.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::timeout;

use crate::client::Fencepost;
use crate::error::{Error, NodeError, NodeOutcome};
use crate::status::Status;
use fencepost_core::name::LockName;

/// How long one node may take to name its locks.
const LIMIT: Duration = Duration::from_secs(30);
/// The most names that one node gives.
pub(crate) const MOST_NAMES: usize = 10_000;

/// Which names are wanted: a pattern in which `*` stands for anything and `?` for one character.
///
/// ```
/// use fencepost::NamePattern;
///
/// assert!(NamePattern::new("invoice-*").matches("invoice-42"));
/// assert!(!NamePattern::new("invoice-?").matches("invoice-42"));
/// assert!(NamePattern::all().matches("anything"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamePattern(Vec<char>);

impl NamePattern {
    /// A pattern.
    #[must_use]
    pub fn new(pattern: impl AsRef<str>) -> Self {
        Self(pattern.as_ref().chars().collect())
    }

    /// Every name.
    #[must_use]
    pub fn all() -> Self {
        Self::new("*")
    }

    /// Whether a name is wanted.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        let pattern = &self.0;
        let name: Vec<char> = name.chars().collect();
        let (mut p, mut n) = (0, 0);
        // Where the last star stands, and from where on it is to be tried again.
        let mut star = None;
        while n < name.len() {
            match pattern.get(p) {
                Some('*') => {
                    star = Some((p, n));
                    p += 1;
                }
                Some(c) if *c == '?' || *c == name[n] => {
                    p += 1;
                    n += 1;
                }
                _ => match &mut star {
                    Some((at, from)) => {
                        *from += 1;
                        (p, n) = (*at + 1, *from);
                    }
                    None => return false,
                },
            }
        }
        pattern[p..].iter().all(|c| *c == '*')
    }
}

/// The names that one node gives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// The names, in no order.
    pub names: Vec<LockName>,
    /// Whether it has more of them than it gives.
    pub more: bool,
}

impl Names {
    /// Puts a name in; whether there is room for another.
    pub(crate) fn push(&mut self, name: LockName) -> bool {
        if self.names.len() >= MOST_NAMES {
            self.more = true;
            return false;
        }
        self.names.push(name);
        true
    }
}

/// The locks that the nodes know.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Listing {
    /// What is known of each lock, by name. A lock that nobody holds is there for as long as its
    /// counter is remembered.
    pub locks: Vec<Status>,
    /// Why a node could not be asked, in the order in which they were configured.
    pub failed: Vec<(String, NodeError)>,
    /// Whether there are more names than a listing takes.
    pub more: bool,
}

impl Fencepost {
    /// How many nodes the client has.
    #[must_use]
    pub fn node_count(&self) -> usize {
        self.core.fleet.quorum.nodes()
    }

    /// The locks that the nodes know, and who holds them.
    ///
    /// On Redis the names are found by their token counters, with `SCAN` and never with `KEYS`: so
    /// it shows what fencepost has locked within the last 24 hours, and never a key of the server's
    /// that is no lock. A lock that only clients in other languages ever took has no counter and is
    /// not found; ask for its [`status`](Self::status) by name.
    ///
    /// # Errors
    /// [`Error::Unreachable`] when no node could be asked. One that could not is part of the
    /// answer.
    pub async fn list(&self, wanted: &NamePattern) -> Result<Listing, Error> {
        let fleet = &self.core.fleet;
        let asked = fleet.nodes().iter().map(|node| async {
            match timeout(LIMIT, node.names(wanted)).await {
                Ok(answer) => answer,
                Err(_) => Err(NodeError::Timeout(LIMIT)),
            }
        });
        let answers = join_all(asked).await;
        if answers.iter().all(Result::is_err) {
            let outcomes = answers.into_iter().map(|answer| match answer {
                Err(error) => NodeOutcome::Failed(error),
                Ok(_) => NodeOutcome::Agreed,
            });
            return Err(Error::Unreachable {
                needed: fleet.quorum.needed(),
                nodes: fleet.report(outcomes),
            });
        }
        let (mut names, mut failed, mut more) = (Vec::new(), Vec::new(), false);
        for (node, answer) in fleet.nodes().iter().zip(answers) {
            match answer {
                Ok(answer) => {
                    names.extend(answer.names);
                    more |= answer.more;
                }
                Err(error) => failed.push((node.address().to_owned(), error)),
            }
        }
        names.sort_unstable();
        names.dedup();
        Ok(Listing {
            locks: Status::ask_for_all(fleet, &names).await,
            failed,
            more,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_and_question_marks_are_what_people_expect() {
        for (pattern, name, fits) in [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-b-b", false),
            ("?", "ä", true),
            ("job-?", "job-", false),
            ("*-night", "report-night", true),
            ("a**", "a", true),
        ] {
            let matches = NamePattern::new(pattern).matches(name);
            assert_eq!(matches, fits, "{pattern} {name}");
        }
    }

    #[tokio::test]
    async fn a_listing_has_what_is_held_and_what_is_remembered() {
        let locks = Fencepost::memory().unwrap();
        let ttl = Duration::from_secs(10);
        let _held = locks.try_lock("b", ttl).await.unwrap();
        locks
            .try_lock("a", ttl)
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
        locks.try_lock("other", ttl).await.unwrap();
        let listing = locks.list(&NamePattern::new("?")).await.unwrap();
        let seen: Vec<_> = listing.locks.iter().collect();
        let seen: Vec<_> = seen
            .iter()
            .map(|lock| (lock.name.as_str(), lock.holder.is_some()))
            .collect();
        assert_eq!(seen, [("a", false), ("b", true)]);
    }
}
