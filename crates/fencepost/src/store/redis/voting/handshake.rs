//! Who may vote: what a new connection asks the server, and what follows from it.
//!
//! A connection never outlives the server process, so once per connection is enough. What a server
//! hides is unknown and logged as a warning; it must never count as evidence that the server has
//! kept its locks.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::future::join_all;

use super::info::Info;
use super::membership;
use crate::error::NodeError;
use crate::runtime::clock::Moment;
use crate::store::redis::address::url::Login;
use crate::store::redis::connection::link::Connection;
use crate::store::redis::encoding::plain::Predecessor;
use crate::store::redis::encoding::scripts;
use crate::store::redis::encoding::scripts::Site;
use crate::store::redis::fault;
use crate::store::redis::fault::{RedisError, RedisResult};
use crate::store::redis::options::{Eviction, Hidden, RedisOptions};
use crate::store::redis::protocol::command::Cmd;
use crate::store::redis::protocol::value::Value;
use fencepost_core::quorum::failover::Fencing;
use fencepost_core::quorum::membership::Sight;

/// `uptime_in_seconds` is the difference of two times cut to seconds: the real uptime may be that
/// much less.
const UPTIME_ERROR: Duration = Duration::from_secs(1);

/// What a server reported. `None` where it hides it from this user.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) run_id: Option<String>,
    /// The major version of Redis that it is compatible with.
    pub(crate) major_version: Option<u32>,
    role: Option<String>,
    /// `standalone`, `cluster` or `sentinel`.
    mode: Option<String>,
    uptime: Option<Duration>,
    loading: bool,
    /// The eviction policy, if there is a memory limit.
    eviction_policy: Option<String>,
    eviction_is_known: bool,
    append_only: bool,
    pub(crate) fsync: Option<String>,
    /// Whether it also syncs while a child process saves.
    syncs_while_saving: Option<bool>,
    /// Whether it is rewriting its append-only file, or about to. After the file was enabled at run
    /// time, nothing is durable before the first rewrite is complete.
    rewrites: bool,
    /// The history before its last change of role; empty if there was none.
    pub(crate) history: String,
    /// What it does when its replicas are gone.
    pub(crate) fencing: Option<Fencing>,
}

/// What is checked repeatedly while a server votes.
pub(crate) struct Look {
    pub(crate) facts: Facts,
    pub(crate) marker: Option<String>,
    now_us: u64,
}

impl Look {
    /// What matters for its marker.
    pub(crate) fn sight(&self) -> Result<Sight, NodeError> {
        Ok(Sight {
            run_id: self.facts.run_id.clone().ok_or(NodeError::HidesInfo)?,
            history: self.facts.history.clone(),
            now_us: self.now_us,
            syncs: self.facts.syncs(),
            grace: Duration::ZERO,
        })
    }
}

/// Enables `CLIENT TRACKING` for keys read with `CLIENT CACHING YES`. Returns whether it works.
pub(crate) async fn start_tracking(connection: &Connection) -> Result<bool, NodeError> {
    let mut hello = Cmd::new("HELLO");
    hello.arg(3);
    let mut tracking = Cmd::new("CLIENT");
    tracking.arg("TRACKING").arg("ON").arg("OPTIN");
    for cmd in [hello, tracking] {
        match connection.send(&cmd).await {
            Ok(_) => {}
            Err(error) if fault::is_answer(&error) => return Ok(false),
            Err(error) => return Err(fault::node_error(&error)),
        }
    }
    Ok(true)
}

