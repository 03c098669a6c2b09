//! One shard: the connection to its master.
//!
//! - `markers`: whether that may have forgotten locks.
//! - `slots`: which of its slots are complete.
//! - `votes`: what of its answers counts.
//!
//! What counts is decided in [`slots`](fencepost_core::quorum::slots) and
//! [`membership`](fencepost_core::quorum::membership).

mod markers;
mod slots;
mod votes;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use super::map::{Map, send};
use super::refusal::{CLUSTER_DOWN, Refusal, words};
use crate::error::NodeError;
use crate::runtime::clock::{Clock, Moment};
use crate::runtime::tasks;
use crate::store::redis::connection::keeper::{self, Pauses};
use crate::store::redis::connection::link::{Connection, Link};
use crate::store::redis::encoding::keys::of_slot;
use crate::store::redis::encoding::scripts::Site;
use crate::store::redis::fault;
use crate::store::redis::observe::retention;
use crate::store::redis::options::RedisOptions;
use crate::store::redis::protocol::command::Cmd;
use crate::store::redis::protocol::reader::{Driver, Reader};
use crate::store::redis::protocol::value::Value;
use crate::store::redis::protocol::wire::Push;
use crate::store::redis::voting::handshake;
use crate::store::redis::voting::membership::{Alarm, Membership};
use crate::store::redis::voting::replicas::Replicas;
use markers::Known;
use slots::Vetted;

pub(super) use markers::places;

/// Writes where what was read still stands.
const REPLACE: &str = "if (redis.call('GET', KEYS[1]) or '') ~= ARGV[1] then return 0 end \
                       redis.call('SET', KEYS[1], ARGV[2]) return 1";

/// The shards of one Cluster that were needed so far.
pub(super) struct Shards {
    pub(super) map: Arc<Map>,
    pub(super) options: RedisOptions,
    membership: Arc<Membership>,
    runtime: Handle,
    shards: Mutex<BTreeMap<String, Arc<Shard>>>,
}

/// One shard, and the task that keeps its connection: gone with this.
pub(super) struct Shard {
    inner: Arc<Inner>,
    task: AbortHandle,
}

impl Drop for Shard {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What the task works with.
struct Inner {
    /// The id of the master.
    id: String,
    map: Arc<Map>,
    options: RedisOptions,
    membership: Arc<Membership>,
    shards: Weak<Shards>,
    state: watch::Sender<State>,
    waits: Mutex<Waits>,
}

/// Until when a process waits by our own clock, whatever its own says meanwhile.
#[derive(Default)]
struct Waits {
    run_id: String,
    /// Until then the shard does not vote.
    votes: Option<Moment>,
    /// Until then no slot is stamped.
    stamps: Option<Moment>,
}

/// What a shard has recorded of the owners.
struct Recorded {
    owners: BTreeSet<String>,
    /// Until then no slot is stamped, because one of those before is missed.
    stamps_after: Option<Moment>,
}

#[derive(Clone)]
enum State {
    Connecting,
    Up(Arc<Up>),
    Down(NodeError),
}

/// Puts an end to all waiting when the task is gone.
struct Task(Arc<Inner>);

impl Drop for Task {
    fn drop(&mut self) {
        let why = "the runtime that kept the connection is gone".to_owned();
        let gone = State::Down(NodeError::Disconnected(why));
        self.0.state.send_replace(gone);
    }
}

/// A connection to a master that has passed its handshake.
pub(super) struct Up {
    id: String,
    map: Arc<Map>,
    shards: Weak<Shards>,
    pub(super) link: Link,
    connection: Connection,
    alarm: Arc<Alarm>,
    tracks: bool,
    run_id: String,
    replicas: Option<Replicas>,
    /// Until then it does not vote, in nanoseconds of the clock; zero when it does.
    quarantine: AtomicU64,
    /// What it answered may be of a time after it forgot.
    is_revoked: AtomicBool,
    /// None while it has not recorded all owners.
    recorded: watch::Sender<Option<Recorded>>,
    /// Somebody waits for that.
    wanted: Notify,
    slots: Mutex<HashMap<u16, Vetted>>,
    mute_timeout: Duration,
}

impl Shards {
    pub(super) fn new(
        map: Arc<Map>,
        options: RedisOptions,
        membership: Arc<Membership>,
        runtime: Handle,
    ) -> Arc<Self> {
        Arc::new(Self {
            map,
            options,
            membership,
            runtime,
            shards: Mutex::default(),
        })
    }

