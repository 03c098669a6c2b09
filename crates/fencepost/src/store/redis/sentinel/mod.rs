//! A Sentinel group: one voter whose address moves. Asks every Sentinel again and again which master it
//! names; when a reply of that master counts is decided in
//! [`failover`](fencepost_core::quorum::failover).
//!
//! Nothing may rest on what a Sentinel publishes (`+switch-master`): it only makes us ask at once.

mod url;

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use super::address::stream::Route;
use super::address::url::{Login, Place};
use super::connection::keeper::{self, Pauses};
use super::connection::link::Connection;
use super::fault;
use super::options::{RedisOptions, TlsOptions};
use super::protocol::command::Cmd;
use super::protocol::reader::{Driver, Reader};
use super::protocol::value::Value;
use super::protocol::wire::Push;
use crate::error::{Error, NodeError};
use crate::runtime::clock::Clock;
use crate::runtime::tasks;
use crate::store::facts::GroupFacts;
use fencepost_core::quorum::failover::{Fencing, Master, Naming, check_fencing, quarantine};
use fencepost_core::quorum::membership::Sight;

pub(super) use url::GroupSpec;

/// How often a Sentinel is asked: so many times while its word counts, and not more often than that.
const ASKED_WITHIN: u32 = 8;
const SHORTEST_PERIOD: Duration = Duration::from_millis(100);
const LONGEST_PERIOD: Duration = Duration::from_secs(1);
/// What is known of a Sentinel in the beginning.
const NO_ANSWER: &str = "no answer yet";

/// What the Sentinels of one group say, for as long as their watchers live.
struct Group {
    spec: GroupSpec,
    routes: Vec<Route>,
    tls: TlsOptions,
    connect_timeout: Duration,
    clock: Arc<dyn Clock>,
    said: Mutex<Said>,
    /// Counts what was heard.
    heard: watch::Sender<u64>,
    /// Counts the requests to ask at once.
    hurried: watch::Sender<u64>,
}

struct Said {
    naming: Naming,
    /// What each Sentinel said last, for people.
    words: Vec<Result<String, String>>,
    /// How each of them is set up, as it said last.
    setups: Vec<Option<Setup>>,
}

/// How a Sentinel is set up for a group.
#[derive(Clone, Copy)]
struct Setup {
    known: Option<usize>,
    quorum: Option<usize>,
    down_after: Option<Duration>,
}

/// A group, and the tasks that ask its Sentinels: gone with this.
pub(super) struct WatchedGroup {
    group: Arc<Group>,
    watchers: Vec<AbortHandle>,
}

impl Drop for WatchedGroup {
    fn drop(&mut self) {
        for task in &self.watchers {
            task.abort();
        }
    }
}

impl WatchedGroup {
    /// Begins to ask, in tasks on `runtime`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidOption`](crate::ErrorKind::InvalidOption) for certificates that cannot be read.
    pub(super) fn start(
        spec: GroupSpec,
        options: &RedisOptions,
        clock: Arc<dyn Clock>,
        runtime: &Handle,
    ) -> Result<Self, Error> {
        let mut routes = Vec::new();
        for (_, place) in &spec.sentinels {
            routes.push(Route::new(place.clone(), &options.tls)?);
        }
        let count = spec.sentinels.len();
        let group = Arc::new(Group {
            said: Mutex::new(Said {
                naming: Naming::of(count, spec.failover),
                words: vec![Err(NO_ANSWER.to_owned()); count],
                setups: vec![None; count],
            }),
            spec,
            routes,
            tls: options.tls.clone(),
            connect_timeout: options.connect_timeout,
            clock,
            heard: watch::Sender::new(0),
            hurried: watch::Sender::new(0),
        });
        let watch = |sentinel| tasks::spawn_on(runtime, Arc::clone(&group).watch(sentinel));
        let watchers = (0..count).map(|n| watch(n).abort_handle()).collect();
        Ok(Self { group, watchers })
    }

    /// How to log in at the master.
    pub(super) fn login(&self) -> &Login {
        &self.group.spec.login
    }

    /// The master that a majority names, once there is one.
    pub(super) async fn locate(&self, limit: Duration) -> Result<Named, NodeError> {
        self.group.locate(limit).await
    }
}