/// Reads the marker and the server's state in one round trip. A server that tracks reports later
/// changes of the marker.
pub(crate) async fn look(connection: &Connection, tracks: bool) -> Result<Look, NodeError> {
    let mut caching = Cmd::new("CLIENT");
    caching.arg("CACHING").arg("YES");
    let mut get = Cmd::new("GET");
    get.arg(membership::KEY);
    let config = |name: &str| {
        let mut config = Cmd::new("CONFIG");
        config.arg("GET").arg(name);
        config
    };
    let questions = [
        Cmd::new("TIME"),
        Cmd::new("INFO"),
        config("appendfsync"),
        config("no-appendfsync-on-rewrite"),
        config("min-replicas-*"),
    ];
    let marker = async {
        match tracks {
            true => connection.send_behind(&caching, &get).await,
            false => connection.send(&get).await,
        }
    };
    let others = join_all(questions.iter().map(|question| connection.send(question)));
    let (marker, others) = futures_util::future::join(marker, others).await;
    let marker = marker.map_err(|error| match fault::node_error(&error) {
        NodeError::Permission(text) => {
            NodeError::Permission(format!("{text} (the key {})", membership::KEY))
        }
        other => other,
    })?;
    let mut known = Vec::new();
    for answer in others {
        known.push(unless_hidden(answer)?);
    }
    let mut known = known.into_iter().map(Option::unwrap_or_default);
    let mut next = || known.next().unwrap_or_default();
    let time = next().read::<(u64, u64)>();
    let (seconds, micros) = time.map_err(|_| {
        let text = "the user may not run TIME; grant +time";
        NodeError::Permission(text.to_owned())
    })?;
    let info: String = next().read().unwrap_or_default();
    let mut config: HashMap<String, String> = next().read().unwrap_or_default();
    for _ in 0..2 {
        config.extend(next().read::<HashMap<_, _>>().unwrap_or_default());
    }
    let mut facts = Facts::read(&info);
    facts.fsync = config.remove("appendfsync");
    let saving = config.remove("no-appendfsync-on-rewrite");
    facts.syncs_while_saving = saving.map(|saving| saving == "no");
    let number = |name: &str| config.get(name).and_then(|number| number.parse().ok());
    let replicas = number("min-replicas-to-write").zip(number("min-replicas-max-lag"));
    facts.fencing = replicas.map(|(min_replicas, max_lag)| Fencing {
        min_replicas,
        max_lag,
    });
    Ok(Look {
        facts,
        marker: marker
            .read()
            .map_err(|_| NodeError::WrongType(format!("{} is not a marker", membership::KEY)))?,
        now_us: seconds.saturating_mul(1_000_000).saturating_add(micros),
    })
}

/// Authenticates, and selects the database.
pub(crate) async fn log_in(connection: &Connection, login: &Login) -> Result<(), NodeError> {
    if let Some(password) = &login.password {
        let mut auth = Cmd::new("AUTH");
        auth.arg(login.user.as_ref()).arg(password);
        if let Err(why) = connection.send(&auth).await {
            return Err(match fault::node_error(&why) {
                NodeError::Other(text) if text.contains("AUTH") => NodeError::Auth(text),
                _ => turned_away(&why),
            });
        }
    }
    if login.db != 0 {
        let mut select = Cmd::new("SELECT");
        select.arg(login.db);
        let selected = connection.send(&select).await;
        selected.map_err(|error| fault::node_error(&error))?;
    }
    Ok(())
}

/// Its process id, if it tells.
pub(crate) async fn run_id(connection: &Connection) -> Result<Option<String>, NodeError> {
    let info = unless_hidden(connection.send(&Cmd::new("INFO")).await)?;
    let info = info.and_then(|value| value.read::<String>().ok());
    Ok(info.and_then(|info| Facts::read(&info).run_id))
}

/// For operators who read CLIENT LIST. Servers before 7.2 do not know it, and nothing depends on
/// it.
pub(crate) fn introduction() -> [Cmd; 2] {
    let version = env!("CARGO_PKG_VERSION");
    [("LIB-NAME", "fencepost"), ("LIB-VER", version)].map(|(key, value)| {
        let mut info = Cmd::new("CLIENT");
        info.arg("SETINFO").arg(key).arg(value);
        info
    })
}