    /// The shard with that master.
    pub(super) fn get(self: &Arc<Self>, id: &str) -> Arc<Shard> {
        let mut shards = self.shards.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(shard) = shards.get(id) {
            return Arc::clone(shard);
        }
        let owners = self.map.owners();
        shards.retain(|id, _| owners.contains(id));
        let inner = Arc::new(Inner {
            id: id.to_owned(),
            map: Arc::clone(&self.map),
            options: self.options.clone(),
            membership: Arc::clone(&self.membership),
            shards: Arc::downgrade(self),
            state: watch::Sender::new(State::Connecting),
            waits: Mutex::default(),
        });
        let task = Task(Arc::clone(&inner));
        let task = tasks::spawn_on(&self.runtime, async move { task.0.keep().await });
        let task = task.abort_handle();
        let shard = Arc::new(Shard { inner, task });
        shards.insert(id.to_owned(), Arc::clone(&shard));
        shard
    }

    /// Whether every shard has passed its handshake.
    fn are_up(self: &Arc<Self>) -> bool {
        let is_up = |id: &String| matches!(self.get(id).now(), Some(Ok(_)));
        self.map.owners().iter().all(is_up)
    }

    /// Whether no shard may have forgotten locks, neither one that has slots now nor one that had some before.
    ///
    /// # Errors
    /// Which one may have, and for how long it does not vote; or which cannot be asked.
    async fn check_calm(self: &Arc<Self>) -> Result<(), NodeError> {
        let clock = &*self.map.clock;
        let asked = self.map.owners().into_iter().map(async |id| {
            let outcome = match self.get(&id).settled().await {
                Ok(up) => up
                    .stamps_left()
                    .await
                    .map(|left| left.max(up.quarantine_left(clock))),
                Err(why) => Err(why),
            };
            outcome.map_err(|why| {
                let other = self.map.address(&id);
                NodeError::ClusterDown(format!(
                    "the slot is new to its shard, and {other} cannot be asked whether a shard has \
                     failed over: {why}"
                ))
            })
        });
        let mut longest = None;
        for left in join_all(asked).await {
            longest = longest.max(left?);
        }
        longest.map_or(Ok(()), |left| Err(NodeError::Quarantined(left)))
    }

    /// What a shard says that serves nothing because the whole Cluster is down.
    pub(super) fn down(&self) -> Option<String> {
        let shards = self.shards.lock().unwrap_or_else(PoisonError::into_inner);
        shards.values().find_map(|shard| match shard.now() {
            Some(Err(NodeError::ClusterDown(why))) if why.starts_with(CLUSTER_DOWN) => Some(why),
            _ => None,
        })
    }

    /// Has the shards record the owners that have changed.
    pub(super) fn record_owners(&self) {
        let shards = self.shards.lock().unwrap_or_else(PoisonError::into_inner);
        for shard in shards.values() {
            if let Some(Ok(up)) = shard.now() {
                up.wanted.notify_one();
            }
        }
    }
}

impl Shard {
    /// Its connection, if there is one or none can be had at the moment.
    pub(super) fn now(&self) -> Option<Result<Arc<Up>, NodeError>> {
        match &*self.inner.state.borrow() {
            State::Connecting => None,
            State::Up(up) => Some(Ok(Arc::clone(up))),
            State::Down(why) => Some(Err(why.clone())),
        }
    }

