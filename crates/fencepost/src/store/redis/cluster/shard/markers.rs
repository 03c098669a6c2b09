//! Whether a master may have forgotten locks, by the shard's marker.
//!
//! The marker stands in some of the shard's slots, its *places*: slots have to be somewhere, and a marker in
//! a slot that moves away is gone. Each is a fact that stays true, "this process has had this role at least
//! since then": so it does no harm anywhere, any of them will do, and the oldest tells most.

use std::sync::PoisonError;
use std::time::Duration;

use futures_util::future::{join, join_all};
use redis::from_redis_value;
use tokio::time::{sleep, timeout};

use super::super::super::handshake::Facts;
use super::super::super::keys::of_slot;
use super::super::super::membership::incarnation;
use super::super::super::options::RedisOptions;
use super::super::refusal::Refusal;
use super::{Inner, Up};
use crate::error::NodeError;
use fencepost_core::quorum::failover::quarantine;
use fencepost_core::quorum::membership::{Marker, Sight, Stage, Verdict, judge};

/// One slot in so many is a place for a marker; the first one of a shard that has none of these.
const PLACE_EVERY: u16 = 256;
/// How often a shard is looked at that votes.
const LOOK_EVERY: Duration = Duration::from_secs(3);

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
}

impl Inner {
    /// Resolves when the master may have forgotten, or is none any more.
    pub(super) async fn watch(&self, up: &Up, mut known: Known) -> NodeError {
        loop {
            let pause = known.left.map_or(LOOK_EVERY, |left| left.min(LOOK_EVERY));
            tokio::select! {
                biased;
                () = up.alarm.rung() => {}
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
                    kept.push(place);
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
        let text = marker.to_string();
        let writes = missing.iter().map(async |(place, raw)| {
            let written = up.replace(&of_slot::marker(*place), raw, &text).await;
            (*place, written)
        });
        for (place, written) in join_all(writes).await {
            match written {
                Ok(true) => kept.push(place),
                Ok(false) => {}
                Err(error) if Refusal::of(&error).is_some_and(Refusal::is_passing) => {}
                Err(error) => return Err(error),
            }
        }
        let left = match judge(terms, 0, &marker, &sight) {
            Verdict::Waits(left) => Some(left),
            _ => None,
        };
        let left = self.remembered(&up.run_id, left);
        up.votes_after(left);
        Ok(Known {
            since_us,
            history: sight.history,
            places: kept,
            left,
        })
    }

    /// For how long it does not vote, by its own clock and by ours.
    fn remembered(&self, run_id: &str, left: Option<Duration>) -> Option<Duration> {
        let now = self.map.clock.now();
        let mut waits = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
        let known = waits.as_ref().filter(|(of, _)| of == run_id);
        let known = known.map(|(_, until)| *until);
        let until = left.map(|left| now + left).max(known)?;
        *waits = Some((run_id.to_owned(), until));
        let left = until.since(now);
        (!left.is_zero()).then_some(left)
    }
}

impl Up {
    /// What counts of the master for its markers.
    async fn look(&self, options: &RedisOptions, grace: Duration) -> Result<Sight, NodeError> {
        let (time, info) = (redis::cmd("TIME"), redis::cmd("INFO"));
        let (time, info) = join(self.send(&time), self.send(&info)).await;
        let (seconds, micros): (u64, u64) = from_redis_value(time?).unwrap_or_default();
        let facts = Facts::read(&from_redis_value::<String>(info?).unwrap_or_default());
        facts.admit_of_cluster(options)?;
        let run_id = facts.run_id.filter(|run_id| *run_id == self.run_id);
        Ok(Sight {
            run_id: run_id.ok_or(NodeError::HidesInfo)?,
            history: facts.history,
            now_us: seconds.saturating_mul(1_000_000).saturating_add(micros),
            syncs: None,
            grace,
        })
    }
}