/// Asks everything in one round trip, and loads the scripts.
pub(crate) async fn ask(connection: &Connection, site: Site) -> Result<Facts, NodeError> {
    let mut questions = vec![Cmd::new("INFO"), Cmd::new("CONFIG")];
    questions[1].arg("GET").arg("appendfsync");
    for source in scripts::to_load(site) {
        let mut load = Cmd::new("SCRIPT");
        load.arg("LOAD").arg(source);
        questions.push(load);
    }
    questions.extend(introduction());
    let answers = join_all(questions.iter().map(|question| connection.send(question))).await;
    let silence = answers.iter().find_map(|answer| {
        answer
            .as_ref()
            .err()
            .filter(|error| !fault::is_answer(error))
    });
    if let Some(silence) = silence {
        // A server that rejects us says why in its first reply, and closes.
        return Err(match &answers[0] {
            Err(why) if fault::is_answer(why) => turned_away(why),
            _ => fault::node_error(silence),
        });
    }
    let mut known = Vec::new();
    for answer in answers {
        // A user that may not load scripts may still run them: the first EVAL loads each.
        known.push(unless_hidden(answer)?);
    }
    let mut known = known.into_iter();
    let info = known.next().flatten();
    let info = info.and_then(|value| value.read::<String>().ok());
    let config = known.next().flatten();
    let config = config.and_then(|value| value.read::<HashMap<String, String>>().ok());
    let mut facts = info.as_deref().map(Facts::read).unwrap_or_default();
    facts.fsync = config.and_then(|mut config| config.remove("appendfsync"));
    Ok(facts)
}

fn turned_away(why: &RedisError) -> NodeError {
    match fault::node_error(why) {
        NodeError::Other(text) => NodeError::Unreachable(text),
        known => known,
    }
}

/// A query that this user may not make, or that the server does not know, has no answer. Any other
/// refusal would hit locks too.
fn unless_hidden(answer: RedisResult<Value>) -> Result<Option<Value>, NodeError> {
    match answer.map_err(|error| fault::node_error(&error)) {
        Ok(value) => Ok(Some(value)),
        Err(NodeError::Permission(_) | NodeError::Unsuitable(_) | NodeError::Other(_)) => Ok(None),
        Err(refused) => Err(refused),
    }
}

impl Facts {
    /// Parses the output of INFO.
    pub(crate) fn read(info: &str) -> Self {
        let info = Info::parse(info);
        let limited = info.number("maxmemory");
        let policy = info.text("maxmemory_policy");
        Self {
            run_id: info.text("run_id"),
            major_version: info
                .text("redis_version")
                .and_then(|version| version.split('.').next()?.parse().ok()),
            role: info.text("role"),
            mode: info.text("redis_mode").or_else(|| info.text("server_mode")),
            uptime: info.number("uptime_in_seconds").map(Duration::from_secs),
            loading: info.is_set("loading"),
            eviction_is_known: limited == Some(0) || (limited.is_some() && policy.is_some()),
            eviction_policy: policy
                .filter(|policy| policy != "noeviction" && limited.is_some_and(|n| n > 0)),
            append_only: info.number("aof_enabled") == Some(1),
            fsync: None,
            syncs_while_saving: None,
            rewrites: ["aof_rewrite_in_progress", "aof_rewrite_scheduled"]
                .iter()
                .any(|key| info.is_set(key)),
            history: history(&info),
            fencing: None,
        }
    }

    /// Whether this server may store locks at all. Hidden facts are warned about once.
    pub(crate) fn admit_loudly(&self, node: &str, options: &RedisOptions) -> Result<(), NodeError> {
        self.warn(node, options);
        self.admit(options)
    }

    /// Whether it is a Sentinel, which stores no locks.
    pub(crate) fn is_sentinel(&self) -> bool {
        self.mode.as_deref() == Some("sentinel")
    }

    /// Whether this server may store locks at all.
    pub(crate) fn admit(&self, options: &RedisOptions) -> Result<(), NodeError> {
        match self.mode.as_deref() {
            Some("cluster") if !self.loading => Err(NodeError::ClusterNode),
            _ => self.admit_kind(options),
        }
    }

    /// The same for one server of a Redis Cluster.
    pub(crate) fn admit_of_cluster(&self, options: &RedisOptions) -> Result<(), NodeError> {
        match self.mode.as_deref() {
            Some("standalone") if !self.loading => Err(NodeError::NoClusterNode),
            _ => self.admit_kind(options),
        }
    }

    fn admit_kind(&self, options: &RedisOptions) -> Result<(), NodeError> {
        if self.loading {
            return Err(NodeError::Loading);
        }
        if self.is_sentinel() {
            return Err(NodeError::Sentinel);
        }
        match self.role.as_deref() {
            Some("master") => {}
            Some("sentinel") => return Err(NodeError::Sentinel),
            Some(_) => return Err(NodeError::Replica),
            None if options.hidden == Hidden::Refuse => return Err(NodeError::HidesInfo),
            None => {}
        }
        match (&self.eviction_policy, options.eviction) {
            (Some(policy), Eviction::Refuse) => Err(NodeError::Evicts(policy.clone())),
            _ => Ok(()),
        }
    }

