//! A Redis Cluster: one voter whose locks are spread over many servers (`redis+cluster://n1,n2,n3`).
//!
//! - `url`: from a URL to the nodes that are asked.
//! - `map`: who owns which slots, by the word of a majority of the listed nodes.
//! - `shard`: one owner's connection, whether it may have forgotten, and which of its slots are complete.
//! - `refusal`: what a node says in place of an answer.
//! - `survey`: what the Cluster is like, for people.
//! - `slot_queue`: where calls wait for a slot that is not known yet, in order.
//! - `wakes`: wake-ups that stay in one shard.
//!
//! # Layout
//! A lock and the keys beside it share a hash slot, as everywhere. What a server has once, every slot has: the
//! fence register (`fencepost:fences:{tag}`) and a stamp (`fencepost:slot:{tag}`), where the tag is the smallest
//! number of that slot. A shard's marker stands in a few of its slots (`fencepost:marker:{tag}`).
//!
//! Only scripts are sent, never the plain commands of other servers: a script names all keys of its lock, and a
//! node carries it out only where all of them are. While a slot is on its way from one shard to another some
//! are missing on either side, and both answer `TRYAGAIN`. So no lock is ever seen by halves. Redis moves a
//! key with the rest of its TTL, and one slot takes milliseconds.
//!
//! # Why there is one holder
//! 1. *One owner.* A vote counts only if a majority of the listed nodes has named the shard as the owner of the
//!    slot within the last `F`, when it is sent and when its reply has come. `F` is `cluster-node-timeout`,
//!    unless the URL says `failover=`: here the shortest that a listed node tells, and in 2 and 3 the longest. A
//!    node that does not tell does not count. An owner that was replaced counts for nobody `F` later. Besides,
//!    a master without a majority of the masters refuses all commands by itself after `cluster-node-timeout`.
//! 2. *A shard that may have forgotten* (promoted, restarted, flushed) does not vote for `max_ttl + 2 F`: its
//!    markers name another process, another role, or are gone. The other shards vote as before.
//! 3. *A slot that comes from elsewhere* brings its locks, its register and its stamp, which names another owner. It
//!    votes at once if no shard of the Cluster is in quarantine; if one is, the slot may have come from there,
//!    and votes when that is over. Then it is stamped for its new owner. A shard that it came from and that has no
//!    slots any more has no markers either: every shard has recorded the owners that there were, and where one of
//!    these is missed, slots from elsewhere wait for `max_ttl + 2 F`.
//! 4. *In band.* The server tells of a change of the stamp before any later answer (`CLIENT TRACKING`). A vote
//!    counts only if the stamp is to the letter what it was before: a flush, a slot that left and a slot that left
//!    and came back all show. Where a server cannot track, the stamp is read behind each vote.
//!
//! Tokens stay unique and growing because the register of a name lies in its slot and moves with it. What a
//! failover loses of it is made up for by the proposals, which follow the clock; as for a Sentinel group.
//!
//! When in doubt availability pays: a slot that moves away from a shard in quarantine waits; one whose migration
//! gets stuck answers `TRYAGAIN` until somebody mends it; if a shard is lost, slots that were never stamped wait.
//! Unused slots are stamped in quiet times, so that this concerns few.
//!
//! Not noticed: slots that an operator assigns by hand without importing them (`CLUSTER SETSLOT NODE` alone) while
//! their shard has others; a shard that gets its first slot, fails over and is emptied before any client has looked;
//! and readers of a lock whose slot moves to a server with a clock that is
//! ahead, which end by that clock.

mod map;
mod refusal;
mod shard;
mod slot_queue;
mod survey;
mod url;
mod wakes;

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep};