impl Group {
    async fn locate(self: &Arc<Self>, limit: Duration) -> Result<Named, NodeError> {
        self.hurry();
        let mut heard = self.heard.subscribe();
        let located = timeout(limit, async {
            loop {
                heard.mark_unchanged();
                if let Some(master) = self.said().naming.master(self.clock.now()).cloned() {
                    return Some(master);
                }
                if self.is_out_of_reach() {
                    return None;
                }
                // The sender is in this very group: it cannot be gone.
                let _ = heard.changed().await;
            }
        });
        match located.await {
            Ok(Some(master)) => Ok(Named {
                group: Arc::clone(self),
                master,
            }),
            Ok(None) | Err(_) => Err(self.unnamed()),
        }
    }

    /// Whether so many Sentinels could not be asked that no majority is left. Those that have not
    /// answered yet may.
    fn is_out_of_reach(&self) -> bool {
        let said = self.said();
        let failed = said.words.iter().filter(|word| match word {
            Ok(_) => false,
            Err(why) => why != NO_ANSWER,
        });
        said.words.len() - failed.count() < said.naming.needed()
    }

    /// Why no reply counts, in the words of the Sentinels.
    fn unnamed(&self) -> NodeError {
        let said = self.said();
        let words: Vec<_> = self
            .spec
            .sentinels
            .iter()
            .zip(&said.words)
            .map(|((address, _), word)| match word {
                Ok(named) => format!("{address} names {named}"),
                Err(why) => format!("{address}: {why}"),
            })
            .collect();
        NodeError::Unnamed(format!(
            "Sentinels: {} of {} have to name the same master of {} at the moment ({})",
            said.naming.needed(),
            words.len(),
            self.spec.name,
            words.join("; ")
        ))
    }

    /// Asks every Sentinel now.
    fn hurry(&self) {
        self.hurried.send_modify(|count| *count += 1);
    }