    /// Warns about hidden and dangerous settings.
    pub(crate) fn warn(&self, node: &str, options: &RedisOptions) {
        if self.role.is_none() {
            warn_hidden(node, "whether it is a master", "+info");
        }
        if !self.eviction_is_known {
            warn_hidden(node, "whether it evicts keys", "+info");
        }
        if let Some(policy) = &self.eviction_policy
            && options.eviction == Eviction::Warn
        {
            tracing::warn!(
                node,
                reason = %NodeError::Evicts(policy.clone()),
                "this server may evict locks"
            );
        }
        if options.quarantine.is_some() && self.uptime.is_none() {
            warn_hidden(node, "how long it has been up", "+info");
        }
    }

    /// Whether every write is synced before its reply, according to the settings.
    fn syncs(&self) -> Option<bool> {
        let always = self.fsync.as_deref().map(|fsync| fsync == "always");
        match (self.append_only, always, self.syncs_while_saving) {
            (true, Some(true), Some(true)) => (!self.rewrites).then_some(true),
            (true, None, _) | (true, _, None) => None,
            _ => Some(false),
        }
    }

    /// Until when this server may have forgotten locks with a TTL of up to `max_ttl`. `born_after`
    /// is when another process was last seen in its place; `now` is when it answered.
    pub(crate) fn quarantine(
        &self,
        max_ttl: Duration,
        born_after: Option<Moment>,
        now: Moment,
    ) -> Option<Moment> {
        // Whatever this process writes to disk, the one before it may have kept nothing.
        let told = self.uptime.unwrap_or(Duration::ZERO);
        let at_least = told.saturating_sub(UPTIME_ERROR);
        // The server uses its wall clock, which may have jumped.
        let at_most = born_after.map_or(Duration::MAX, |moment| now.since(moment));
        let uptime = at_least.min(at_most);
        (uptime <= max_ttl).then(|| now + (max_ttl - uptime))
    }
}

/// `master_replid2` and `second_repl_offset`: they change with the role, not when a replica
/// attaches or leaves. Freeing the backlog empties them.
fn history(info: &Info) -> String {
    let of = |key| info.raw(key).unwrap_or_default();
    let (id, offset) = (of("master_replid2"), of("second_repl_offset"));
    match id.trim_matches('0').is_empty() || offset == "-1" {
        true => String::new(),
        false => fault::printable(&format!("{id} {offset}")),
    }
}

fn warn_hidden(node: &str, what: &str, grant: &str) {
    tracing::warn!(
        node,
        reason = %format_args!("the ACL does not allow this user to see {what}; grant {grant}"),
        "this server cannot be checked"
    );
}

/// What a node remembers of the server processes it has seen.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// The previous connection, if plain commands may still be in flight there.
    pub(crate) before: Predecessor,
    run_id: Option<String>,
    born_after: Option<Moment>,
    last_seen: Option<Moment>,
}

impl Memory {
    /// Records a process, and returns when another one was last seen in its place.
    pub(crate) fn meet(&mut self, run_id: Option<&str>, now: Moment) -> Option<Moment> {
        if let Some(run_id) = run_id {
            match &self.run_id {
                Some(known) if known == run_id => {}
                Some(_) => self.born_after = self.last_seen,
                None => {}
            }
            self.run_id = Some(run_id.to_owned());
        }
        self.last_seen = Some(now);
        self.born_after
    }

