//! Who owns which slots: asks the listed nodes again and again. When an owner's reply counts is decided in
//! [`slots`](fencepost_core::quorum::slots).

use std::collections::{BTreeSet, HashMap};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use super::url::ClusterSpec;
use crate::error::{Error, NodeError};
use crate::runtime::clock::Clock;
use crate::runtime::tasks;
use crate::store::redis::address::stream::Route;
use crate::store::redis::address::url::Login;
use crate::store::redis::address::url::Place;
use crate::store::redis::connection::keeper::{self, Pauses};
use crate::store::redis::connection::link::Connection;
use crate::store::redis::fault;
use crate::store::redis::options::{RedisOptions, TlsOptions};
use crate::store::redis::protocol::command::Cmd;
use crate::store::redis::protocol::reader::Reader;
use crate::store::redis::protocol::value::Value;
use fencepost_core::quorum::failover::SHORTEST_FAILOVER;
use fencepost_core::quorum::slots::{Range, SLOTS, Slots};

/// How often a node is asked: so many times while its word counts, and not more often than that.
const ASKED_WITHIN: u32 = 8;
const SHORTEST_PERIOD: Duration = Duration::from_millis(100);
const LONGEST_PERIOD: Duration = Duration::from_secs(1);
/// What is known of a node in the beginning.
const NO_ANSWER: &str = "no answer yet";
/// What is known of one that answers, and does not tell for how long that counts.
const HIDDEN: &str = "cluster-node-timeout is hidden from this user";

/// What the listed nodes say, for as long as their watchers live.
pub(super) struct Map {
    pub(super) spec: ClusterSpec,
    pub(super) routes: Vec<Arc<Route>>,
    pub(super) clock: Arc<dyn Clock>,
    tls: TlsOptions,
    connect_timeout: Duration,
    said: Mutex<Said>,
    /// Counts what was heard.
    heard: watch::Sender<u64>,
    /// Counts how often somebody wanted to know at once.
    hurried: watch::Sender<u64>,
}

struct Said {
    slots: Slots,
    /// Where each owner is.
    addresses: HashMap<String, (String, u16)>,
    /// Why a node could not be asked the last time, or does not count.
    faults: Vec<Option<String>>,
    timeouts: Timeouts,
}

/// The `cluster-node-timeout` of each listed node, as it told last. Clients that have asked different nodes need
/// not agree on one: what the nodes say counts for the shortest, and a shard that may have forgotten waits for the
/// longest. Each has asked a majority, so that there is a node whose time-out is neither shorter than the one
/// nor longer than the other.
struct Timeouts(Vec<Option<Duration>>);

impl Timeouts {
    fn shortest(&self) -> Option<Duration> {
        self.0.iter().flatten().min().copied()
    }

    fn longest(&self) -> Option<Duration> {
        self.0.iter().flatten().max().copied()
    }
}

/// The map, and the tasks that ask: gone with this.
pub(super) struct WatchedMap {
    pub(super) map: Arc<Map>,
    watchers: Vec<AbortHandle>,
}

impl Drop for WatchedMap {
    fn drop(&mut self) {
        for task in &self.watchers {
            task.abort();
        }
    }
}

impl WatchedMap {
    /// Begins to ask, in tasks on `runtime`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidOption`](crate::ErrorKind::InvalidOption) for certificates that cannot be read.
    pub(super) fn start(
        spec: ClusterSpec,
        options: &RedisOptions,
        clock: Arc<dyn Clock>,
        runtime: &Handle,
    ) -> Result<Self, Error> {
        let mut routes = Vec::new();
        for (_, place) in &spec.listed {
            routes.push(Arc::new(Route::new(place.clone(), &options.tls)?));
        }
        let count = spec.listed.len();
        let map = Arc::new(Map {
            said: Mutex::new(Said {
                slots: Slots::of(count),
                addresses: HashMap::new(),
                faults: vec![Some(NO_ANSWER.to_owned()); count],
                timeouts: Timeouts(vec![None; count]),
            }),
            spec,
            routes,
            clock,
            tls: options.tls.clone(),
            connect_timeout: options.connect_timeout,
            heard: watch::Sender::new(0),
            hurried: watch::Sender::new(0),
        });
        let watch = |node| tasks::spawn_on(runtime, Arc::clone(&map).watch(node));
        let watchers = (0..count).map(|n| watch(n).abort_handle()).collect();
        Ok(Self { map, watchers })
    }
}

