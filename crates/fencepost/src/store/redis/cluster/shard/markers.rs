//! Whether a master may have forgotten locks, by the shard's marker.
//!
//! The marker stands in some of the shard's slots, its *places*: slots have to be somewhere, and a marker in
//! a slot that moves away is gone. Each is a fact that stays true, "this process has had this role at least
//! since then": so it does no harm anywhere, any of them will do, and the oldest tells most.
//!
//! Behind each stands which owners have been seen: see [`slots`](fencepost_core::quorum::slots).

use std::collections::BTreeSet;
use std::sync::PoisonError;
use std::time::Duration;

use futures_util::future::{join, join_all};
use tokio::time::{sleep, timeout};

use super::{Inner, Recorded, Up, Waits};
use crate::error::NodeError;
use crate::runtime::clock::Moment;
use crate::store::redis::cluster::refusal::Refusal;
use crate::store::redis::encoding::keys::of_slot;
use crate::store::redis::options::RedisOptions;
use crate::store::redis::protocol::command::Cmd;
use crate::store::redis::voting::handshake::Facts;
use crate::store::redis::voting::membership::incarnation;
use fencepost_core::quorum::failover::quarantine;
use fencepost_core::quorum::membership::{Marker, Sight, Stage, Verdict, judge};
use fencepost_core::quorum::slots::Owners;

/// One slot in so many is a place for a marker; the first one of a shard that has none of these.
const PLACE_EVERY: u16 = 256;
/// How often a shard is looked at that votes, and one that has not recorded all owners.
const LOOK_EVERY: Duration = Duration::from_secs(3);
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Where the markers of a shard with these slots stand.
pub(in super::super) fn places(slots: &[u16], first: u16) -> Vec<u16> {
    let places = slots.iter().copied().filter(|slot| slot % PLACE_EVERY == 0);
    let mut places: Vec<u16> = places.collect();
    if places.is_empty() {
        places.push(first);
    }
    places
}

/// What is known of a master's markers.
pub(super) struct Known {
    since_us: u64,
    history: String,
    /// Where they stand.
    places: Vec<u16>,
    pub(super) left: Option<Duration>,
    /// The owners recorded there.
    owners: Owners,
    /// Whether each place has recorded them, and no other.
    is_recorded: bool,
}

impl Inner {
    /// Resolves when the master may have forgotten, or is none any more.
    pub(super) async fn watch(&self, up: &Up, mut known: Known) -> NodeError {
        loop {
            let longest = match known.is_recorded {
                true => LOOK_EVERY,
                false => LOOK_AGAIN,
            };
            let pause = known.left.map_or(longest, |left| left.min(longest));
            tokio::select! {
                biased;
                () = up.alarm.rung() => {}
                () = up.wanted.notified() => {}
                () = sleep(pause) => {}
            }
            let limit = self.options.mute_timeout;
            let seen = timeout(limit, self.enter(up, Some(&known))).await;
            let seen = match seen.unwrap_or(Err(NodeError::Timeout(limit))) {
                Ok(seen) => seen,
                Err(error) => return error,
            };
            // A quarantine may end, and never begin, on a connection that stands.
            if seen.since_us > known.since_us || seen.history != known.history {
                let why = "its data were replaced while commands were in flight";
                return NodeError::Disconnected(why.to_owned());
            }
            known = seen;
        }
    }

