//! Redis Clusters of our own: masters with their slots, and the replicas that stand behind them.

use std::time::Duration;

use fencepost::{Builder, Client, InitOptions};

use crate::server::{RedisServer, ServerOptions, free_port};
use crate::{Authority, LATE, TlsFiles, eventually, wait_until};

/// `cluster-node-timeout`.
const NODE_TIMEOUT_MS: u64 = 1000;
/// As whom replicas log in, so that they can be cut off.
const REPLICA: &str = "--user replica on >x ~* &* +@all";
const SLOTS: usize = 16_384;

/// The servers of a Cluster, the first masters first.
#[derive(Debug)]
pub struct RedisCluster {
    /// The servers.
    pub servers: Vec<RedisServer>,
    /// How many of them were masters in the beginning.
    pub masters: usize,
    /// The port of each at which clients find it: with TLS not the server's own.
    ports: Vec<u16>,
    /// Certificate and key, of one for all nodes.
    tls: Option<TlsFiles>,
}

impl RedisCluster {
    /// `F` of the URLs.
    pub const FAILOVER: Duration = Duration::from_secs(1);

    /// Starts that many masters, each with so many replicas, and waits until all know of each other.
    ///
    /// # Panics
    /// When something does not come up.
    #[must_use]
    pub fn start(masters: usize, replicas: usize) -> Self {
        Self::launch(masters, replicas, &even(masters), None)
    }

    /// Three masters with all slots, and a fourth that has none yet.
    ///
    /// # Panics
    /// When something does not come up.
    #[must_use]
    pub fn start_with_empty_shard() -> Self {
        let mut slots = even(3);
        slots.push(Vec::new());
        Self::launch(4, 0, &slots, None)
    }

    /// Three masters, of which the first has this slot and the two beside it, and no others.
    ///
    /// # Panics
    /// When something does not come up.
    #[must_use]
    pub fn start_with_small_shard(slot: u16, replicas: usize) -> Self {
        let slot = usize::from(slot);
        let slots = [
            vec![(slot - 1, slot + 1)],
            vec![(0, slot - 2)],
            vec![(slot + 2, SLOTS - 1)],
        ];
        Self::launch(3, replicas, &slots, None)
    }

    /// The same without replicas, where the nodes speak TLS with each other and with clients, and have a
    /// certificate for `127.0.0.1` of that authority.
    ///
    /// # Panics
    /// When something does not come up.
    #[must_use]
    pub fn start_tls(masters: usize, authority: &Authority) -> Self {
        let files = TlsFiles::new(authority, "127.0.0.1");
        Self::launch(masters, 0, &even(masters), Some(files))
    }