use super::connection::keeper::Source;
use super::connection::link::{TOO_LATE, given_up};
use super::encoding::keys::{Keys, Prefix, of_slot};
use super::encoding::released::{self, Released};
use super::observe::{list, queue};
use super::options::RedisOptions;
use super::protocol::command::Cmd;
use super::protocol::reader::Reader;
use super::protocol::value::Value;
use super::voting::membership::Membership;
use super::voting::roster::Roster;
use super::waking::listener::{self, Followed, Scope, Subscription};
use crate::error::{Cause, Error, NodeError};
use crate::runtime::clock::Clock;
use crate::runtime::tasks;
use crate::store::{Call, Listener, Names, Node, Queued, WakeSink};
use fencepost_core::lock::{Command, Reply};
use fencepost_core::name::LockName;
use fencepost_core::pattern::NamePattern;
use fencepost_core::ticket::ClientId;
use map::{Map, WatchedMap};
use refusal::Refusal;
use shard::{Shard, Shards, Up};
use slot_queue::{Entry, SlotQueues, Waiting};
use wakes::ShardWakes;

pub(super) use survey::WatchedCluster;
pub(super) use url::ClusterSpec;

/// The pauses before a command goes out again that a moving slot has refused.
const SHORTEST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);
/// How many registers are listed at the same time.
const LISTED_AT_ONCE: usize = 256;

/// A Redis Cluster. Dropping it ends its tasks and its connections.
pub struct ClusterNode {
    label: String,
    prefix: Prefix,
    cluster: Arc<Cluster>,
    source: Arc<Source>,
    followed: Followed,
    /// The channels at the shards, for those who wait.
    attended: Followed,
    runtime: Handle,
    /// Connects to every shard, also to those that nobody has asked yet.
    connector: AbortHandle,
    _watched: WatchedMap,
}

/// What calls work with.
struct Cluster {
    map: Arc<Map>,
    shards: Arc<Shards>,
    released: Released,
    queues: SlotQueues,
    runtime: Handle,
    /// Which process may use it: not the child of a fork.
    process: u32,
    /// How long a command is sent again that was refused.
    patience: Duration,
}

impl Drop for ClusterNode {
    fn drop(&mut self) {
        self.connector.abort();
    }
}

impl ClusterNode {
    /// Connects in tasks on `runtime`, and does not wait for it.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidUrl`](crate::ErrorKind::InvalidUrl) and [`ErrorKind::InvalidOption`](crate::ErrorKind::InvalidOption) say what would be right.
    pub(crate) fn open(
        url: &str,
        options: RedisOptions,
        roster: &Roster,
        clock: Arc<dyn Clock>,
        runtime: &Handle,
    ) -> Result<Self, Error> {
        let prefix = Prefix::new(&options.prefix)?.spread();
        let spec = ClusterSpec::parse(url)?;
        let Some(membership) = roster.membership() else {
            return Err(Error::from(Cause::InvalidOption {
                option: "nodes",
                why: "a Redis Cluster votes only under its markers; use it alone".into(),
            }));
        };
        let label = spec.label.clone();
        let login = spec.login.clone();
        let watched = WatchedMap::start(spec, &options, clock, runtime)?;
        let map = Arc::clone(&watched.map);
        let source = Arc::new(Source::AnyOf {
            routes: map.routes.clone(),
            login,
            next: Default::default(),
        });
        let patience = options.mute_timeout / 2;
        let membership = Arc::clone(membership);
        let shards = Shards::new(Arc::clone(&map), options, membership, runtime.clone());
        let connector = tasks::spawn_on(runtime, connect_to_all(Arc::clone(&shards)));
        Ok(Self {
            label,
            prefix,
            cluster: Arc::new(Cluster {
                map,
                shards,
                released: Released::default(),
                queues: SlotQueues::default(),
                runtime: runtime.clone(),
                process: std::process::id(),
                patience,
            }),
            source,
            followed: Followed::default(),
            attended: Followed::default(),
            runtime: runtime.clone(),
            connector: connector.abort_handle(),
            _watched: watched,
        })
    }
}