    /// Finds out from its markers for how long a master does not vote, and writes those that are missing.
    pub(super) async fn enter(&self, up: &Up, before: Option<&Known>) -> Result<Known, NodeError> {
        let grace = quarantine(Duration::ZERO, self.map.failover()?);
        let sight = up.look(&self.options, grace).await?;
        let terms = self.membership.terms();
        let slots = self.map.slots_of(&self.id);
        let Some(first) = slots.first() else {
            return Err(NodeError::ClusterDown("its shard has no slots".to_owned()));
        };
        let places = places(&slots, *first);
        let found = join_all(places.iter().map(|place| up.get(of_slot::marker(*place)))).await;
        let (mut since_us, mut missing, mut kept) = (None, Vec::new(), Vec::new());
        let mut owners: Option<Owners> = None;
        // Whether one is gone that this connection had seen there.
        let mut is_forgotten = false;
        let mut is_used = false;
        for (place, found) in places.into_iter().zip(found) {
            let raw = match found {
                Ok(raw) => raw,
                // On its way from or to another shard.
                Err(error) if Refusal::of(&error).is_some_and(Refusal::is_passing) => continue,
                Err(error) => return Err(error),
            };
            is_used |= raw.is_some();
            let marker = match raw.as_deref().map(str::parse::<Marker>) {
                None => None,
                Some(Ok(marker)) => Some(marker),
                Some(Err(_)) => {
                    let why = "the marker cannot be read by this version".to_owned();
                    return Err(NodeError::Differs(why));
                }
            };
            let verdict = marker.as_ref().map(|m| (m, judge(terms, 0, m, &sight)));
            match verdict {
                Some((_, Verdict::Refuse(why))) => {
                    let why = format!("the Cluster is used on other terms: {why}");
                    return Err(NodeError::Differs(why));
                }
                // Of another process, or of a time in another role.
                None | Some((_, Verdict::Rewrite(Stage::Quarantine, _) | Verdict::Pending)) => {
                    is_forgotten |= before.is_some_and(|before| before.places.contains(&place));
                    missing.push((place, raw.unwrap_or_default()));
                }
                Some((marker, _)) => {
                    since_us =
                        Some(since_us.map_or(marker.since_us, |s: u64| s.min(marker.since_us)));
                    let raw = raw.clone().unwrap_or_default();
                    let there = Owners::read(&raw);
                    owners = match (owners, there.clone()) {
                        (Some(owners), Some(there)) => Some(owners.and(there)),
                        (owners, there) => owners.or(there),
                    };
                    kept.push((place, raw, there));
                }
            }
        }
        let is_moved = before.filter(|_| !is_forgotten);
        let since_us = since_us
            .or_else(|| is_moved.map(|before| before.since_us))
            .unwrap_or_else(|| match self.membership.is_fresh() && !is_used {
                // Nobody promises that of a shard that has failed over.
                true => 0,
                false => sight.now_us,
            });
        let marker = Marker {
            cluster: "-".to_owned(),
            epoch: 1,
            node: 0,
            terms: terms.clone(),
            stage: Stage::Quarantine,
            since_us,
            incarnation: incarnation()?,
            run_id: sight.run_id.clone(),
            history: sight.history.clone(),
            durable: false,
            fresh: false,
        };
        let owners = owners.or_else(|| is_moved.map(|before| before.owners.clone()));
        let owners = owners.unwrap_or(Owners {
            ids: BTreeSet::new(),
            missed_us: since_us,
        });
        let (owners, now_us, is_whole) = self.seen(up, owners, sight.now_us).await?;
        let text = format!("{marker}{}", owners.written());
        let (mut places, mut behind) = (Vec::new(), missing);
        for (place, raw, there) in kept {
            match there.as_ref() == Some(&owners) {
                true => places.push(place),
                false => behind.push((place, raw)),
            }
        }
        let writes = behind.iter().map(async |(place, raw)| {
            let written = up.replace(&of_slot::marker(*place), raw, &text).await;
            (*place, written)
        });
        let mut is_recorded = is_whole;
        for (place, written) in join_all(writes).await {
            match written {
                Ok(true) => places.push(place),
                Ok(false) => is_recorded = false,
                Err(error) if Refusal::of(&error).is_some_and(Refusal::is_passing) => {}
                Err(error) => return Err(error),
            }
        }
        is_recorded &= !places.is_empty();
        let left = match judge(terms, 0, &marker, &sight) {
            Verdict::Waits(left) => Some(left),
            _ => None,
        };
        let left = self.remembered(&up.run_id, left, |waits| &mut waits.votes);
        up.votes_after(left);
        let whole = terms.max_ttl.saturating_add(grace);
        let stamps = owners.left(now_us, whole);
        let stamps = self.remembered(&up.run_id, stamps, |waits| &mut waits.stamps);
        up.recorded.send_replace(is_recorded.then(|| Recorded {
            owners: owners.ids.clone(),
            stamps_after: stamps.map(|left| self.map.clock.now() + left),
        }));
        Ok(Known {
            since_us,
            history: sight.history,
            places,
            left,
            owners,
            is_recorded,
        })
    }

    /// What is to be recorded now, the server's time, and whether that is all owners there are.
    async fn seen(
        &self,
        up: &Up,
        before: Owners,
        now_us: u64,
    ) -> Result<(Owners, u64, bool), NodeError> {
        let owners = self.map.owners();
        if !before.misses_any(&owners) {
            return Ok((before.replaced(owners, now_us), now_us, true));
        }
        // What is known here may be older than what was recorded.
        let limit = self.options.mute_timeout / 4;
        match self.map.renewed_owners(limit).await {
            Some(owners) => {
                // Others count the one that is missed a while longer: from after the answers.
                let now_us = up.time().await?;
                Ok((before.replaced(owners, now_us), now_us, true))
            }
            None => {
                let known = Owners {
                    ids: owners,
                    missed_us: 0,
                };
                Ok((before.and(known), now_us, false))
            }
        }
    }

    /// For how long it waits, by its own clock and by ours.
    fn remembered(
        &self,
        run_id: &str,
        left: Option<Duration>,
        which: impl Fn(&mut Waits) -> &mut Option<Moment>,
    ) -> Option<Duration> {
        let now = self.map.clock.now();
        let mut waits = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
        if waits.run_id != run_id {
            *waits = Waits {
                run_id: run_id.to_owned(),
                ..Waits::default()
            };
        }
        let known = which(&mut waits);
        *known = left.map(|left| now + left).max(*known);
        let left = (*known)?.since(now);
        (!left.is_zero()).then_some(left)
    }
}

impl Up {
    /// What counts of the master for its markers.
    async fn look(&self, options: &RedisOptions, grace: Duration) -> Result<Sight, NodeError> {
        let info = Cmd::new("INFO");
        let (now_us, info) = join(self.time(), self.send(&info)).await;
        let facts = Facts::read(&info?.read::<String>().unwrap_or_default());
        facts.admit_of_cluster(options)?;
        let run_id = facts.run_id.filter(|run_id| *run_id == self.run_id);
        Ok(Sight {
            run_id: run_id.ok_or(NodeError::HidesInfo)?,
            history: facts.history,
            now_us: now_us?,
            syncs: None,
            grace,
        })
    }

    /// The server's clock, in microseconds.
    async fn time(&self) -> Result<u64, NodeError> {
        let time = self.send(&Cmd::new("TIME")).await?;
        let (seconds, micros): (u64, u64) = time.read().unwrap_or_default();
        Ok(seconds.saturating_mul(1_000_000).saturating_add(micros))
    }
}