    fn launch(
        masters: usize,
        replicas: usize,
        slots: &[Vec<(usize, usize)>],
        tls: Option<TlsFiles>,
    ) -> Self {
        let mut servers = Vec::new();
        let mut ports = Vec::new();
        let mut bus_ports = Vec::new();
        for _ in 0..masters * (1 + replicas) {
            let bus = free_port();
            let words = format!(
                "--cluster-enabled yes --cluster-port {bus} --cluster-node-timeout {NODE_TIMEOUT_MS} \
                 --cluster-require-full-coverage no --cluster-allow-replica-migration no \
                 --repl-diskless-sync-delay 0 --repl-ping-replica-period 1 \
                 --cluster-replica-validity-factor 0 --masteruser replica --masterauth x"
            );
            let mut args: Vec<_> = words.split_whitespace().map(str::to_owned).collect();
            args.extend(REPLICA.split(' ').map(str::to_owned));
            let tls_port = tls.as_ref().map(|files| {
                let port = free_port();
                args.extend(files.words(port, "no"));
                args.extend(["--tls-cluster", "yes"].map(str::to_owned));
                port
            });
            let server = RedisServer::start_with(ServerOptions {
                args,
                password: None,
            });
            ports.push(tls_port.unwrap_or(server.port()));
            servers.push(server);
            bus_ports.push(bus.to_string());
        }
        for (n, server) in servers[..masters].iter().enumerate() {
            server.cli(&["CLUSTER", "SET-CONFIG-EPOCH", &(n + 1).to_string()]);
            for (first, last) in &slots[n] {
                let (first, last) = (first.to_string(), last.to_string());
                server.cli(&["CLUSTER", "ADDSLOTSRANGE", &first, &last]);
            }
        }
        for (port, bus) in ports.iter().zip(&bus_ports).skip(1) {
            let port = port.to_string();
            servers[0].cli(&["CLUSTER", "MEET", "127.0.0.1", &port, bus]);
        }
        let all = Self {
            servers,
            masters,
            ports,
            tls,
        };
        let everybody = |words: &str| {
            all.servers
                .iter()
                .all(|server| server.cli(&["CLUSTER", "INFO"]).contains(words))
        };
        let known = format!("cluster_known_nodes:{}\r", all.servers.len());
        eventually("all nodes know each other", LATE, || everybody(&known));
        for replica in masters..all.servers.len() {
            let master = all.id(replica % masters);
            eventually("it may be a replica", LATE, || {
                all.servers[replica].cli(&["CLUSTER", "REPLICATE", &master]) == "OK"
            });
        }
        eventually("the Cluster is up", LATE, || {
            everybody("cluster_state:ok") && all.replicas_are_online(replicas)
        });
        // What the replicas of another master are is told by gossip.
        for n in 0..masters {
            let id = all.id(n);
            eventually("everybody knows the replicas", LATE, || {
                all.servers.iter().all(|server| {
                    let nodes = server.cli(&["CLUSTER", "NODES"]);
                    let of = nodes.lines().filter(|line| line.contains("slave"));
                    of.filter(|line| line.contains(&id)).count() == replicas
                })
            });
        }
        all
    }

    fn replicas_are_online(&self, replicas: usize) -> bool {
        self.servers[..self.masters].iter().all(|master| {
            let info = master.cli(&["INFO", "replication"]);
            info.matches("state=online").count() == replicas
        })
    }

    /// The id of a server.
    #[must_use]
    pub fn id(&self, server: usize) -> String {
        self.servers[server].cli(&["CLUSTER", "MYID"])
    }

    /// The URL, which lists the first masters.
    #[must_use]
    pub fn url(&self) -> String {
        let ports = self.ports[..self.masters].iter();
        let nodes: Vec<_> = ports.map(|port| format!("127.0.0.1:{port}")).collect();
        let failover = Self::FAILOVER.as_secs();
        let scheme = match self.tls {
            Some(_) => "rediss+cluster",
            None => "redis+cluster",
        };
        format!("{scheme}://{}?failover={failover}s", nodes.join(","))
    }

    /// A client to set up further.
    pub fn builder(&self, max_ttl: Duration) -> Builder {
        Client::builder().url(self.url()).max_ttl(max_ttl)
    }

    /// Makes the markers, so that it votes at once.
    ///
    /// # Panics
    /// When they cannot be made.
    pub async fn init(&self, max_ttl: Duration) {
        let fresh = InitOptions::new().fresh(true);
        let made = self.builder(max_ttl).init(fresh).await;
        made.expect("servers of our own");
    }

    /// The slot of a key.
    ///
    /// # Panics
    /// When it cannot be asked.
    #[must_use]
    pub fn slot(&self, key: &str) -> u16 {
        let slot = self.up().cli(&["CLUSTER", "KEYSLOT", key]);
        slot.parse().expect("a slot")
    }

    fn up(&self) -> &RedisServer {
        let is_up = |server: &&RedisServer| server.is_running();
        self.servers.iter().find(is_up).expect("a server that runs")
    }

    /// Which server owns a slot, as another says.
    ///
    /// # Panics
    /// When nobody does.
    #[must_use]
    pub fn owner_by(&self, server: &RedisServer, slot: u16) -> Option<usize> {
        let nodes = server.cli(&["CLUSTER", "NODES"]);
        let has = |word: &str| {
            let mut ends = word.split('-').map(str::parse::<u16>);
            match (ends.next(), ends.next()) {
                (Some(Ok(first)), Some(Ok(last))) => (first..=last).contains(&slot),
                (Some(Ok(only)), None) => only == slot,
                _ => false,
            }
        };
        let owner = nodes
            .lines()
            .find(|line| line.split(' ').skip(8).any(has))?;
        let address = owner.split(' ').nth(1)?;
        let port = address.split(['@', ':']).nth(1)?;
        // The harness asks without TLS, and is told the ports without.
        let mut ports = self.servers.iter().map(|server| server.port().to_string());
        ports.position(|other| other == port)
    }

