//! [`Target`]: what is to be held while a command runs.
//!
//! Another kind of lock is a variant here and one in [`Held`]; nothing else has to know it.

use std::fmt;

use fencepost::{Client, Error, LockName, LockOptions, Progress};

use crate::exit::Failure;
use crate::held::Held;
use crate::names::{Names, typed};

/// How many names of many are shown to people.
const SHOWN: usize = 3;

/// What is wanted.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    /// A lock.
    One(LockName),
    /// A lock, together with others who share it.
    Shared(LockName),
    /// Several locks, all or none.
    All(Names),
    /// One of the slots of a semaphore.
    Slot { of: LockName, slots: usize },
    /// To lead, and to be seen under the value.
    Leader { of: LockName, value: String },
}

impl Target {
    /// Asks for it, waits for as long as the options say, and tells how the wait goes on.
    pub(crate) async fn ask(
        &self,
        locks: &Client,
        options: LockOptions,
        tell: impl Fn(Progress) + Send + Sync + 'static,
    ) -> Result<Held, Error> {
        match self {
            Self::One(name) => {
                let request = locks.lock(name.as_str()).options(options);
                Ok(Held::One(request.on_progress(tell).await?))
            }
            Self::Shared(name) => {
                let request = locks.read_write(name.as_str()).read().options(options);
                Ok(Held::Shared(request.on_progress(tell).await?))
            }
            Self::All(names) => {
                let request = locks.lock_all(names.iter().map(LockName::as_str));
                let request = request.options(options);
                Ok(Held::All(request.on_progress(tell).await?))
            }
            Self::Slot { of, slots } => {
                let semaphore = locks.semaphore(of.as_str(), *slots);
                let request = semaphore.acquire().options(options);
                Ok(Held::Slot(request.on_progress(tell).await?))
            }
            Self::Leader { of, value } => {
                let campaign = locks.election(of.as_str()).campaign(value);
                let campaign = campaign.options(options);
                Ok(Held::Leader(campaign.on_progress(tell).await?))
            }
        }
    }

    /// As it is typed, and as the command gets it in its environment.
    pub(crate) fn typed(&self) -> String {
        match self {
            Self::All(names) => typed(names.iter()),
            _ => typed(self.name()),
        }
    }

    /// The name, if it has one only.
    pub(crate) fn name(&self) -> Option<&LockName> {
        match self {
            Self::All(_) => None,
            Self::One(name)
            | Self::Shared(name)
            | Self::Slot { of: name, .. }
            | Self::Leader { of: name, .. } => Some(name),
        }
    }

    /// What is lost when it is: `which`, if it is one of several, and that is known.
    pub(crate) fn part(&self, which: Option<&LockName>) -> String {
        match (self, which) {
            (Self::All(_), Some(name)) => format!("lock \"{name}\""),
            (Self::All(_), None) => format!("one of {self}"),
            _ => self.to_string(),
        }
    }

    /// How a message about its holder begins, before who and since when.
    pub(crate) fn taken(&self) -> String {
        match self {
            Self::Slot { slots, .. } if *slots > 1 => format!("all {slots} are taken, one"),
            _ => "held".into(),
        }
    }

    /// Why it cannot be had, for people.
    pub(crate) fn refused(&self, mut why: Failure) -> Failure {
        if let (Self::Slot { of, .. }, true) = (self, why.holder.is_some()) {
            why.message = format!("every slot of \"{of}\" is taken; {}", why.message);
        }
        why
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(name) | Self::Shared(name) => write!(f, "lock \"{name}\""),
            Self::Slot { of, .. } => write!(f, "a slot of \"{of}\""),
            Self::Leader { of, .. } => write!(f, "the leadership of \"{of}\""),
            Self::All(names) => {
                write!(f, "locks \"{}\"", typed(names.iter().take(SHOWN)))?;
                match names.iter().count().saturating_sub(SHOWN) {
                    0 => Ok(()),
                    more => write!(f, " and {more} more"),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_read_what_it_is_and_never_a_hundred_names() {
        let all = |text| Target::All(Names::parse(text).unwrap());
        assert_eq!(all("b,a").to_string(), "locks \"a,b\"");
        let many = all("a,b,c,d,e");
        assert_eq!(many.to_string(), "locks \"a,b,c\" and 2 more");
        assert_eq!(many.typed(), "a,b,c,d,e");
        assert_eq!(many.part(None), "one of locks \"a,b,c\" and 2 more");
        let name = LockName::new("d").unwrap();
        assert_eq!(many.part(Some(&name)), "lock \"d\"");
        let slot = Target::Slot { of: name, slots: 3 };
        assert_eq!(slot.part(None), "a slot of \"d\"");
    }
}
