//! Several servers that form a quorum, and clients of them.

use fencepost::{Builder, Fencepost, RestartPolicy};

use crate::server::RedisServer;

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
        Fencepost::builder()
            .url(self.urls())
            .restart_policy(RestartPolicy::Trust)
    }

    /// A client.
    ///
    /// # Panics
    /// When it cannot connect.
    pub async fn client(&self) -> Fencepost {
        self.builder().connect().await.expect("servers of our own")
    }

    /// The keys that are left on each server, without the token counters.
    #[must_use]
    pub fn leftovers(&self) -> Vec<String> {
        let mut left = Vec::new();
        for server in &self.servers {
            let keys = server.cli(&["KEYS", "*"]);
            let keys = keys.lines().filter(|key| !key.is_empty());
            left.extend(
                keys.filter(|key| !key.ends_with(":fence"))
                    .map(str::to_owned),
            );
        }
        left
    }
}