impl Map {
    fn said(&self) -> MutexGuard<'_, Said> {
        // A panic while it was locked cannot have left it half changed.
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How to log in at every node.
    pub(super) fn login(&self) -> &Login {
        &self.spec.login
    }

    /// The id of the owner of a slot, if its replies count now.
    pub(super) fn owner(&self, slot: u16) -> Option<String> {
        let now = self.clock.now();
        self.said().slots.owner(slot, now).map(str::to_owned)
    }

    /// The same, once there is one.
    pub(super) async fn locate(&self, slot: u16, limit: Duration) -> Result<String, NodeError> {
        if let Some(owner) = self.owner(slot) {
            return Ok(owner);
        }
        let until = async {
            loop {
                let owner = self.owner(slot);
                if owner.is_some() || self.is_out_of_reach() || self.is_unowned(slot) {
                    return owner;
                }
                self.changed().await;
            }
        };
        let found = timeout(limit, until).await.ok().flatten();
        found.ok_or_else(|| self.unnamed(slot))
    }

    /// Whether a reply of that owner counts that came just now.
    pub(super) fn check(&self, slot: u16, owner: &str) -> Result<(), NodeError> {
        let counts = {
            let now = self.clock.now();
            self.said().slots.owner(slot, now) == Some(owner)
        };
        match counts {
            true => Ok(()),
            false => Err(self.unnamed(slot)),
        }
    }

    /// All owners of slots that a majority has named.
    pub(super) fn owners(&self) -> BTreeSet<String> {
        let said = self.said();
        let owned = said.slots.owned().iter();
        owned.map(|owned| owned.range.owner.clone()).collect()
    }

    /// All owners by answers that are asked for from now on, if every slot has one.
    pub(super) async fn renewed_owners(&self, limit: Duration) -> Option<BTreeSet<String>> {
        let asked = self.clock.now();
        self.hurry();
        let until = async {
            loop {
                let owners = {
                    let said = self.said();
                    said.slots.owners_since(asked, self.within(&said))
                };
                match owners {
                    Some(owners) => return owners,
                    None => self.changed().await,
                }
            }
        };
        timeout(limit, until).await.ok()
    }

    /// For how long an answer counts. What cannot be known counts for as long as it is sure to be right.
    fn within(&self, said: &Said) -> Duration {
        let told = said.timeouts.shortest();
        self.spec.failover.or(told).unwrap_or(SHORTEST_FAILOVER)
    }

    /// How many slots no majority names an owner of.
    pub(super) fn unowned(&self) -> usize {
        let said = self.said();
        let owned = said.slots.owned().iter();
        let owned = owned.map(|owned| usize::from(owned.range.last - owned.range.first) + 1);
        usize::from(SLOTS).saturating_sub(owned.sum())
    }

    /// Whether every slot has an owner, or at least some that are named now.
    pub(super) fn is_known(&self) -> bool {
        let now = self.clock.now();
        let said = self.said();
        said.slots.owned().iter().any(|owned| now < owned.until)
    }

    /// The slots of an owner, in order.
    pub(super) fn slots_of(&self, owner: &str) -> Vec<u16> {
        self.said().slots.slots_of(owner).collect()
    }

    /// Where an owner is, for people.
    pub(super) fn address(&self, owner: &str) -> String {
        match self.said().addresses.get(owner) {
            Some((host, port)) => format!("{}:{port}", fault::printable(host)),
            None => fault::printable(owner),
        }
    }

    /// The way to an owner.
    pub(super) fn route(&self, owner: &str) -> Result<Route, NodeError> {
        let address = self.said().addresses.get(owner).cloned();
        let unreachable = |why: String| NodeError::Unreachable(why);
        let (host, port) =
            address.ok_or_else(|| unreachable("no node tells its address".to_owned()))?;
        let tls = self.spec.tls;
        let route = Route::new(Place::Tcp { host, port, tls }, &self.tls);
        route.map_err(|error| unreachable(error.to_string()))
    }

    /// `F` of [`failover`](fencepost_core::quorum::failover).
    pub(super) fn failover(&self) -> Result<Duration, NodeError> {
        let told = || self.said().timeouts.longest();
        self.spec.failover.or_else(told).ok_or_else(hidden)
    }

    /// `cluster-node-timeout`, the longest of those that are told.
    pub(super) fn node_timeout(&self) -> Option<Duration> {
        self.said().timeouts.longest()
    }

    /// The shortest of them, where it is the failover time.
    pub(super) fn shortest_timeout(&self) -> Option<Duration> {
        let is_failover = self.spec.failover.is_none();
        is_failover.then(|| self.said().timeouts.shortest())?
    }

