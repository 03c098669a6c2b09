//! Which slots of a shard are complete, by their stamps: see [`slots`](fencepost_core::quorum::slots).

use std::convert::Infallible;
use std::time::Duration;

use futures_util::future::{join, join_all};
use tokio::time::sleep;

use super::Up;
use crate::error::NodeError;
use crate::store::redis::encoding::keys::of_slot;
use crate::store::redis::protocol::command::Cmd;
use crate::store::redis::voting::membership::incarnation;
use fencepost_core::quorum::slots::Stamp;

/// How often a stamp may change under our hands.
const MOST_CHANGES: usize = 8;
/// When the slots are stamped that nobody has used yet, and how many at once. A program that runs for a
/// moment leaves that to others.
const SWEEP_AFTER: Duration = Duration::from_secs(5);
const SWEPT_AT_ONCE: usize = 128;
const SWEEP_PAUSE: Duration = Duration::from_millis(5);

/// What is known of a slot.
#[derive(Clone)]
pub(super) struct Vetted {
    /// How often the alarm had rung before the stamp was read.
    pub(super) rung: u64,
    pub(super) stamp: String,
}

impl Up {
    /// Whether a command goes out at once that is sent now.
    pub(in super::super) fn is_ready(&self, slot: u16) -> bool {
        self.vetted(slot).is_some() || self.quarantine_left(&*self.map.clock).is_some()
    }

    /// Finds out what has to be known of a slot before a command goes out at once.
    pub(in super::super) async fn prepare(&self, slot: u16) {
        if !self.is_ready(slot) {
            let _ = self.vet(slot).await;
        }
    }

    /// Whether the slot is complete, as far as is known without asking.
    pub(super) fn vetted(&self, slot: u16) -> Option<Vetted> {
        let rung = self.alarm.count();
        let vetted = self.slots().get(&slot).cloned();
        vetted.filter(|vetted| self.tracks && vetted.rung == rung)
    }

    /// Finds out whether the slot is complete, and stamps it where that is sure.
    pub(super) async fn vet(&self, slot: u16) -> Result<Vetted, NodeError> {
        let key = of_slot::stamp(slot);
        for _ in 0..MOST_CHANGES {
            let rung = self.alarm.count();
            let (found, stamp) = join(self.get(key.clone()), self.stamp()).await;
            let (found, stamp) = (found?, stamp?);
            if stamp.vouches_for(found.as_deref()) {
                let stamp = found.unwrap_or_default();
                let vetted = Vetted { rung, stamp };
                self.slots().insert(slot, vetted.clone());
                return Ok(vetted);
            }
            self.check_calm().await?;
            let new = stamp.written(&incarnation()?);
            self.replace(&key, &found.unwrap_or_default(), &new).await?;
        }
        Err(NodeError::Other(format!(
            "slot {slot} changes all the time"
        )))
    }

    /// Under which stamp a slot is complete here at the moment.
    async fn stamp(&self) -> Result<Stamp, NodeError> {
        let mut info = Cmd::new("CLUSTER");
        let info = self.send(info.arg("INFO")).await?;
        let info: String = info.read().unwrap_or_default();
        let mut lines = info.lines();
        let epoch = lines.find_map(|line| line.strip_prefix("cluster_my_epoch:"));
        let epoch = epoch.and_then(|epoch| epoch.trim().parse().ok());
        let epoch = epoch.ok_or_else(|| {
            NodeError::Other("its answer to CLUSTER INFO cannot be read".to_owned())
        })?;
        let run_id = self.run_id.clone();
        Ok(Stamp { run_id, epoch })
    }

    async fn check_calm(&self) -> Result<(), NodeError> {
        match self.shards.upgrade() {
            Some(shards) => shards.check_calm().await,
            None => Err(NodeError::Disconnected("closed".to_owned())),
        }
    }

    /// Stamps the slots that nobody has used yet, in quiet times: so they can be used also in others.
    pub(super) async fn sweep(&self) -> Infallible {
        let mut swept = None;
        loop {
            sleep(SWEEP_AFTER).await;
            match self.sweep_once(swept).await {
                Ok(epoch) => swept = Some(epoch),
                Err(reason) => {
                    let node = self.map.address(&self.id);
                    tracing::debug!(node, %reason, "not all slots are stamped");
                }
            }
        }
    }

    async fn sweep_once(&self, swept: Option<u64>) -> Result<u64, NodeError> {
        let stamp = self.stamp().await?;
        if swept == Some(stamp.epoch) {
            return Ok(stamp.epoch);
        }
        let slots = self.map.slots_of(&self.id);
        let Some(first) = slots.first() else {
            return Ok(stamp.epoch);
        };
        let done = of_slot::swept(*first);
        let mut get = Cmd::new("GET");
        let found: Option<String> = self.send(get.arg(&done)).await?.read().unwrap_or_default();
        if stamp.vouches_for(found.as_deref()) {
            return Ok(stamp.epoch);
        }
        for slots in slots.chunks(SWEPT_AT_ONCE) {
            if self.quarantine_left(&*self.map.clock).is_some() {
                return Err(NodeError::Quarantined(Duration::ZERO));
            }
            // Looked at before anything is asked whether it is quiet: see `vet`.
            let found = slots.iter().map(async |slot| {
                let mut get = Cmd::new("GET");
                let found = self.send(get.arg(of_slot::stamp(*slot))).await?;
                Ok::<_, NodeError>((*slot, found.read::<Option<String>>().ok().flatten()))
            });
            let found: Result<Vec<_>, _> = join_all(found).await.into_iter().collect();
            self.check_calm().await?;
            let stale = found?.into_iter();
            let stale = stale.filter(|(_, found)| !stamp.vouches_for(found.as_deref()));
            let new = stamp.written(&incarnation()?);
            let writes = stale.map(async |(slot, found)| {
                let found = found.unwrap_or_default();
                self.replace(&of_slot::stamp(slot), &found, &new).await
            });
            for written in join_all(writes).await {
                written?;
            }
            sleep(SWEEP_PAUSE).await;
        }
        if self.stamp().await? != stamp {
            return Err(NodeError::Other("slots have come meanwhile".to_owned()));
        }
        let mut set = Cmd::new("SET");
        self.send(set.arg(&done).arg(stamp.written("-"))).await?;
        Ok(stamp.epoch)
    }
}
