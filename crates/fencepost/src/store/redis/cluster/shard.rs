//! One shard: the connection to its master, whether that may have forgotten locks, and which of its slots are
//! known to be complete. What counts is decided in [`slots`](fencepost_core::quorum::slots) and
//! [`membership`](fencepost_core::quorum::membership).
//!
//! The shard's marker stands in some of its slots, its *places*: slots have to be somewhere, and a marker in
//! a slot that moves away is gone. Each is a fact that stays true, "this process has had this role at least
//! since then": so it does no harm anywhere, any of them will do, and the oldest tells most.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures_util::future::{join, join_all};
use redis::{Value, from_redis_value};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use super::super::handshake::{self, Facts, Maker};
use super::super::keeper::{self, Driver, Pauses};
use super::super::keys::{Keys, of_slot};
use super::super::link::{Connection, Link, holds, is_vote};
use super::super::membership::{Alarm, Membership, incarnation};
use super::super::options::RedisOptions;
use super::super::prepared::Prepared;
use super::super::replicas::Replicas;
use super::super::wire::Heard;
use super::super::{fault, retention};
use super::map::{Map, send};
use super::refusal::Refusal;
use crate::error::NodeError;
use crate::runtime::clock::{Clock, Moment};
use fencepost_core::lock::{Command, Reply};
use fencepost_core::quorum::failover::quarantine;
use fencepost_core::quorum::membership::{Marker, Sight, Stage, Verdict, judge};
use fencepost_core::quorum::slots::Stamp;

/// One slot in so many is a place for a marker; the first one of a shard that has none of these.
const PLACE_EVERY: u16 = 256;
/// How often a shard is looked at that votes.
const LOOK_EVERY: Duration = Duration::from_secs(3);
/// How often a stamp or a marker may change under our hands.
const MOST_CHANGES: usize = 8;
/// When the slots are stamped that nobody has used yet, and how many at once. A program that runs for a
/// moment leaves that to others.
const SWEEP_AFTER: Duration = Duration::from_secs(5);
const SWEPT_AT_ONCE: usize = 128;
const SWEEP_PAUSE: Duration = Duration::from_millis(5);
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
    /// Until when which process does not vote by our own clock, whatever its own says meanwhile.
    waits: Mutex<Option<(String, Moment)>>,
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
    slots: Mutex<HashMap<u16, Vetted>>,
}

/// What is known of a slot.
#[derive(Clone)]
struct Vetted {
    /// How often the alarm had rung before the stamp was read.
    rung: u64,
    stamp: String,
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
        let task = self.runtime.spawn(async move { task.0.keep().await });
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

