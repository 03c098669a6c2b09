//! All servers of one run, with their network and what stands between them and the clients.

use std::io;
use std::path::Path;

use fencepost::RestartPolicy;
use tokio::runtime::Runtime;

use crate::client::Manner;
use crate::net::{End, Inside, Network};
use crate::node::{Node, NodeOptions};
use crate::proxy::Proxy;
use crate::reaper::Folder;

/// How many client processes there are.
pub const CLIENTS: usize = 4;
/// What they do, unless a row wants it otherwise.
pub const MANNERS: [Manner; CLIENTS] =
    [Manner::Wait, Manner::Careful, Manner::Try, Manner::Careless];

/// The keys that a server has once, or each slot of a Redis Cluster, and keeps.
const STAYS: [&str; 5] = [
    "fencepost:fences",
    "fencepost:marker",
    "fencepost:slot",
    "fencepost:swept",
    "fencepost:wait",
];

/// What servers a run needs, and what their clients are like.
#[derive(Clone, Debug)]
pub struct Layout {
    /// How many servers.
    pub nodes: usize,
    /// How many more there are that are not in the clients' list at first.
    pub extra: usize,
    /// How many Sentinels there will be: places for them in the network.
    pub sentinels: usize,
    /// How many replicas of the lock service there will be: places for them in the network.
    pub replicas: usize,
    /// How each server is started.
    pub options: NodeOptions,
    /// Whether a proxy stands before each server.
    pub proxied: bool,
    /// What clients think of a restarted server.
    pub policy: RestartPolicy,
    /// Whether clients ask to be served in the order in which they came.
    pub fair: bool,
    /// Whether clients fork while they hold the lock.
    pub forks: bool,
    /// What the client processes do.
    pub manners: [Manner; CLIENTS],
}

impl Default for Layout {
    fn default() -> Self {
        Self {
            nodes: 3,
            extra: 0,
            sentinels: 0,
            replicas: 0,
            options: NodeOptions::default(),
            proxied: false,
            policy: RestartPolicy::Trust,
            fair: false,
            forks: false,
            manners: MANNERS,
        }
    }
}

/// The servers. Dropping it ends all of it.
#[derive(Debug)]
pub struct Cluster {
    // In the order in which they have to go.
    /// The proxies, if there are any, one for each server.
    pub proxies: Vec<Proxy>,
    /// The servers.
    pub nodes: Vec<Node>,
    /// What is between them.
    pub network: Network,
    /// How they were asked for.
    pub layout: Layout,
    urls: Vec<String>,
    /// What clients are given in place of these.
    store: Option<String>,
    _runtime: Option<ProxyRuntime>,
    folder: Folder,
}

/// What the proxies run on. It goes without waiting, so that a test's own runtime may drop it.
#[derive(Debug)]
struct ProxyRuntime(Option<Runtime>);

impl Drop for ProxyRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

impl Cluster {
    /// Starts them on loopback: for tests whose clients live in the test itself.
    ///
    /// # Errors
    /// When one of them does not come up.
    pub fn start_on_loopback(layout: Layout) -> io::Result<Self> {
        Self::start_on(Network::loopback(), layout)
    }

    /// Starts them on that network.
    ///
    /// # Errors
    /// When one of them does not come up.
    pub fn start_on(network: Network, mut layout: Layout) -> io::Result<Self> {
        let folder = Folder::new()?;
        layout.options.hidden |= layout.proxied;
        let mut nodes = Vec::new();
        for number in 0..layout.nodes + layout.extra {
            let place = folder.path().join(format!("node{number}"));
            nodes.push(Node::start(
                &network,
                number,
                &place,
                layout.options.clone(),
            )?);
        }
        let mut proxies = Vec::new();
        let mut runtime = None;
        let mut urls: Vec<String> = Vec::new();
        if layout.proxied {
            let own = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(1)
                .enable_all()
                .build()?;
            for node in &nodes {
                let listener = network.listen(End::Node(proxies.len()), Inside::No, 0)?;
                urls.push(format!("redis://{}", listener.local_addr()?));
                let seed = proxies.len() as u64;
                proxies.push(Proxy::start(listener, &node.socket(), seed, own.handle())?);
            }
            runtime = Some(ProxyRuntime(Some(own)));
        } else {
            urls.extend(
                nodes
                    .iter()
                    .map(|node| format!("redis://{}", node.address())),
            );
        }
        Ok(Self {
            proxies,
            nodes,
            network,
            layout,
            urls,
            store: None,
            _runtime: runtime,
            folder,
        })
    }

    /// The URLs of the clients' list, separated by commas.
    #[must_use]
    pub fn urls(&self) -> String {
        match &self.store {
            Some(store) => store.clone(),
            None => self.urls[..self.layout.nodes].join(","),
        }
    }

    /// What clients are given from now on: the servers are no plain ones.
    pub fn is_reached_by(&mut self, store: String) {
        self.store = Some(store);
    }

    /// The same with those servers that are not in it at first.
    #[must_use]
    pub fn more_urls(&self) -> String {
        self.urls.join(",")
    }

    /// Only those that are not in it at first.
    #[must_use]
    pub fn extra_urls(&self) -> String {
        self.urls[self.layout.nodes..].join(",")
    }

    /// How many nodes can be lost and a majority is left.
    #[must_use]
    pub fn minority(&self) -> usize {
        (self.layout.nodes - 1) / 2
    }

    /// A folder for whatever belongs to this run.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The keys that are left on a server, without those that stay on purpose.
    ///
    /// # Errors
    /// When it cannot be asked.
    pub fn keys_left(&self, node: usize) -> io::Result<Vec<String>> {
        let keys: Vec<String> = self.nodes[node]
            .ask(&["KEYS", "*"])
            .map_err(io::Error::other)?;
        let is_lock = |key: &String| {
            // In a Redis Cluster each slot has its own.
            let of_server = key.split(":{").next().unwrap_or_default();
            !STAYS.contains(&of_server) && !key.starts_with("filler:")
        };
        Ok(keys.into_iter().filter(is_lock).collect())
    }

    /// Who holds the lock by the word of a node: the owner's label.
    #[must_use]
    pub fn holder_of(&self, lock: &str) -> Option<String> {
        self.nodes.iter().find_map(|node| {
            let value: Option<String> = node.ask(&["GET", lock]).ok()?;
            // A random part, the token, the label.
            Some(value?.splitn(3, ':').nth(2)?.to_owned())
        })
    }
}