    /// Which server owns a slot.
    ///
    /// # Panics
    /// When nobody does.
    #[must_use]
    pub fn owner(&self, slot: u16) -> usize {
        self.owner_by(self.up(), slot).expect("an owner")
    }

    /// The id of the owner of a slot, also where that does not run any more.
    ///
    /// # Panics
    /// When nobody owns it.
    #[must_use]
    pub fn owner_id(&self, slot: u16) -> String {
        let owner = self.servers[self.owner(slot)].port();
        let nodes = self.up().cli(&["CLUSTER", "NODES"]);
        let has = |line: &&str| line.contains(&format!(":{owner}@"));
        let line = nodes.lines().find(has).expect("a node");
        line.split(' ').next().unwrap_or_default().to_owned()
    }

    /// Moves a slot with all its keys, as `redis-cli --cluster reshard` does.
    ///
    /// # Panics
    /// When a server refuses.
    pub fn migrate(&self, slot: u16, to: usize) {
        let from = self.owner(slot);
        self.begin_to_migrate(slot, from, to);
        let number = slot.to_string();
        loop {
            let keys = self.servers[from].cli(&["CLUSTER", "GETKEYSINSLOT", &number, "100"]);
            let keys: Vec<_> = keys.lines().filter(|key| !key.is_empty()).collect();
            if keys.is_empty() {
                break;
            }
            self.migrate_keys(from, to, &keys);
        }
        let to_id = self.id(to);
        let set =
            |server: &RedisServer| server.cli(&["CLUSTER", "SETSLOT", &number, "NODE", &to_id]);
        assert_eq!(set(&self.servers[to]), "OK");
        assert_eq!(set(&self.servers[from]), "OK");
        for other in self.servers.iter().filter(|server| server.is_running()) {
            // Replicas are told by their master.
            set(other);
        }
    }

    /// Tells both sides that a slot is on its way.
    ///
    /// # Panics
    /// When a server refuses.
    pub fn begin_to_migrate(&self, slot: u16, from: usize, to: usize) {
        let (slot, from_id, to_id) = (slot.to_string(), self.id(from), self.id(to));
        for (server, state, other) in [(to, "IMPORTING", from_id), (from, "MIGRATING", to_id)] {
            let set = ["CLUSTER", "SETSLOT", &slot, state, &other];
            assert_eq!(self.servers[server].cli(&set), "OK");
        }
    }

    /// Moves these keys of a slot that is on its way.
    ///
    /// # Panics
    /// When a server refuses.
    pub fn migrate_keys(&self, from: usize, to: usize, keys: &[&str]) {
        let port = self.ports[to].to_string();
        let mut migrate = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
        migrate.extend(keys);
        let moved = self.servers[from].cli(&migrate);
        assert!(["OK", "NOKEY"].contains(&moved.as_str()), "{moved}");
    }

    /// Cuts the replicas of a master off: what is written from now on does not reach them.
    ///
    /// # Panics
    /// When it cannot be asked.
    pub fn detach_replicas(&self, master: usize) {
        self.servers[master].cli(&["ACL", "SETUSER", "replica", "off"]);
        self.servers[master].cli(&["CLIENT", "KILL", "USER", "replica"]);
    }

    /// Waits until everybody who runs names another owner of that slot, and returns which.
    ///
    /// # Panics
    /// When they do not in time.
    pub async fn failed_over(&self, slot: u16, from: usize) -> usize {
        let moved = || {
            let mut running = self.servers.iter().filter(|server| server.is_running());
            running.all(|server| self.owner_by(server, slot).is_some_and(|to| to != from))
        };
        wait_until("a failover", 2 * LATE, moved).await;
        self.owner(slot)
    }
}

/// Slots for that many masters.
fn even(masters: usize) -> Vec<Vec<(usize, usize)>> {
    let of = |n| vec![(SLOTS * n / masters, SLOTS * (n + 1) / masters - 1)];
    (0..masters).map(of).collect()
}