    /// The same, once the attempt that is under way has ended.
    pub(super) async fn settled(&self) -> Result<Arc<Up>, NodeError> {
        let mut state = self.inner.state.subscribe();
        let is_settled = |state: &State| !matches!(state, State::Connecting);
        match state.wait_for(is_settled).await.as_deref() {
            Ok(State::Up(up)) => Ok(Arc::clone(up)),
            Ok(State::Down(why)) => Err(why.clone()),
            Ok(State::Connecting) | Err(_) => Err(NodeError::Disconnected("closed".to_owned())),
        }
    }
}

impl Inner {
    /// Keeps the shard connected until the task is aborted.
    async fn keep(&self) {
        let mut pauses = Pauses::default();
        let mut last: Option<NodeError> = None;
        loop {
            let limit = self.options.connect_timeout;
            let attempt = timeout(limit, self.connect()).await;
            match attempt.unwrap_or(Err(NodeError::Timeout(limit))) {
                Ok((up, driver, known)) => {
                    last = None;
                    pauses = Pauses::default();
                    self.state.send_replace(State::Up(Arc::clone(&up)));
                    if self.shards.upgrade().is_some_and(|shards| shards.are_up()) {
                        self.membership.joined();
                    }
                    let lost = self.serve(&up, driver, known).await;
                    // First of all: what the calls in flight bring from now on does not count.
                    up.is_revoked.store(true, Ordering::SeqCst);
                    tracing::debug!(node = self.address(), reason = %lost, "connection lost");
                    self.state.send_replace(State::Connecting);
                }
                Err(why) => {
                    let why = self.explained(why);
                    let kind = std::mem::discriminant(&why);
                    match last.as_ref().map(std::mem::discriminant) == Some(kind) {
                        true => {
                            tracing::debug!(node = self.address(), reason = %why, "cannot be used")
                        }
                        false => {
                            tracing::warn!(node = self.address(), reason = %why, "cannot be used")
                        }
                    }
                    if let NodeError::Differs(why) = &why {
                        self.membership.refuse(why.clone());
                    }
                    self.state.send_replace(State::Down(why.clone()));
                    last = Some(why);
                    pauses.skip_first();
                }
            }
            sleep(pauses.next()).await;
        }
    }

    fn address(&self) -> String {
        self.map.address(&self.id)
    }

    fn explained(&self, error: NodeError) -> NodeError {
        let address = self.address();
        match error {
            NodeError::Unreachable(why) => NodeError::Unreachable(format!("{why} (at {address})")),
            error if Refusal::of(&error) == Some(Refusal::Down) => {
                NodeError::ClusterDown(words(&error))
            }
            NodeError::Replica => NodeError::ClusterDown(format!("{address} is a replica now")),
            other => other,
        }
    }

    async fn connect(&self) -> Result<(Arc<Up>, Driver, Known), NodeError> {
        let limit = self.options.connect_timeout;
        let route = self.map.route(&self.id)?;
        let alarm = Arc::new(Alarm::default());
        let on_push = {
            let alarm = Arc::clone(&alarm);
            Box::new(move |heard: Push<'_>| {
                if heard == Push::Invalidation {
                    alarm.ring();
                }
            })
        };
        let login = self.map.login();
        let dialed = keeper::dial(&route, login, limit, Some(on_push), Reader::default()).await;
        let (connection, driver) = dialed.map_err(|error| route.explained(error))?;
        let facts = handshake::ask(&connection, Site::Cluster).await?;
        facts.warn(&self.address(), &self.options);
        let tracks = handshake::start_tracking(&connection).await?;
        let run_id = facts.run_id.clone().ok_or(NodeError::HidesInfo)?;
        let replicas = match self.map.spec.replicas {
            0 => None,
            needed => {
                let (second, driver) =
                    keeper::dial(&route, login, limit, None, Reader::default()).await?;
                if handshake::run_id(&second).await?.as_ref() != Some(&run_id) {
                    let why = "two connections to this address lead to two servers";
                    return Err(NodeError::Disconnected(why.to_owned()));
                }
                // Below the time-out of a node, so that the reason is told and not the time.
                let within = self.options.mute_timeout * 2 / 5;
                Some(Replicas::open(second, driver, needed, within).await?)
            }
        };
        let now = self.map.clock.now();
        let up = Up {
            id: self.id.clone(),
            map: Arc::clone(&self.map),
            shards: self.shards.clone(),
            link: Link::new(connection.clone(), None, now),
            connection,
            alarm,
            tracks,
            run_id,
            replicas,
            quarantine: AtomicU64::new(0),
            is_revoked: AtomicBool::new(false),
            recorded: watch::Sender::new(None),
            wanted: Notify::new(),
            slots: Mutex::default(),
            mute_timeout: self.options.mute_timeout,
        };
        let known = self.enter(&up, None).await?;
        if let Some(left) = known.left {
            tracing::warn!(node = self.address(), reason = %NodeError::Quarantined(left), "this shard does not vote yet");
        }
        Ok((Arc::new(up), driver, known))
    }