    /// How many nodes could be asked the last time, and why the others could not.
    pub(super) fn asked(&self) -> (usize, Vec<String>) {
        let said = self.said();
        let faults = self.spec.listed.iter().zip(&said.faults);
        let faults: Vec<_> = faults
            .filter_map(|((address, _), why)| Some(format!("{address}: {}", why.as_ref()?)))
            .collect();
        (said.faults.len() - faults.len(), faults)
    }

    /// Resolves when something more is known.
    pub(super) async fn changed(&self) {
        let mut heard = self.heard.subscribe();
        heard.mark_unchanged();
        // The sender is in this very map: it cannot be gone.
        let _ = heard.changed().await;
    }

    /// Asks every node now.
    pub(super) fn hurry(&self) {
        self.hurried.send_modify(|count| *count += 1);
    }

    /// Whether so many nodes could not be asked that no majority is left. Those that have not answered yet
    /// may.
    fn is_out_of_reach(&self) -> bool {
        let said = self.said();
        let is_fault = |why: &&Option<String>| why.as_ref().is_some_and(|why| why != NO_ANSWER);
        let failed = said.faults.iter().filter(is_fault).count();
        said.faults.len() - failed < said.slots.needed()
    }

    fn is_unowned(&self, slot: u16) -> bool {
        let now = self.clock.now();
        let said = self.said();
        said.slots.is_unowned(slot, now, self.within(&said))
    }

    /// Why no reply counts, in the words of the nodes.
    fn unnamed(&self, slot: u16) -> NodeError {
        let said = self.said();
        let needed = said.slots.needed();
        let (mut words, mut answered, mut hiding) = (Vec::new(), 0, 0);
        for ((address, _), why) in self.spec.listed.iter().zip(&said.faults) {
            hiding += usize::from(why.as_deref() == Some(HIDDEN));
            match why {
                Some(why) => words.push(format!("{address}: {why}")),
                None => answered += 1,
            }
        }
        if answered < needed && answered + hiding >= needed {
            return hidden();
        }
        if answered >= needed {
            return NodeError::ClusterDown(format!(
                "{answered} of {} listed nodes answer, and they name no owner of slot {slot} in common",
                said.faults.len()
            ));
        }
        NodeError::Unnamed(format!(
            "listed nodes: {needed} of {} have to name the same owner of slot {slot} at the moment ({})",
            said.faults.len(),
            words.join("; ")
        ))
    }

    fn note(&self, change: impl FnOnce(&mut Said)) {
        change(&mut self.said());
        self.heard.send_modify(|count| *count += 1);
    }

    /// Asks one node until the task is aborted.
    async fn watch(self: Arc<Self>, node: usize) {
        let mut pauses = Pauses::default();
        loop {
            let mut has_answered = false;
            let Err(why) = self.ask(node, &mut has_answered).await;
            let why = self.routes[node].explained(why);
            tracing::debug!(node = self.spec.label, listed = self.spec.listed[node].0, reason = %why, "cannot be asked");
            // What it said before counts until it is too old.
            self.note(|said| said.faults[node] = Some(why.to_string()));
            if has_answered {
                pauses = Pauses::default();
            }
            pauses.skip_first();
            sleep(pauses.next()).await;
        }
    }