impl ClusterNode {
    /// The same for a Cluster that nobody else uses: it votes at once.
    ///
    /// # Errors
    /// As for any URL.
    pub fn open_fresh(
        url: &str,
        options: RedisOptions,
        max_ttl: Duration,
        clock: Arc<dyn Clock>,
        runtime: &Handle,
    ) -> Result<Self, Error> {
        let nodes = vec![ClusterSpec::parse(url)?.label];
        let (retention, fresh) = (options.retention, true);
        let membership = Membership::new(nodes, max_ttl, retention, false, fresh, None);
        let roster = Roster::of(Arc::new(membership));
        Self::open(url, options, &roster, clock, runtime)
    }
}

async fn connect_to_all(shards: Arc<Shards>) {
    let mut known = BTreeSet::new();
    loop {
        let owners = shards.map.owners();
        for owner in &owners {
            shards.get(owner);
        }
        if owners != known {
            // At once: from then on it is known how long slots wait that come from one who is gone.
            shards.record_owners();
            known = owners;
        }
        shards.map.changed().await;
    }
}

impl Cluster {
    /// The connection to the shard of that slot, if it can be had at once.
    fn straight(&self, slot: u16) -> Option<Arc<Up>> {
        let owner = self.map.owner(slot)?;
        self.shards.get(&owner).now()?.ok()
    }

    async fn up(&self, slot: u16) -> Result<Arc<Up>, NodeError> {
        if self.process != std::process::id() {
            return Err(NodeError::Forked);
        }
        if let Some(up) = self.straight(slot) {
            return Ok(up);
        }
        // Below the time-out of a node, so that the reason is told and not the time.
        let limit = self.shards.options.mute_timeout * 2 / 5;
        let owner = self.map.locate(slot, limit).await?;
        let shard: Arc<Shard> = self.shards.get(&owner);
        let outcome = shard.settled().await;
        outcome.map_err(|why| match (&why, self.shards.down()) {
            (NodeError::Unreachable(_), Some(down)) => {
                NodeError::ClusterDown(format!("{down}; {why}"))
            }
            _ => why,
        })
    }

    /// Carries out one command, behind those that came before it for the same slot.
    async fn call(self: Arc<Self>, keys: Keys, command: Command) -> Result<Reply, NodeError> {
        let slot = keys.slot();
        let is_ready = || self.straight(slot).is_some_and(|up| up.is_ready(slot));
        match self.queues.enter(slot, keys, command, is_ready) {
            Entry::Straight(keys, command) => self.call_now(keys, command).await,
            Entry::Wait { reply, is_first } => {
                if is_first {
                    tasks::spawn_on(&self.runtime, Arc::clone(&self).serve(slot));
                }
                reply.await.unwrap_or_else(|_| {
                    let why = "the runtime that kept the connection is gone".to_owned();
                    Err(NodeError::Disconnected(why))
                })
            }
        }
    }

    /// Puts the calls that wait for a slot on their way, one after the other.
    async fn serve(self: Arc<Self>, slot: u16) {
        while let Some(waiting) = self.queues.next(slot) {
            if let Ok(up) = self.up(slot).await {
                // Whoever cannot go without finds the reason by itself.
                up.prepare(slot).await;
            }
            let Waiting {
                keys,
                command,
                reply,
            } = waiting;
            if reply.is_closed() {
                continue;
            }
            let cluster = Arc::clone(&self);
            let mut exchange = Box::pin(async move {
                let answer = cluster.call_now(keys, command).await;
                let _ = reply.send(answer);
            });
            // The first poll puts it on its way, in the order of these calls. The task polls again, which is
            // when it asks to be woken.
            let mut context = Context::from_waker(Waker::noop());
            if exchange.as_mut().poll(&mut context).is_pending() {
                tasks::spawn(exchange);
            }
        }
    }

