//! Sentinel groups of our own: masters, their replicas, and the Sentinels that watch them.
//!
//! Sentinels and replicas log in as users of their own, so that a server can be cut off from some of them,
//! and a client from the Sentinels, without a network to cut: whoever may not log in any more is gone.

use std::time::Duration;

use fencepost::{Builder, Client, InitOptions};
use tempfile::TempDir;

use crate::server::{RedisServer, ServerOptions};
use crate::{LATE, eventually, wait_until};

/// How long a Sentinel does not hear from a master before it takes it for down.
const DOWN_AFTER_MS: u64 = 1000;
/// How many Sentinels watch.
const SENTINELS: usize = 3;

/// How a group is set up.
#[derive(Clone, Debug)]
pub struct GroupSetup {
    /// The `replica-priority` of each replica: one with 0 is never promoted.
    pub priorities: Vec<u8>,
    /// `min-replicas-to-write`
    pub min_replicas: u8,
}

impl Default for GroupSetup {
    fn default() -> Self {
        Self {
            priorities: vec![100],
            min_replicas: 1,
        }
    }
}

/// The servers of one group, the first master first.
#[derive(Debug)]
pub struct SentinelGroup {
    /// Under which name the Sentinels know it.
    pub name: String,
    /// The servers.
    pub servers: Vec<RedisServer>,
}

/// Groups, and the Sentinels that watch all of them.
#[derive(Debug)]
pub struct SentinelGroups {
    /// The Sentinels.
    pub sentinels: Vec<RedisServer>,
    /// The groups.
    pub groups: Vec<SentinelGroup>,
    _configs: TempDir,
}

impl SentinelGroups {
    /// `F` of the URLs.
    pub const FAILOVER: Duration = Duration::from_secs(2);

    /// Starts that many groups, and waits until the Sentinels know everybody.
    ///
    /// # Panics
    /// When something does not come up.
    #[must_use]
    pub fn start(groups: usize, setup: &GroupSetup) -> Self {
        let groups: Vec<_> = (0..groups)
            .map(|n| SentinelGroup::start(n, setup))
            .collect();
        let configs = tempfile::tempdir().expect("a temporary directory");
        let start = |n: usize| {
            let path = configs.path().join(n.to_string());
            // Whoever restarts it begins with what it had written there.
            std::fs::write(&path, config(&groups)).expect("a file of our own");
            let path = path.to_str().expect("a path of our own").to_owned();
            RedisServer::start_args(&[&path, "--sentinel"])
        };
        let sentinels = (0..SENTINELS).map(start).collect();
        let all = Self {
            sentinels,
            groups,
            _configs: configs,
        };
        for group in &all.groups {
            for sentinel in &all.sentinels {
                let knows_all = || {
                    let says = |field| all.says(sentinel, group, field);
                    says("num-other-sentinels") == (SENTINELS - 1).to_string()
                        && says("num-slaves") == setup.priorities.len().to_string()
                };
                eventually("the Sentinels know each other", LATE, knows_all);
            }
        }
        all
    }

    /// One field of what a Sentinel says about a group's master.
    #[must_use]
    pub fn says(&self, sentinel: &RedisServer, group: &SentinelGroup, field: &str) -> String {
        let all = sentinel.cli(&["SENTINEL", "MASTER", &group.name]);
        let mut lines = all.lines().skip_while(|line| *line != field);
        lines.nth(1).unwrap_or_default().to_owned()
    }

    /// The URL of one group, for a client that logs in at the Sentinels as `user`: `a`, `b` or `c`.
    #[must_use]
    pub fn url_of(&self, group: usize, user: &str) -> String {
        let ports = self.sentinels.iter().map(RedisServer::port);
        let sentinels: Vec<_> = ports.map(|port| format!("127.0.0.1:{port}")).collect();
        format!(
            "redis+sentinel://:x@{}/{}?sentinel_user={user}&sentinel_password=x&failover={}s",
            sentinels.join(","),
            self.groups[group].name,
            Self::FAILOVER.as_secs()
        )
    }

    /// The URLs of all groups.
    #[must_use]
    pub fn urls(&self, user: &str) -> String {
        let urls: Vec<_> = (0..self.groups.len())
            .map(|group| self.url_of(group, user))
            .collect();
        urls.join(",")
    }

    /// A client of all groups to set up further.
    pub fn builder(&self, user: &str, max_ttl: Duration) -> Builder {
        Client::builder().url(self.urls(user)).max_ttl(max_ttl)
    }

