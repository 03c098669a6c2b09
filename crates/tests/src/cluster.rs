//! Several servers that form a quorum, and clients of them.

use fencepost::{Builder, Client, RestartPolicy};

use crate::server::RedisServer;
use crate::{LATE, until, wait_until};

/// Servers of our own, one a node.
#[derive(Debug)]
pub struct Cluster {
    /// The servers, in the order in which clients have them.
    pub servers: Vec<RedisServer>,
}

impl Cluster {
    /// Starts `n` servers.
    #[must_use]
    pub fn start(n: usize) -> Self {
        Self {
            servers: RedisServer::start_many(n),
        }
    }

    /// Their URLs, separated by commas.
    #[must_use]
    pub fn urls(&self) -> String {
        let urls: Vec<_> = self.servers.iter().map(RedisServer::url).collect();
        urls.join(",")
    }

    /// A client to set up further. It trusts servers that were started just now.
    pub fn builder(&self) -> Builder {
        Client::builder()
            .url(self.urls())
            .restart_policy(RestartPolicy::Trust)
    }

    /// A client.
    ///
    /// # Panics
    /// When it cannot connect.
    pub async fn client(&self) -> Client {
        self.connect(self.builder()).await
    }

    /// A client that is connected to every server that is up. By itself it goes on with a majority, and a server
    /// that is frozen or killed in the middle of a handshake fails in other ways than one that had voted before.
    ///
    /// # Panics
    /// When it cannot connect.
    pub async fn connect(&self, builder: Builder) -> Client {
        let locks = builder.connect().await.expect("servers of our own");
        until("the client is connected everywhere", LATE, async || {
            let status = locks.status("fencepost-tests").await.expect("a name");
            let mut each = self.servers.iter().zip(&status.nodes);
            each.all(|(server, node)| node.lock.is_ok() || !server.is_up())
        })
        .await;
        locks
    }

    /// Waits until every server has the key. A client goes on as soon as a majority has it, and the
    /// others may take it later: whoever is about to harm some of the servers must wait for all.
    ///
    /// # Panics
    /// When one does not have it in time.
    pub async fn all_have(&self, key: &str) {
        let has = |server: &RedisServer| server.cli(&["EXISTS", key]) == "1";
        self.all(&format!("{key} is there"), has).await;
    }

    /// Waits until that holds of every server, also of those that are later than a majority.
    ///
    /// # Panics
    /// When it does not hold of one in time.
    pub async fn all(&self, what: &str, holds: impl Fn(&RedisServer) -> bool) {
        let everywhere = || self.servers.iter().all(&holds);
        wait_until(&format!("on every server: {what}"), LATE, everywhere).await;
    }

    /// How many scripts each server has run so far.
    ///
    /// # Panics
    /// When a server cannot be asked.
    #[must_use]
    pub fn scripts_run(&self) -> Vec<u64> {
        self.servers.iter().map(RedisServer::scripts_run).collect()
    }

    /// The keys that are left on each server, without the token counters.
    #[must_use]
    pub fn leftovers(&self) -> Vec<String> {
        self.servers.iter().flat_map(RedisServer::keys).collect()
    }
}
