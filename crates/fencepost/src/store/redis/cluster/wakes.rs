//! Wake-ups that stay in one shard. What is published in a Cluster goes to all its nodes. What is published in a
//! shard (`SPUBLISH`, since Redis 7) goes to those who have subscribed at the owner of the channel's slot. So while
//! somebody waits for a lock, the client subscribes there to a channel that has the slot of that lock.
//!
//! Nothing depends on it. A script publishes to all nodes where nobody hears it in the shard: as long as the
//! subscription is not there, while a slot moves, at an older server, or where the user may not subscribe.
//!
//! When a slot has moved away, its old owner ends the subscription with a message that nobody has asked for. That
//! ends the connection, and the next one subscribes to what is still there.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::task::AbortHandle;
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::map::Map;
use crate::runtime::tasks;
use crate::store::WakeSink;
use crate::store::redis::connection::keeper::Source;
use crate::store::redis::encoding::keys::slot_of;
use crate::store::redis::protocol::reader::Reader;
use crate::store::redis::waking::listener::{Channels, Followed, Scope, Subscription};
use fencepost_core::name::LockName;
use fencepost_core::ticket::ClientId;

/// Changes within this time are made together. A wait that is shorter is not worth a subscription.
const SETTLE: Duration = Duration::from_millis(5);
/// How often channels are given up that nobody needs any more: who waits again soon finds them there.
const TIDY_EVERY: Duration = Duration::from_secs(10);

/// Subscribes one client at the shards of the locks that it waits for.
pub(super) struct ShardWakes {
    pub(super) map: Arc<Map>,
    /// The channels of all clients of this node.
    pub(super) attended: Followed,
    pub(super) client: ClientId,
    pub(super) connect_timeout: Duration,
    /// Gone when the client does not listen any more.
    pub(super) sink: Weak<dyn WakeSink>,
}

/// A channel, and the master at which it was wanted last.
struct Attended {
    name: LockName,
    owner: Option<String>,
}

/// The subscriptions at one shard: gone with this.
struct AtShard {
    channels: Followed,
    task: AbortHandle,
}

impl Drop for AtShard {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl ShardWakes {
    /// Runs until the task is aborted.
    pub(super) async fn run(self) {
        let mut wanted = self.attended.watch();
        let mut kept: BTreeMap<String, Attended> = BTreeMap::new();
        // By id and address: a node may come back elsewhere.
        let mut shards: BTreeMap<(String, String), AtShard> = BTreeMap::new();
        let mut tidy = interval(TIDY_EVERY);
        tidy.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                // It ends with the node, and so does this task.
                Ok(()) = wanted.changed() => sleep(SETTLE).await,
                _ = tidy.tick() => {
                    let wanted = wanted.borrow();
                    kept.retain(|channel, _| wanted.contains_key(channel));
                }
                () = self.map.changed(), if !kept.is_empty() => {}
            }
            for (channel, (name, _)) in wanted.borrow_and_update().iter() {
                if channel.ends_with(self.client.as_str()) && !kept.contains_key(channel) {
                    let (name, owner) = (name.clone(), None);
                    kept.insert(channel.clone(), Attended { name, owner });
                }
            }
            let mut at: BTreeMap<_, Channels> = BTreeMap::new();
            for (channel, attended) in &mut kept {
                // An owner that is not named at the moment is as good as any other.
                let owner = self.map.owner(slot_of(channel));
                attended.owner = owner.or(attended.owner.take());
                if let Some(owner) = &attended.owner {
                    let shard = (owner.clone(), self.map.address(owner));
                    let channels = at.entry(shard).or_default();
                    channels.insert(channel.clone(), (attended.name.clone(), 1));
                }
            }
            shards.retain(|shard, _| at.contains_key(shard));
            for (shard, channels) in at {
                if let Some(at_shard) = shards.get(&shard) {
                    at_shard.channels.replace(channels);
                } else if let Some(at_shard) = self.subscribe(&shard.0, channels) {
                    shards.insert(shard, at_shard);
                }
            }
        }
    }

    /// Keeps a connection to that master. `None` while nobody knows the way.
    fn subscribe(&self, owner: &str, wanted: Channels) -> Option<AtShard> {
        let route = Arc::new(self.map.route(owner).ok()?);
        let login = self.map.login().clone();
        let channels = Followed::default();
        channels.replace(wanted);
        let subscription = Subscription {
            source: Arc::new(Source::Url { route, login }),
            label: self.map.address(owner),
            scope: Scope::Shard,
            followed: channels.clone(),
            connect_timeout: self.connect_timeout,
            reader: Reader::default(),
            sink: Weak::clone(&self.sink),
        };
        let task = tasks::spawn(subscription.run()).abort_handle();
        Some(AtShard { channels, task })
    }
}