    /// Makes the cluster, so that it votes at once.
    ///
    /// # Panics
    /// When it cannot be made.
    pub async fn init(&self, max_ttl: Duration) {
        let fresh = InitOptions::new().fresh(true);
        let made = self.builder("a", max_ttl).init(fresh).await;
        made.expect("servers of our own");
    }

    /// Which server of a group a Sentinel names.
    ///
    /// # Panics
    /// When it names another.
    #[must_use]
    pub fn named_by(&self, sentinel: usize, group: usize) -> usize {
        let group = &self.groups[group];
        let port = self.says(&self.sentinels[sentinel], group, "port");
        let mut ports = group.servers.iter().map(|server| server.port().to_string());
        ports.position(|other| other == port).expect("one of ours")
    }

    /// Waits until every Sentinel names another server than that one, and returns which.
    ///
    /// # Panics
    /// When they do not in time.
    pub async fn failed_over(&self, group: usize, from: usize) -> usize {
        let moved = || (0..SENTINELS).all(|sentinel| self.named_by(sentinel, group) != from);
        wait_until("a failover", 2 * LATE, moved).await;
        self.named_by(0, group)
    }

    /// Cuts a client off from the Sentinels at which it logged in as that user.
    ///
    /// # Panics
    /// When a Sentinel cannot be asked.
    pub fn cut_off_client(&self, user: &str) {
        for sentinel in &self.sentinels {
            shut_out(sentinel, user);
        }
    }
}

impl SentinelGroup {
    fn start(number: usize, setup: &GroupSetup) -> Self {
        let mut servers: Vec<RedisServer> = Vec::new();
        for (n, priority) in std::iter::once(&100).chain(&setup.priorities).enumerate() {
            let mut args: Vec<String> = Vec::new();
            let mut say = |words: &str| args.extend(words.split(' ').map(str::to_owned));
            say("--repl-diskless-sync-delay 0 --repl-ping-replica-period 1");
            say(&format!("--min-replicas-to-write {}", setup.min_replicas));
            let lag = SentinelGroups::FAILOVER.as_secs();
            say(&format!(
                "--min-replicas-max-lag {lag} --replica-priority {priority}"
            ));
            say(&format!("--masteruser replica{n} --masterauth x"));
            say("--user sentinel on >x ~* &* +@all");
            for user in 0..=setup.priorities.len() {
                say(&format!("--user replica{user} on >x ~* &* +@all"));
            }
            if let Some(master) = servers.first() {
                say(&format!("--replicaof 127.0.0.1 {}", master.port()));
            }
            // Whoever cannot log in must not be let in without.
            say("--requirepass x");
            servers.push(RedisServer::start_with(ServerOptions {
                args,
                password: Some("x".to_owned()),
            }));
        }
        let replicas = setup.priorities.len();
        let all_online = || {
            let info = servers[0].cli(&["INFO", "replication"]);
            info.matches("state=online").count() == replicas
        };
        eventually("the replicas have caught up", LATE, all_online);
        let name = format!("m{number}");
        Self { name, servers }
    }

    /// Cuts these servers off from the Sentinels and from the replicas that are not among them. Clients
    /// reach them nevertheless.
    ///
    /// # Panics
    /// When one cannot be asked.
    pub fn isolate(&self, side: &[usize]) {
        for server in side {
            let server = &self.servers[*server];
            shut_out(server, "sentinel");
            for other in (0..self.servers.len()).filter(|other| !side.contains(other)) {
                shut_out(server, &format!("replica{other}"));
            }
        }
    }

    /// Cuts one replica off from its master: what is written from now on does not reach it.
    ///
    /// # Panics
    /// When one cannot be asked.
    pub fn detach(&self, master: usize, replica: usize) {
        shut_out(&self.servers[master], &format!("replica{replica}"));
    }
}

fn shut_out(server: &RedisServer, user: &str) {
    server.cli(&["ACL", "SETUSER", user, "off"]);
    server.cli(&["CLIENT", "KILL", "USER", user]);
}

fn config(groups: &[SentinelGroup]) -> String {
    let mut text = String::new();
    for user in ["a", "b", "c"] {
        text += &format!("user {user} on >x ~* &* +@all\n");
    }
    for SentinelGroup { name, servers } in groups {
        let (port, quorum) = (servers[0].port(), SENTINELS / 2 + 1);
        text += &format!(
            "sentinel monitor {name} 127.0.0.1 {port} {quorum}\n\
             sentinel auth-user {name} sentinel\n\
             sentinel auth-pass {name} x\n\
             sentinel down-after-milliseconds {name} {DOWN_AFTER_MS}\n\
             sentinel failover-timeout {name} 4000\n"
        );
    }
    text
}