    /// Carries out one command at the shard of its slot, and again where the slot has moved: what was refused
    /// for that was not done. It never takes the lock behind its own release.
    async fn call_now(&self, keys: Keys, command: Command) -> Result<Reply, NodeError> {
        let slot = keys.slot();
        if let Command::Release { value, .. } = &command {
            self.released.note(value);
        }
        let before = self.released.count();
        let taker = released::taker(&command);
        let is_released = || match taker {
            Some(value) => self.released.has(value, before),
            None => Some(false),
        };
        let end = Instant::now() + self.patience;
        let mut pause = SHORTEST_PAUSE;
        // Whether it was refused for nothing but having another owner.
        let mut has_moved = true;
        let mut is_late = !self.straight(slot).is_some_and(|up| up.is_ready(slot));
        loop {
            let up = self.up(slot).await?;
            let gone = || match is_released() {
                Some(false) => None,
                _ => Some(given_up(&command)),
            };
            if is_released().is_none() {
                return Err(NodeError::Unreachable(TOO_LATE.to_owned()));
            }
            let outcome = up.carry_out(slot, &keys, &command, gone).await;
            let refusal = outcome.as_ref().err().and_then(Refusal::of);
            match refusal {
                None => {
                    if let (true, Some(value), Some(true)) = (is_late, taker, is_released()) {
                        // Nobody can tell which of the two came first.
                        up.link.undo_acquire(&keys, value, &*self.map.clock).await?;
                        return Ok(given_up(&command));
                    }
                    return outcome;
                }
                Some(Refusal::Down) => {
                    let why = outcome.err().map(|why| refusal::words(&why));
                    return Err(NodeError::ClusterDown(why.unwrap_or_default()));
                }
                Some(refusal) => {
                    has_moved &= refusal == Refusal::Moved;
                    if Instant::now() + pause >= end {
                        return Err(match has_moved {
                            true => moved(slot),
                            false => NodeError::Migrating(slot),
                        });
                    }
                    if refusal == Refusal::Moved {
                        self.map.hurry();
                    }
                    is_late = true;
                    sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
    }

    /// All shards, each with why it cannot be asked if it cannot.
    async fn all(&self) -> Result<Vec<(String, Result<Arc<Up>, NodeError>)>, NodeError> {
        if self.process != std::process::id() {
            return Err(NodeError::Forked);
        }
        // Any slot: it waits until there is a map.
        self.map
            .locate(0, self.shards.options.connect_timeout)
            .await?;
        let shards = self.map.owners().into_iter().map(async |owner| {
            let up = self.shards.get(&owner).settled().await;
            (owner, up)
        });
        Ok(join_all(shards).await)
    }
}

/// Its owner has given it away, and too few nodes have heard of that.
fn moved(slot: u16) -> NodeError {
    NodeError::ClusterDown(format!(
        "slot {slot} has moved, and no majority of the listed nodes names its new owner yet"
    ))
}

impl Node for ClusterNode {
    fn call(&self, name: &LockName, command: Command) -> Call {
        let keys = self.prefix.keys(name);
        let cluster = Arc::clone(&self.cluster);
        Box::pin(async move { cluster.call(keys?, command).await })
    }

    /// A Cluster hands what is published to all its nodes: any of them will do. What is published in a shard is
    /// heard there.
    fn listen(&self, client: &ClientId, sink: Arc<dyn WakeSink>) -> Listener {
        let listening = Subscription {
            source: Arc::clone(&self.source),
            label: self.label.clone(),
            scope: Scope::Everywhere {
                channel: listener::channel(client),
            },
            followed: self.followed.clone(),
            connect_timeout: self.cluster.shards.options.connect_timeout,
            reader: Reader::default(),
            sink: Arc::downgrade(&sink),
        };
        let at_shards = ShardWakes {
            map: Arc::clone(&self.cluster.map),
            attended: self.attended.clone(),
            client: client.clone(),
            connect_timeout: self.cluster.shards.options.connect_timeout,
            sink: Arc::downgrade(&sink),
        };
        let tasks = [
            tasks::spawn_on(&self.runtime, listening.run()).abort_handle(),
            tasks::spawn_on(&self.runtime, at_shards.run()).abort_handle(),
        ];
        Listener::until(move || {
            // At once: the tasks and their connections take a while to end.
            drop(sink);
            tasks.iter().for_each(AbortHandle::abort);
        })
    }

    fn attend(&self, name: &LockName, client: &ClientId) -> Listener {
        match self.prefix.keys(name) {
            Ok(keys) => {
                let channel = listener::channel_at_shard(&keys, client);
                self.attended.add(channel, name)
            }
            Err(_) => Listener::deaf(),
        }
    }

    fn follow(&self, name: &LockName) -> Listener {
        match self.prefix.keys(name) {
            Ok(keys) => self.followed.add(keys.foreign_channel(), name),
            Err(_) => Listener::deaf(),
        }
    }

    fn address(&self) -> &str {
        &self.label
    }

    /// One shard that votes is enough: which one a lock needs is not known here.
    fn hello(&self) -> Pin<Box<dyn Future<Output = Result<(), NodeError>> + Send + '_>> {
        Box::pin(async {
            let clock = &*self.cluster.map.clock;
            let mut best = Err(NodeError::ClusterDown("it has no shards".to_owned()));
            for (_, up) in self.cluster.all().await? {
                let outcome = up.and_then(|up| match up.quarantine_left(clock) {
                    Some(left) => Err(NodeError::Quarantined(left)),
                    None => Ok(()),
                });
                best = match (best, outcome) {
                    (Ok(()), _) | (_, Ok(())) => Ok(()),
                    (Err(NodeError::Quarantined(one)), Err(NodeError::Quarantined(other))) => {
                        Err(NodeError::Quarantined(one.min(other)))
                    }
                    (waits @ Err(NodeError::Quarantined(_)), _) => waits,
                    (_, failed) => failed,
                };
            }
            best
        })
    }

    fn names<'a>(
        &'a self,
        wanted: &'a NamePattern,
    ) -> Pin<Box<dyn Future<Output = Result<Names, NodeError>> + Send + 'a>> {
        Box::pin(async {
            let mut names = Names::default();
            let clock = &*self.cluster.map.clock;
            for (owner, up) in self.cluster.all().await? {
                let up = up?;
                for slots in self.cluster.map.slots_of(&owner).chunks(LISTED_AT_ONCE) {
                    // Most slots have none, which is cheap to find out.
                    let sizes = join_all(slots.iter().map(async |slot| {
                        let register = of_slot::register(*slot);
                        let mut size = Cmd::new("ZCARD");
                        let size = up.link.send(size.arg(&register), clock).await;
                        (register, !matches!(size, Ok(Value::Int(0))))
                    }));
                    for (register, _) in sizes.await.into_iter().filter(|(_, any)| *any) {
                        let (link, prefix) = (&up.link, &self.prefix);
                        if !list::add_names(&mut names, link, &register, prefix, wanted, clock)
                            .await?
                        {
                            return Ok(names);
                        }
                    }
                }
            }
            Ok(names)
        })
    }

    fn queue<'a>(
        &'a self,
        name: &'a LockName,
    ) -> Pin<Box<dyn Future<Output = Result<Vec<Queued>, NodeError>> + Send + 'a>> {
        Box::pin(async {
            let keys = self.prefix.keys(name)?;
            let up = self.cluster.up(keys.slot()).await?;
            queue::queue(&up.link, &keys, &*self.cluster.map.clock).await
        })
    }

    fn ready(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async {
            // Which shard it is for is not known here: not at once, so that nobody asks without end.
            sleep(LONGEST_PAUSE).await;
            while !self.cluster.map.is_known() {
                self.cluster.map.changed().await;
            }
        })
    }
}