    /// Connects to a node and asks it until the connection ends, for which the error is the reason.
    async fn ask(&self, node: usize, has_answered: &mut bool) -> Result<Infallible, NodeError> {
        let limit = self.connect_timeout;
        let (route, login) = (&self.routes[node], self.login());
        let dial = keeper::dial(route, login, limit, None, Reader::default());
        let (connection, _driver) = within(limit, dial).await?;
        let mut my_id = Cmd::new("CLUSTER");
        let identity = send(&connection, my_id.arg("MYID"));
        let identity: String = match within(limit, identity).await {
            Ok(id) => id.read().unwrap_or_default(),
            Err(NodeError::Other(why)) if why.contains("cluster support disabled") => {
                return Err(NodeError::NoClusterNode);
            }
            Err(error) => return Err(error),
        };
        let mut hurried = self.hurried.subscribe();
        loop {
            hurried.mark_unchanged();
            let asked = self.clock.now();
            let mut slots = Cmd::new("CLUSTER");
            slots.arg("SLOTS");
            let mut config = Cmd::new("CONFIG");
            config.arg("GET").arg("cluster-node-timeout");
            let both =
                async { tokio::join!(send(&connection, &slots), send(&connection, &config)) };
            let both = timeout(limit, both).await;
            let (table, config) = both.map_err(|_| NodeError::Timeout(limit))?;
            let table = read(table?, route.place()).ok_or_else(|| {
                NodeError::Other("its answer to CLUSTER SLOTS cannot be read".to_owned())
            })?;
            *has_answered = true;
            let config: HashMap<String, String> = config
                .ok()
                .and_then(|config| config.read().ok())
                .unwrap_or_default();
            let timeout = config.get("cluster-node-timeout");
            let timeout = timeout.and_then(|ms| ms.parse().ok());
            let timeout = timeout.map(|ms| Duration::from_millis(ms).max(SHORTEST_FAILOVER));
            self.note(|said| {
                if timeout.is_none() && self.spec.failover.is_none() {
                    said.faults[node] = Some(HIDDEN.to_owned());
                    return;
                }
                said.faults[node] = None;
                said.timeouts.0[node] = timeout.or(said.timeouts.0[node]);
                said.addresses.extend(table.addresses);
                let within = self.within(said);
                said.slots
                    .on_answer(node, Some(&identity), asked, table.ranges, within);
            });
            let period = self.within(&self.said()) / ASKED_WITHIN;
            tokio::select! {
                biased;
                Ok(()) = hurried.changed() => {}
                () = sleep(period.clamp(SHORTEST_PERIOD, LONGEST_PERIOD)) => {}
            }
        }
    }
}

fn hidden() -> NodeError {
    NodeError::HidesFencing(format!(
        "{HIDDEN}; run ACL SETUSER <user> +config|get, or add ?failover= to the URL"
    ))
}

pub(super) async fn within<T>(
    limit: Duration,
    answer: impl Future<Output = Result<T, NodeError>>,
) -> Result<T, NodeError> {
    let answer = timeout(limit, answer).await;
    answer.unwrap_or(Err(NodeError::Timeout(limit)))
}

pub(super) async fn send(connection: &Connection, cmd: &Cmd) -> Result<Value, NodeError> {
    let answer = connection.send(cmd).await;
    answer.map_err(|error| fault::node_error(&error))
}

/// What a node answers to `CLUSTER SLOTS`.
struct Table {
    ranges: Vec<Range>,
    addresses: HashMap<String, (String, u16)>,
}

/// A node that does not know its own host is where it was reached.
fn read(answer: Value, reached: &Place) -> Option<Table> {
    let mut table = Table {
        ranges: Vec::new(),
        addresses: HashMap::new(),
    };
    let entries: Vec<Vec<Value>> = answer.read().ok()?;
    for entry in entries {
        let [first, last, master, ..] =
            <[Value; 3]>::try_from(entry.into_iter().take(3).collect::<Vec<_>>()).ok()?;
        let master: Vec<Value> = master.read().ok()?;
        let mut master = master.into_iter();
        let host: Option<String> = master.next()?.read().ok()?;
        let port: u16 = master.next()?.read().ok()?;
        let owner: String = master.next()?.read().ok()?;
        let host = host.filter(|host| !host.is_empty() && host != "?");
        let host = match (host, reached) {
            (Some(host), _) => host,
            (None, Place::Tcp { host, .. }) => host.clone(),
            (None, Place::Unix(_)) => return None,
        };
        table.ranges.push(Range {
            first: first.read().ok()?,
            last: last.read().ok()?,
            owner: owner.clone(),
        });
        table.addresses.insert(owner, (host, port));
    }
    Some(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two clients took the longest time-out that each of them was told. One that had asked the node with 60 s
    /// counted a replaced owner for that long, and another, that had not, let the next owner vote after 2 s.
    #[test]
    fn no_client_counts_an_owner_longer_than_another_lets_the_next_one_wait() {
        let majorities: [[usize; 2]; 3] = [[0, 1], [0, 2], [1, 2]];
        let told = |by: [usize; 2], seconds: [u64; 3]| {
            let mut told = vec![None; 3];
            for node in by {
                told[node] = Some(Duration::from_secs(seconds[node]));
            }
            Timeouts(told)
        };
        for seconds in [[1, 15, 60], [60, 1, 1], [1, 1, 60], [15, 15, 1]] {
            for one in majorities {
                for other in majorities {
                    let counts_for = told(one, seconds).shortest();
                    let waits_for = told(other, seconds).longest();
                    assert!(counts_for <= waits_for, "{seconds:?} {one:?} {other:?}");
                }
            }
        }
    }
}