    /// Records that the process was alive at this moment.
    pub(crate) fn saw(&mut self, moment: Moment) {
        self.last_seen = self.last_seen.max(Some(moment));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INFO: &str = "# Server\r\nrun_id:abc\r\nuptime_in_seconds:30\r\nrole:master\r\n\
                        maxmemory:0\r\nmaxmemory_policy:allkeys-lru\r\naof_enabled:0\r\nloading:0\r\n";

    fn at(seconds: u64) -> Moment {
        Moment::from_start(Duration::from_secs(seconds))
    }

    #[test]
    fn a_policy_without_a_limit_evicts_nothing() {
        let facts = Facts::read(INFO);
        assert_eq!(facts.run_id.as_deref(), Some("abc"));
        assert_eq!(facts.admit(&RedisOptions::default()), Ok(()));
        let limited = Facts::read(&INFO.replace("maxmemory:0", "maxmemory:1000"));
        let refusal = limited.admit(&RedisOptions::default());
        assert_eq!(refusal, Err(NodeError::Evicts("allkeys-lru".into())));
        let warn = RedisOptions {
            eviction: Eviction::Warn,
            ..RedisOptions::default()
        };
        assert_eq!(limited.admit(&warn), Ok(()));
    }

    #[test]
    fn quarantine_ends_when_every_lock_from_before_the_start_has_expired() {
        let facts = Facts::read(INFO);
        let minute = Duration::from_secs(60);
        assert_eq!(facts.quarantine(minute, None, at(1000)), Some(at(1031)));
        assert_eq!(
            facts.quarantine(Duration::from_secs(28), None, at(1000)),
            None
        );
        let unknown = Facts::default();
        assert_eq!(unknown.quarantine(minute, None, at(1000)), Some(at(1060)));
    }

    #[test]
    fn an_uptime_that_cannot_be_is_not_believed() {
        let facts = Facts::read(&INFO.replace(":30", ":3000"));
        let minute = Duration::from_secs(60);
        assert_eq!(facts.quarantine(minute, None, at(1000)), None);
        let met_another = Some(at(990));
        assert_eq!(
            facts.quarantine(minute, met_another, at(1000)),
            Some(at(1050))
        );
    }

    #[test]
    fn no_setting_of_the_new_process_tells_what_the_old_one_kept() {
        let mut facts = Facts::read(&INFO.replace("aof_enabled:0", "aof_enabled:1"));
        let minute = Duration::from_secs(60);
        for fsync in [None, Some("always"), Some("everysec"), Some("no")] {
            facts.fsync = fsync.map(str::to_owned);
            assert!(facts.quarantine(minute, None, at(0)).is_some(), "{fsync:?}");
        }
    }

    #[test]
    fn only_every_write_on_disk_keeps_the_promise_of_durability() {
        let mut facts = Facts::read(&INFO.replace("aof_enabled:0", "aof_enabled:1"));
        for (fsync, while_saving, expected) in [
            (Some("always"), Some(true), Some(true)),
            (Some("always"), Some(false), Some(false)),
            (Some("everysec"), Some(true), Some(false)),
            (None, Some(true), None),
            (Some("always"), None, None),
        ] {
            facts.fsync = fsync.map(str::to_owned);
            facts.syncs_while_saving = while_saving;
            assert_eq!(facts.syncs(), expected, "{fsync:?} {while_saving:?}");
        }
        facts.append_only = false;
        assert_eq!(facts.syncs(), Some(false));
        // It says that it is enabled before anything has been written.
        for rewrite in ["aof_rewrite_in_progress:1", "aof_rewrite_scheduled:1"] {
            let mut facts = Facts::read(&format!("{INFO}aof_enabled:1\r\n{rewrite}\r\n"));
            facts.fsync = Some("always".to_owned());
            facts.syncs_while_saving = Some(true);
            assert_eq!(facts.syncs(), None, "{rewrite}");
        }
    }

    #[test]
    fn only_a_change_of_role_leaves_a_history() {
        let of = |text: &str| Facts::read(text).history;
        let zeros = "0".repeat(40);
        let none =
            format!("master_replid:abc\r\nmaster_replid2:{zeros}\r\nsecond_repl_offset:-1\r\n");
        assert_eq!(of(&none), "");
        assert_eq!(of(""), "");
        let changed = "master_replid2:def\r\nsecond_repl_offset:17\r\n";
        assert_eq!(of(changed), "def 17");
    }

    #[test]
    fn a_node_remembers_when_it_last_saw_another_process() {
        let mut memory = Memory::default();
        assert_eq!(memory.meet(Some("a"), at(1)), None);
        memory.saw(at(5));
        assert_eq!(memory.meet(Some("a"), at(6)), None, "only reconnected");
        memory.saw(at(9));
        assert_eq!(memory.meet(Some("b"), at(12)), Some(at(9)));
        memory.saw(at(20));
        assert_eq!(memory.meet(Some("b"), at(21)), Some(at(9)), "reconnected");
    }
}