    fn said(&self) -> MutexGuard<'_, Said> {
        // A panic while it was locked cannot have left it half changed.
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, sentinel: usize, change: impl FnOnce(&mut Said)) {
        {
            let mut said = self.said();
            change(&mut said);
            if said.naming.is_repeated(sentinel) {
                let why = "it is the same Sentinel as another of the list; list each once";
                said.words[sentinel] = Err(why.to_owned());
            }
        }
        self.heard.send_modify(|count| *count += 1);
    }

    /// Asks one Sentinel until the task is aborted.
    async fn watch(self: Arc<Self>, sentinel: usize) {
        let mut pauses = Pauses::default();
        loop {
            let mut has_answered = false;
            let Err(why) = self.ask(sentinel, &mut has_answered).await;
            let why = self.routes[sentinel].explained(why);
            tracing::debug!(node = self.spec.label, sentinel = self.spec.sentinels[sentinel].0, reason = %why, "cannot be asked");
            // What it said before counts until it is too old.
            self.note(sentinel, |said| said.words[sentinel] = Err(why.to_string()));
            if has_answered {
                pauses = Pauses::default();
            }
            pauses.skip_first();
            sleep(pauses.next()).await;
        }
    }

    /// Connects to a Sentinel and asks it until the connection ends, for which the error is the reason.
    async fn ask(
        self: &Arc<Self>,
        sentinel: usize,
        has_answered: &mut bool,
    ) -> Result<Infallible, NodeError> {
        let limit = self.connect_timeout;
        let (route, login) = (&self.routes[sentinel], &self.spec.sentinel_login);
        let dial = keeper::dial(route, login, limit, None, Reader::default());
        let (connection, _driver) = within(limit, dial).await?;
        let identity = within(limit, send(&connection, Cmd::new("SENTINEL").arg("MYID"))).await;
        let identity: Option<String> = match identity {
            Ok(identity) => identity.read().ok(),
            // Before 6.2 they have none to tell. Any other could be one that is listed twice.
            Err(error) if is_unknown_command(&error) => None,
            Err(error) => return Err(denied(error)),
        };
        let _hint = within(limit, self.hint(sentinel)).await.ok();
        let mut hurried = self.hurried.subscribe();
        let period = self.spec.failover / ASKED_WITHIN;
        let period = period.clamp(SHORTEST_PERIOD, LONGEST_PERIOD);
        loop {
            hurried.mark_unchanged();
            let asked = self.clock.now();
            let mut question = Cmd::new("SENTINEL");
            question.arg("MASTER").arg(&self.spec.name);
            let answer = match within(limit, send(&connection, &question)).await {
                Ok(answer) => answer,
                Err(NodeError::Other(why)) if why.contains("No such master") => {
                    self.note(sentinel, |said| {
                        let id = identity.as_deref();
                        said.naming.on_answer(sentinel, id, asked, None);
                    });
                    let why = format!("it knows no master of the name {}", self.spec.name);
                    return Err(NodeError::Other(why));
                }
                Err(NodeError::Unsuitable(why)) if why.contains("SENTINEL") => {
                    let why = "it is not a Sentinel; for a server write redis://".to_owned();
                    return Err(NodeError::Other(why));
                }
                Err(error) => return Err(denied(error)),
            };
            *has_answered = true;
            let (master, setup) = read(answer).ok_or_else(|| {
                NodeError::Other("its answer to SENTINEL MASTER cannot be read".to_owned())
            })?;
            self.note(sentinel, |said| {
                let named = format!("{}:{}", fault::printable(&master.host), master.port);
                said.words[sentinel] = Ok(named);
                said.setups[sentinel] = Some(setup);
                let id = identity.as_deref();
                said.naming.on_answer(sentinel, id, asked, Some(master));
            });
            tokio::select! {
                biased;
                Ok(()) = hurried.changed() => {}
                () = sleep(period) => {}
            }
        }
    }

    /// How many replicas may be promoted, as the first Sentinel says that answers.
    async fn promotable(&self) -> Result<usize, NodeError> {
        let mut last = NodeError::Unreachable(NO_ANSWER.to_owned());
        for route in &self.routes {
            let login = &self.spec.sentinel_login;
            let limit = self.connect_timeout / 4;
            let asked = within(limit, async {
                let (connection, _driver) =
                    keeper::dial(route, login, limit, None, Reader::default()).await?;
                let mut question = Cmd::new("SENTINEL");
                send(&connection, question.arg("REPLICAS").arg(&self.spec.name)).await
            });
            match asked.await {
                Ok(answer) => {
                    let replicas: Vec<HashMap<String, String>> = answer.read().unwrap_or_default();
                    let is_fit = |replica: &&HashMap<String, String>| {
                        replica.get("flags").is_some_and(|flags| flags == "slave")
                            && replica.get("slave-priority").is_some_and(|n| n != "0")
                    };
                    return Ok(replicas.iter().filter(is_fit).count());
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Hears when a Sentinel says that a master has moved: then all of them are asked at once.
    async fn hint(self: &Arc<Self>, sentinel: usize) -> Result<(Connection, Driver), NodeError> {
        let group = Arc::clone(self);
        let on_push = Box::new(move |heard: Push<'_>| {
            if matches!(heard, Push::Message(_)) {
                group.hurry();
            }
        });
        let (route, login) = (&self.routes[sentinel], &self.spec.sentinel_login);
        let dial = keeper::dial(
            route,
            login,
            self.connect_timeout,
            Some(on_push),
            Reader::default(),
        );
        let (connection, driver) = dial.await?;
        send(&connection, Cmd::new("SUBSCRIBE").arg("+switch-master")).await?;
        Ok((connection, driver))
    }
}

async fn within<T>(
    limit: Duration,
    answer: impl Future<Output = Result<T, NodeError>>,
) -> Result<T, NodeError> {
    let answer = timeout(limit, answer).await;
    answer.unwrap_or(Err(NodeError::Timeout(limit)))
}

async fn send(connection: &Connection, cmd: &Cmd) -> Result<Value, NodeError> {
    let answer = connection.send(cmd).await;
    answer.map_err(|error| fault::node_error(&error))
}

/// Whether it knows no such command, or no such subcommand.
fn is_unknown_command(error: &NodeError) -> bool {
    let (NodeError::Unsuitable(text) | NodeError::Other(text)) = error else {
        return false;
    };
    let text = text.to_lowercase();
    text.contains("unknown") && text.contains("command")
}

/// What a Sentinel's user needs is not what a server's does.
fn denied(error: NodeError) -> NodeError {
    match error {
        NodeError::Permission(text) => NodeError::Other(format!(
            "not permitted: {text}; the Sentinels' user needs +sentinel|master +sentinel|myid"
        )),
        other => other,
    }
}

/// What `SENTINEL MASTER` answers.
fn read(answer: Value) -> Option<(Master, Setup)> {
    let fields: HashMap<String, String> = answer.read().ok()?;
    let number = |name: &str| {
        fields
            .get(name)
            .and_then(|number| number.parse::<usize>().ok())
    };
    let master = Master {
        host: fields.get("ip").filter(|host| !host.is_empty())?.clone(),
        port: fields.get("port")?.parse().ok()?,
        epoch: fields.get("config-epoch")?.parse().ok()?,
    };
    let down_after = number("down-after-milliseconds").and_then(|ms| u64::try_from(ms).ok());
    let setup = Setup {
        known: number("num-other-sentinels").map(|others| others + 1),
        quorum: number("quorum"),
        down_after: down_after.map(Duration::from_millis),
    };
    Some((master, setup))
}

/// A master that a majority of its Sentinels has named.
#[derive(Clone)]
pub(super) struct Named {
    group: Arc<Group>,
    master: Master,
}

impl Named {
    /// The way there.
    pub(super) fn route(&self) -> Result<Route, NodeError> {
        let place = Place::Tcp {
            host: self.master.host.clone(),
            port: self.master.port,
            tls: self.group.spec.tls,
        };
        let route = Route::new(place, &self.group.tls);
        route.map_err(|error| NodeError::Unreachable(error.to_string()))
    }

    /// Where it is, for people.
    pub(super) fn address(&self) -> String {
        format!(
            "{}:{}",
            fault::printable(&self.master.host),
            self.master.port
        )
    }

    /// Why it could not be reached, with where it was looked for: the URL does not tell.
    pub(super) fn explained(&self, error: NodeError) -> NodeError {
        let address = self.address();
        match error {
            NodeError::Unreachable(why) => {
                NodeError::Unreachable(format!("{why} (at {address}, which its Sentinels name)"))
            }
            other => other,
        }
    }

    /// What is seen of it: each failover makes another history, and nothing on its disk brings back what
    /// was not replicated.
    pub(super) fn sight(&self, sight: Sight) -> Sight {
        Sight {
            history: format!("{} config-epoch {}", sight.history, self.master.epoch),
            grace: quarantine(Duration::ZERO, self.group.spec.failover),
            syncs: None,
            ..sight
        }
    }

    /// Whether it refuses writes in time when it is cut off.
    pub(super) fn check_fencing(&self, fencing: Option<Fencing>) -> Result<(), NodeError> {
        let Some(fencing) = fencing else {
            let why = "min-replicas-to-write and min-replicas-max-lag are hidden from this user; \
                       run ACL SETUSER <user> +config|get";
            return Err(NodeError::HidesFencing(why.to_owned()));
        };
        check_fencing(fencing, self.group.spec.failover).map_err(NodeError::Unfenced)
    }

    /// Whether a reply counts that came just now.
    pub(super) fn check(&self) -> Result<(), NodeError> {
        let counts = {
            let now = self.group.clock.now();
            self.group.said().naming.counts(&self.master, now)
        };
        match counts {
            true => Ok(()),
            false => Err(self.group.unnamed()),
        }
    }

    /// What the group is like.
    pub(super) async fn facts(&self, fencing: Option<Fencing>, max_ttl: Duration) -> GroupFacts {
        let group = &self.group;
        let promotable = within(group.connect_timeout, group.promotable()).await;
        let said = group.said();
        let address = self.address();
        let is_ours = |word: &Result<String, String>| word.as_ref() == Ok(&address);
        let others = group.spec.sentinels.iter().zip(&said.words);
        let others = others.filter(|(_, word)| !is_ours(word));
        let setups = || said.setups.iter().flatten();
        GroupFacts {
            listed: said.words.len(),
            naming: said.words.iter().filter(|word| is_ours(word)).count(),
            others: others
                .map(|((sentinel, _), word)| match word {
                    Ok(named) => format!("{sentinel} names {named}"),
                    Err(why) => format!("{sentinel}: {why}"),
                })
                .collect(),
            known: setups().filter_map(|setup| setup.known).max(),
            quorum: setups().filter_map(|setup| setup.quorum).min(),
            down_after: setups().filter_map(|setup| setup.down_after).max(),
            promotable: promotable.ok(),
            max_lag: fencing.map(|fencing| Duration::from_secs(fencing.max_lag)),
            unfenced: match self.check_fencing(fencing) {
                Err(NodeError::Unfenced(why)) => Some(why),
                _ => None,
            },
            failover: group.spec.failover,
            quarantine: quarantine(max_ttl, group.spec.failover),
            master: address,
        }
    }

    /// Resolves when its replies do not count any more.
    pub(super) async fn until_unnamed(&self) -> NodeError {
        let mut heard = self.group.heard.subscribe();
        loop {
            heard.mark_unchanged();
            let now = self.group.clock.now();
            let until = self.group.said().naming.until(&self.master);
            let left = until.map_or(Duration::ZERO, |until| until.since(now));
            if left.is_zero() {
                return self.group.unnamed();
            }
            tokio::select! {
                biased;
                // The sender is in this very group: it cannot be gone.
                Ok(()) = heard.changed() => {}
                () = sleep(left) => {}
            }
        }
    }
}