    /// Watches a connection until it is of no use any more.
    async fn serve(&self, up: &Arc<Up>, mut driver: Driver, known: Known) -> NodeError {
        let clock = &*self.map.clock;
        let (limit, retention) = (self.options.mute_timeout, self.options.retention);
        let address = self.address();
        let registers = || {
            let slots = up.slots();
            slots.keys().map(|slot| of_slot::register(*slot)).collect()
        };
        tokio::select! {
            () = driver.ended() => NodeError::Disconnected("closed".to_owned()),
            reason = up.link.until_useless(limit, clock) => reason,
            reason = self.watch(up, known) => reason,
            never = up.sweep() => match never {},
            never = retention::enforce_all(&up.link, &address, registers, retention, clock) => match never {},
        }
    }
}

impl Up {
    fn slots(&self) -> MutexGuard<'_, HashMap<u16, Vetted>> {
        // A panic while it was locked cannot have left it half changed.
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn votes_after(&self, left: Option<Duration>) {
        let now = self.map.clock.now();
        let until = left.map_or(0, |left| {
            let until = (now + left).since_start().as_nanos();
            u64::try_from(until).unwrap_or(u64::MAX)
        });
        self.quarantine.store(until, Ordering::SeqCst);
    }

    /// How long the shard still does not vote.
    pub(super) fn quarantine_left(&self, clock: &dyn Clock) -> Option<Duration> {
        let until = self.quarantine.load(Ordering::SeqCst);
        let until = Moment::from_start(Duration::from_nanos(until));
        let left = until.since(clock.now());
        (!left.is_zero()).then_some(left)
    }

    /// For how long no slot is stamped because of an owner that is missed, once all are recorded.
    async fn stamps_left(&self) -> Result<Option<Duration>, NodeError> {
        let mut recorded = self.recorded.subscribe();
        let is_of_now = |recorded: &Option<Recorded>| {
            let owners = recorded.as_ref().map(|recorded| &recorded.owners);
            owners == Some(&self.map.owners())
        };
        if !is_of_now(&recorded.borrow()) {
            self.wanted.notify_one();
        }
        // Below the time-out of a node, so that the reason is told and not the time.
        let limit = self.mute_timeout * 2 / 5;
        let recorded = timeout(limit, recorded.wait_for(is_of_now)).await;
        let recorded = recorded.map_err(|_| match self.map.unowned() {
            0 => NodeError::Other("it has not recorded the owners of all slots yet".to_owned()),
            slots => NodeError::Other(format!(
                "{slots} slots have no owner, and one that had some is gone"
            )),
        })?;
        let recorded = recorded.map_err(|_| NodeError::Disconnected("closed".to_owned()))?;
        let until = recorded.as_ref().and_then(|recorded| recorded.stamps_after);
        let left = until.map(|until| until.since(self.map.clock.now()));
        Ok(left.filter(|left| !left.is_zero()))
    }

    async fn send(&self, cmd: &Cmd) -> Result<Value, NodeError> {
        send(&self.connection, cmd).await
    }

    /// Reads a key, of whose next change the server tells before any later answer.
    async fn get(&self, key: String) -> Result<Option<String>, NodeError> {
        let mut get = Cmd::new("GET");
        get.arg(&key);
        let value = match self.tracks {
            true => {
                let mut caching = Cmd::new("CLIENT");
                caching.arg("CACHING").arg("YES");
                let answer = self.connection.send_behind(&caching, &get).await;
                answer.map_err(|error| fault::node_error(&error))?
            }
            false => self.send(&get).await?,
        };
        value
            .read()
            .map_err(|_| NodeError::WrongType(format!("{key} is not ours")))
    }

    /// Whether what was read still stood.
    async fn replace(&self, key: &str, old: &str, new: &str) -> Result<bool, NodeError> {
        let mut eval = Cmd::new("EVAL");
        eval.arg(REPLACE).arg(1).arg(key).arg(old).arg(new);
        let answer = self.send(&eval).await?;
        Ok(answer == Value::Int(1))
    }
}
