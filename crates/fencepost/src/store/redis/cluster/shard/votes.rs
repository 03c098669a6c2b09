//! When a vote of a shard counts.

use std::sync::atomic::Ordering;

use super::Up;
use super::slots::Vetted;
use crate::error::NodeError;
use crate::store::redis::encoding::keys::{Keys, of_slot};
use crate::store::redis::encoding::prepared::Prepared;
use fencepost_core::lock::{Command, Reply};

impl Up {
    /// Carries out one command, and counts no vote of a shard or a slot that may have forgotten.
    pub(in super::super) async fn carry_out(
        &self,
        slot: u16,
        keys: &Keys,
        command: &Command,
        may_go: impl Fn() -> Option<Reply>,
    ) -> Result<Reply, NodeError> {
        let clock = &*self.map.clock;
        if command.is_vote() {
            self.map.check(slot, &self.id)?;
        }
        let mut waits = self.quarantine_left(clock);
        let mut vetted = None;
        if waits.is_none() && (command.is_vote() || matches!(command, Command::Enqueue { .. })) {
            vetted = self.vetted(slot);
            if vetted.is_none() {
                vetted = match self.vet(slot).await {
                    Ok(vetted) => Some(vetted),
                    Err(NodeError::Quarantined(left)) => {
                        waits = Some(left);
                        None
                    }
                    Err(error) => return Err(error),
                };
            }
        }
        if let Some(reply) = may_go() {
            return Ok(reply);
        }
        let prepared = Prepared::with(keys.clone(), command.clone());
        let reply = self.link.perform_in(waits, &prepared, clock).await?;
        if !command.is_vote() {
            return Ok(reply);
        }
        if let Some(replicas) = self.replicas.as_ref().filter(|_| reply.holds()) {
            let key = of_slot::wait_key(slot);
            self.link.confirm_by(replicas, &key).await?;
        }
        if let Some(before) = vetted {
            self.confirm(slot, &before).await?;
        }
        // Last of all: it may have taken long to find out.
        self.map.check(slot, &self.id).map_err(carried_out)?;
        match self.is_revoked.load(Ordering::SeqCst) {
            true => Err(forgot()),
            false => Ok(reply),
        }
    }

    /// Whether a vote counts whose reply has come, for a slot that was complete before it was sent.
    async fn confirm(&self, slot: u16, before: &Vetted) -> Result<(), NodeError> {
        if self.tracks && self.alarm.count() == before.rung {
            return Ok(());
        }
        match self.vet(slot).await {
            Ok(now) if now.stamp == before.stamp => Ok(()),
            Ok(_) | Err(_) => Err(forgot()),
        }
    }
}

/// Why a vote does not count that the node has cast.
fn carried_out(why: NodeError) -> NodeError {
    match why.is_uncertain() {
        true => why,
        false => NodeError::Other(why.to_string()),
    }
}

/// A call was carried out by a shard that had forgotten, or on a slot that had moved.
fn forgot() -> NodeError {
    let why = "its data were replaced, or its slot moved, while the command was in flight";
    NodeError::Disconnected(why.to_owned())
}
