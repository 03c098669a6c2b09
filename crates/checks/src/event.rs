//! [`Event`]: one thing that happened, as one line of JSON.
//!
//! Events say what a client *saw*, at a time that is common to all who write them: nanoseconds of
//! the boot clock on one machine, virtual time in the simulation. Times on another clock must be
//! converted before they get here.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A moment: nanoseconds on the clock that the whole history shares.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Time(pub u64);

impl Time {
    /// The moment that lies so much later.
    #[must_use]
    pub fn after(self, time: Duration) -> Self {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(nanos))
    }
}

impl fmt::Display for Time {
    /// Seconds, to the microsecond.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = self.0 / 1_000;
        write!(f, "{}.{:06}s", micros / 1_000_000, micros % 1_000_000)
    }
}

/// A client: one process.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct ClientId(pub u32);

/// One request for a lock and the lease that may come of it; unique within its client.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct LeaseId(pub u64);

/// One request for a lock, from the asking to the end of its lease.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LeaseRef {
    /// Who asks.
    pub client: ClientId,
    /// The lock's name.
    pub lock: String,
    /// Which request of this client's.
    pub lease: LeaseId,
}

impl fmt::Display for LeaseRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (client, lease) = (self.client.0, self.lease.0);
        write!(f, "client {client} lease {lease} of {:?}", self.lock)
    }
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// When.
    pub at: Time,
    /// What.
    #[serde(flatten)]
    pub what: What,
}

/// What happened, and to whom.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// Something about one request or its lease.
    Lease {
        /// Which one.
        #[serde(flatten)]
        of: LeaseRef,
        /// What.
        step: Step,
    },
    /// Something about a whole client process.
    Client {
        /// Which one.
        client: ClientId,
        /// What.
        change: Change,
    },
    /// What the resource that a lock guards holds in the end.
    Found {
        /// The lock that guards it.
        lock: String,
        /// Its items.
        items: Vec<u64>,
    },
    /// All faults have ended: nodes, network and clients work from now on.
    Healed {},
    /// What a node still holds when nothing should be left: TTL and grace are over. Write it also
    /// when it is nothing.
    KeysLeft {
        /// Which node.
        node: String,
        /// The keys; counters do not belong here, they are kept on purpose.
        keys: Vec<String>,
    },
}

/// The steps of a request and its lease, in the order in which they can come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// It begins. Write it before the first call.
    Asked,
    /// It has its place in line.
    Queued,
    /// The lock is ours. Write it after the call has returned.
    Acquired {
        /// The fencing token.
        token: u64,
        /// When its validity ends if it is not extended.
        valid_until: Time,
    },
    /// Its validity is longer now, by a renewal or by an extension.
    Extended {
        /// When it ends now.
        valid_until: Time,
    },
    /// The holder was told that it is lost.
    LossTold {
        /// Why, in a word.
        reason: String,
    },
    /// The holder begins to give it back: write it before the call. Its validity ends here.
    Releasing,
    /// The release has returned.
    Released {
        /// What it said.
        outcome: Outcome,
    },
    /// The request ended without the lock.
    Failed {
        /// Why, in a word: `held`, `no_quorum`, …
        error: String,
    },
    /// The future or the lease was dropped: nobody waits for it or holds it any more.
    Dropped,
    /// The holder wrote to the resource that the lock guards. Write it when the resource decided.
    Wrote {
        /// What was to be added to the set.
        item: u64,
        /// With which token.
        token: u64,
        /// Whether the resource took it.
        accepted: bool,
    },
}

/// What a release said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It was ours, and is given back.
    Released,
    /// It was no longer ours.
    Lost,
    /// Too few nodes answered to tell.
    Unknown,
}

/// What happens to a client process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// It stands still: nothing of it runs, its clock goes on.
    Paused,
    /// It runs again.
    Resumed,
    /// It is gone, and does nothing more.
    Died,
}

impl Event {
    /// A step of a request or its lease.
    #[must_use]
    pub fn lease(at: Time, of: &LeaseRef, step: Step) -> Self {
        let of = of.clone();
        let what = What::Lease { of, step };
        Self { at, what }
    }

    /// A change of a client process.
    #[must_use]
    pub fn client(at: Time, client: ClientId, change: Change) -> Self {
        let what = What::Client { client, change };
        Self { at, what }
    }

    /// The end of all faults.
    #[must_use]
    pub fn healed(at: Time) -> Self {
        let what = What::Healed {};
        Self { at, what }
    }

    /// What the resource behind a lock holds in the end.
    #[must_use]
    pub fn found(at: Time, lock: impl Into<String>, items: Vec<u64>) -> Self {
        let lock = lock.into();
        let what = What::Found { lock, items };
        Self { at, what }
    }

    /// What is left on a node.
    #[must_use]
    pub fn keys_left(at: Time, node: impl Into<String>, keys: Vec<String>) -> Self {
        let node = node.into();
        let what = What::KeysLeft { node, keys };
        Self { at, what }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.at)?;
        match &self.what {
            What::Lease { of, step } => write!(f, "{of}: {step}"),
            What::Client { client, change } => {
                write!(
                    f,
                    "client {}: {}",
                    client.0,
                    format!("{change:?}").to_lowercase()
                )
            }
            What::Found { lock, items } => {
                write!(f, "resource {lock:?} holds {} items", items.len())
            }
            What::Healed {} => f.write_str("all faults have ended"),
            What::KeysLeft { node, keys } => write!(f, "node {node} has left: {keys:?}"),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Asked => f.write_str("asked"),
            Self::Queued => f.write_str("stands in line"),
            Self::Acquired { token, valid_until } => {
                write!(f, "acquired with token {token}, valid until {valid_until}")
            }
            Self::Extended { valid_until } => write!(f, "extended, valid until {valid_until}"),
            Self::LossTold { reason } => write!(f, "told that it is lost: {reason}"),
            Self::Releasing => f.write_str("begins to release"),
            Self::Released { outcome } => {
                write!(
                    f,
                    "release returned: {}",
                    format!("{outcome:?}").to_lowercase()
                )
            }
            Self::Failed { error } => write!(f, "failed: {error}"),
            Self::Dropped => f.write_str("dropped"),
            Self::Wrote {
                item,
                token,
                accepted,
            } => {
                let verdict = if *accepted { "accepted" } else { "refused" };
                write!(f, "wrote {item} with token {token}: {verdict}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line_of_json_and_comes_back() {
        let lease = LeaseRef {
            client: ClientId(3),
            lock: "job".into(),
            lease: LeaseId(9),
        };
        let token = (1 << 53) - 1;
        let valid_until = Time(u64::MAX);
        let events = [
            Event::lease(Time(1), &lease, Step::Asked),
            Event::lease(Time(2), &lease, Step::Acquired { token, valid_until }),
            Event::client(Time(3), ClientId(3), Change::Paused),
            Event::found(Time(4), "job", vec![1, 2]),
            Event::healed(Time(5)),
            Event::keys_left(Time(6), "a:1", vec!["job".into()]),
        ];
        for event in events {
            let line = serde_json::to_string(&event).unwrap();
            assert!(!line.contains('\n'));
            assert_eq!(
                serde_json::from_str::<Event>(&line).unwrap(),
                event,
                "{line}"
            );
        }
        let line = r#"{"at":1,"lease":{"client":3,"lock":"job","lease":9,"step":"asked"}}"#;
        let asked = Event::lease(Time(1), &lease, Step::Asked);
        assert_eq!(serde_json::to_string(&asked).unwrap(), line);
    }
}