    /// Whether no shard may have forgotten locks.
    ///
    /// # Errors
    /// Which one may have, and for how long it does not vote; or which cannot be asked.
    async fn check_calm(self: &Arc<Self>) -> Result<(), NodeError> {
        let mut longest = None;
        for id in self.map.owners() {
            let clock = &*self.map.clock;
            match self.get(&id).settled().await {
                Ok(up) => longest = longest.max(up.quarantine_left(clock)),
                Err(why) => {
                    let other = self.map.address(&id);
                    return Err(NodeError::ClusterDown(format!(
                        "the slot is new to its shard, and {other} cannot be asked whether it has \
                         failed over: {why}"
                    )));
                }
            }
        }
        longest.map_or(Ok(()), |left| Err(NodeError::Quarantined(left)))
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
            NodeError::Replica => NodeError::ClusterDown(format!("{address} is a replica now")),
            other => other,
        }
    }

    async fn connect(&self) -> Result<(Arc<Up>, Driver, Known), NodeError> {
        let limit = self.options.connect_timeout;
        let route = self.map.route(&self.id)?;
        let alarm = Arc::new(Alarm::default());
        let on_news = {
            let alarm = Arc::clone(&alarm);
            Box::new(move |heard: Heard<'_>| {
                if heard == Heard::Invalidation {
                    alarm.ring();
                }
            })
        };
        let login = self.map.login();
        let dialed = keeper::dial(&route, login, limit, Some(on_news)).await;
        let (connection, driver) = dialed.map_err(|error| route.explained(error))?;
        let facts = handshake::ask(&connection, Maker::Ourselves).await?;
        facts.warn(&self.address(), &self.options);
        let tracks = handshake::start_tracking(&connection).await?;
        let run_id = facts.run_id.clone().ok_or(NodeError::HidesInfo)?;
        let replicas = match self.map.spec.replicas {
            0 => None,
            needed => {
                let (second, driver) = keeper::dial(&route, login, limit, None).await?;
                if handshake::run_id(&second).await?.as_ref() != Some(&run_id) {
                    let why = "two connections to this address lead to two servers";
                    return Err(NodeError::Disconnected(why.to_owned()));
                }
                // Below the time-out of a node, so that the reason is told and not the time.
                let within = self.options.mute_timeout * 2 / 5;
                Some(Replicas::new(second, driver, needed, within))
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
            slots: Mutex::default(),
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

    /// Resolves when the master may have forgotten, or is none any more.
    async fn watch(&self, up: &Up, mut known: Known) -> NodeError {
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
    async fn enter(&self, up: &Up, before: Option<&Known>) -> Result<Known, NodeError> {
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

/// Where the markers of a shard with these slots stand.
pub(super) fn places(slots: &[u16], first: u16) -> Vec<u16> {
    let places = slots.iter().copied().filter(|slot| slot % PLACE_EVERY == 0);
    let mut places: Vec<u16> = places.collect();
    if places.is_empty() {
        places.push(first);
    }
    places
}

/// What is known of a master's markers.
struct Known {
    since_us: u64,
    history: String,
    /// Where they stand.
    places: Vec<u16>,
    left: Option<Duration>,
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

    async fn send(&self, cmd: &redis::Cmd) -> Result<Value, NodeError> {
        send(&self.connection, cmd).await
    }

    /// Reads a key, of whose next change the server tells before any later answer.
    async fn get(&self, key: String) -> Result<Option<String>, NodeError> {
        let mut get = redis::cmd("GET");
        get.arg(&key);
        let value = match self.tracks {
            true => {
                let mut caching = redis::cmd("CLIENT");
                caching.arg("CACHING").arg("YES");
                let answer = self.connection.send_behind(&caching, &get).await;
                answer.map_err(|error| fault::node_error(&error))?
            }
            false => self.send(&get).await?,
        };
        from_redis_value(value).map_err(|_| NodeError::WrongType(format!("{key} is not ours")))
    }

    /// Whether what was read still stood.
    async fn replace(&self, key: &str, old: &str, new: &str) -> Result<bool, NodeError> {
        let mut eval = redis::cmd("EVAL");
        eval.arg(REPLACE).arg(1).arg(key).arg(old).arg(new);
        let answer = self.send(&eval).await?;
        Ok(answer == Value::Int(1))
    }

    /// Under which stamp a slot is complete here at the moment.
    async fn stamp(&self) -> Result<Stamp, NodeError> {
        let mut info = redis::cmd("CLUSTER");
        let info = self.send(info.arg("INFO")).await?;
        let info: String = from_redis_value(info).unwrap_or_default();
        let mut lines = info.lines();
        let epoch = lines.find_map(|line| line.strip_prefix("cluster_my_epoch:"));
        let epoch = epoch.and_then(|epoch| epoch.trim().parse().ok());
        let epoch = epoch.ok_or_else(|| {
            NodeError::Other("its answer to CLUSTER INFO cannot be read".to_owned())
        })?;
        let run_id = self.run_id.clone();
        Ok(Stamp { run_id, epoch })
    }

    /// Whether the slot is complete, as far as is known without asking.
    fn vetted(&self, slot: u16) -> Option<Vetted> {
        let rung = self.alarm.count();
        let vetted = self.slots().get(&slot).cloned();
        vetted.filter(|vetted| self.tracks && vetted.rung == rung)
    }

    /// Finds out whether the slot is complete, and stamps it where that is sure.
    async fn vet(&self, slot: u16) -> Result<Vetted, NodeError> {
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

    async fn check_calm(&self) -> Result<(), NodeError> {
        match self.shards.upgrade() {
            Some(shards) => shards.check_calm().await,
            None => Err(NodeError::Disconnected("closed".to_owned())),
        }
    }

    /// Whether a command goes out at once that is sent now.
    pub(super) fn is_ready(&self, slot: u16) -> bool {
        self.vetted(slot).is_some() || self.quarantine_left(&*self.map.clock).is_some()
    }

    /// Finds out what has to be known of a slot before a command goes out at once.
    pub(super) async fn prepare(&self, slot: u16) {
        if !self.is_ready(slot) {
            let _ = self.vet(slot).await;
        }
    }

    /// Carries out one command, and counts no vote of a shard or a slot that may have forgotten.
    pub(super) async fn carry_out(
        &self,
        slot: u16,
        keys: &Keys,
        command: &Command,
        may_go: impl Fn() -> Option<Reply>,
    ) -> Result<Reply, NodeError> {
        let clock = &*self.map.clock;
        if is_vote(command) {
            self.map.check(slot, &self.id)?;
        }
        let mut waits = self.quarantine_left(clock);
        let mut vetted = None;
        if waits.is_none() && (is_vote(command) || matches!(command, Command::Enqueue { .. })) {
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
        if !is_vote(command) {
            return Ok(reply);
        }
        if let Some(replicas) = self.replicas.as_ref().filter(|_| holds(&reply)) {
            replicas.confirm(&of_slot::wait_key(slot)).await?;
        }
        if let Some(before) = vetted {
            self.confirm(slot, &before).await?;
        }
        // Last of all: it may have taken long to find out.
        self.map.check(slot, &self.id)?;
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

    /// Stamps the slots that nobody has used yet, in quiet times: so they can be used also in others.
    async fn sweep(&self) -> Infallible {
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
        let mut get = redis::cmd("GET");
        let found: Option<String> =
            from_redis_value(self.send(get.arg(&done)).await?).unwrap_or_default();
        if stamp.vouches_for(found.as_deref()) {
            return Ok(stamp.epoch);
        }
        for slots in slots.chunks(SWEPT_AT_ONCE) {
            if self.quarantine_left(&*self.map.clock).is_some() {
                return Err(NodeError::Quarantined(Duration::ZERO));
            }
            // Looked at before anything is asked whether it is quiet: see `vet`.
            let found = slots.iter().map(async |slot| {
                let mut get = redis::cmd("GET");
                let found = self.send(get.arg(of_slot::stamp(*slot))).await?;
                Ok::<_, NodeError>((
                    *slot,
                    from_redis_value::<Option<String>>(found).ok().flatten(),
                ))
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
        let mut set = redis::cmd("SET");
        self.send(set.arg(&done).arg(stamp.written("-"))).await?;
        Ok(stamp.epoch)
    }
}

/// A call was carried out by a shard that had forgotten, or on a slot that had moved.
fn forgot() -> NodeError {
    NodeError::Disconnected("its data were replaced while the command was in flight".to_owned())
}
