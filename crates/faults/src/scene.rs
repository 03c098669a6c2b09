//! A run under way: the servers, the client processes, and what a fault needs to get at them.

use std::io;
use std::path::PathBuf;
use std::process::{ChildStdin, Stdio};
use std::time::{Duration, Instant};

use fencepost::RestartPolicy;
use fencepost_checks::{Change, ClientId, Event};

use crate::client::Manner;
use crate::clock::BentClock;
use crate::cluster::Cluster;
use crate::net::End;
use crate::node::Node;
use crate::now::now;
use crate::process::Process;
use crate::program;
use crate::proxy::Rules;
use crate::random::Random;
use crate::resource::Resource;
use crate::service::Replica;

/// The lock that everybody wants.
pub const LOCK: &str = "job";
/// How long a lock lives without its holder.
pub const TTL: Duration = Duration::from_millis(500);
/// The longest TTL that the clients agree on: so long a restarted server is not asked.
pub const MAX_TTL: Duration = Duration::from_secs(1);
/// How long a client may take to end when it is told to.
const LAST_TURN: Duration = Duration::from_secs(15);

/// A run under way.
#[derive(Debug)]
pub struct Scene {
    /// The client processes. They go first.
    pub clients: Vec<ClientProcess>,
    /// The replicas of the lock service, if there are any.
    pub replicas: Vec<Replica>,
    /// Servers that wait to take another's place.
    pub spares: Vec<Node>,
    /// The Sentinels, if there are any.
    pub sentinels: Vec<Node>,
    /// The servers.
    pub cluster: Cluster,
    /// What the lock guards.
    pub resource: Resource,
    /// The run's own sequence of numbers.
    pub random: Random,
    /// How much longer than TTL and grace a key may stay because of what was done to clocks.
    pub clocks_set_back: Duration,
    /// The clocks of the client processes, if they are to be bent.
    pub client_clocks: Vec<BentClock>,
    /// The histories of all clients there were.
    pub histories: Vec<PathBuf>,
    /// What the harness itself saw.
    pub events: Vec<Event>,
    next_id: u32,
}

/// A client process.
#[derive(Debug)]
pub struct ClientProcess {
    /// The process.
    pub process: Process,
    /// Its place in the network.
    pub place: usize,
    /// Where it writes what it saw.
    pub history: PathBuf,
    id: u32,
    input: Option<ChildStdin>,
    /// How it asks and works.
    pub manner: Manner,
    /// Its list of nodes.
    urls: String,
}

impl Scene {
    /// Servers that are up, and no client yet.
    ///
    /// # Errors
    /// When the resource cannot be opened.
    pub fn new(cluster: Cluster, random: Random) -> io::Result<Self> {
        let resource = Resource::open(cluster.folder())?;
        Ok(Self {
            clients: Vec::new(),
            replicas: Vec::new(),
            spares: Vec::new(),
            sentinels: Vec::new(),
            cluster,
            resource,
            random,
            clocks_set_back: Duration::ZERO,
            client_clocks: Vec::new(),
            histories: Vec::new(),
            events: Vec::new(),
            next_id: 0,
        })
    }

    /// Starts all clients.
    ///
    /// # Errors
    /// When one cannot be started.
    pub fn start_clients(&mut self) -> io::Result<()> {
        let (manners, urls) = (self.cluster.layout.manners, self.cluster.urls());
        for (place, manner) in manners.into_iter().enumerate() {
            let client = self.start_client(place, manner, &urls)?;
            self.clients.push(client);
        }
        Ok(())
    }

    fn start_client(
        &mut self,
        place: usize,
        manner: Manner,
        urls: &str,
    ) -> io::Result<ClientProcess> {
        use clap::ValueEnum;
        let id = self.next_id;
        self.next_id += 1;
        let folder = self.cluster.folder();
        let history = folder.join(format!("client{id}.jsonl"));
        // It is looked at before the client has written anything.
        std::fs::File::create(&history)?;
        let errors = std::fs::File::create(folder.join(format!("client{id}.log")))?;
        let program = program::path()?;
        let mut command = self.cluster.network.command(End::Client(place), &program);
        command
            .args(["client", "--id", &id.to_string(), "--lock", LOCK])
            .args(["--urls", urls])
            .args(["--ttl", &TTL.as_millis().to_string()])
            .args(["--max-ttl", &MAX_TTL.as_millis().to_string()])
            .arg("--manner")
            .args(
                manner
                    .to_possible_value()
                    .map(|value| value.get_name().to_owned()),
            )
            .arg("--history")
            .arg(&history)
            .arg("--resource")
            .arg(self.resource.socket())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(errors);
        if self.cluster.layout.policy == RestartPolicy::Trust {
            command.arg("--trust");
        }
        if self.cluster.layout.fair {
            command.arg("--fair");
        }
        if self.cluster.layout.forks {
            command.arg("--forks").arg(self.forks_file());
        }
        if let Some(clock) = self.client_clocks.get(place) {
            clock.give_to(&mut command);
        }
        let mut process = Process::start(&mut command)?;
        let input = process.take_input();
        self.histories.push(history.clone());
        Ok(ClientProcess {
            process,
            place,
            history,
            id,
            input,
            manner,
            urls: urls.to_owned(),
        })
    }

    /// Kills a client with -9 and starts another in its place.
    ///
    /// # Errors
    /// When it cannot be killed, or the other not be started.
    pub fn replace_client(&mut self, client: usize) -> io::Result<()> {
        let urls = self.clients[client].urls.clone();
        self.replace_client_by(client, &urls)
    }

    /// The same, and the other has that list of nodes.
    ///
    /// # Errors
    /// When it cannot be killed, or the other not be started.
    pub fn replace_client_by(&mut self, client: usize, urls: &str) -> io::Result<()> {
        let (place, manner) = (self.clients[client].place, self.clients[client].manner);
        self.clients[client].process.kill()?;
        // At once: on a busy machine it takes longer than a TTL to start another.
        let dead = ClientId(self.clients[client].id);
        self.events.push(Event::client(now(), dead, Change::Died));
        self.clients[client] = self.start_client(place, manner, urls)?;
        Ok(())
    }

    /// Where clients that fork write a byte each time.
    #[must_use]
    pub fn forks_file(&self) -> PathBuf {
        self.cluster.folder().join("forks")
    }

    /// Which client holds the lock, by the word of the nodes.
    #[must_use]
    pub fn holder(&self) -> Option<usize> {
        let label = self.cluster.holder_of(LOCK)?;
        let is_it = |client: &ClientProcess| format!("client-{}", client.id) == label;
        self.clients.iter().position(is_it)
    }

    /// Waits for a client to hold the lock, for a short while.
    #[must_use]
    pub fn wait_for_holder(&self) -> Option<usize> {
        let end = Instant::now() + TTL;
        loop {
            if let Some(holder) = self.holder() {
                return Some(holder);
            }
            if Instant::now() >= end {
                return None;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Some nodes to hurt: a minority, and now and then a majority.
    pub fn some_nodes(&mut self) -> Vec<usize> {
        let (minority, all) = (self.cluster.minority(), self.cluster.layout.nodes);
        let many = match self.random.one_in(6) {
            true => minority + 1,
            false => 1 + self.random.place(minority),
        };
        self.random.some_of(many, all)
    }

    /// Some nodes to hurt: never more than a minority.
    pub fn few_nodes(&mut self) -> Vec<usize> {
        let (minority, all) = (self.cluster.minority(), self.cluster.layout.nodes);
        let many = 1 + self.random.place(minority);
        self.random.some_of(many, all)
    }

    /// The same minority every time.
    #[must_use]
    pub fn fixed_minority(&self) -> std::ops::Range<usize> {
        0..self.cluster.minority()
    }

    /// Waits for a while.
    pub fn pass(&mut self, millis: std::ops::RangeInclusive<u64>) {
        let time = self.random.millis(millis);
        std::thread::sleep(time);
    }

    /// Makes everything well that a fault may have left: what is stopped goes on, what is dead is
    /// started, what is cut is mended. Clocks stay as they are: setting one right is a jump.
    ///
    /// # Errors
    /// When that fails.
    pub fn heal(&mut self) -> io::Result<()> {
        for client in &self.clients {
            client.process.thaw()?;
        }
        for replica in &mut self.replicas {
            if replica.thaw().is_err() {
                replica.restart(&self.cluster)?;
            }
        }
        for proxy in &self.cluster.proxies {
            proxy.set(Rules::default());
        }
        for node in &mut self.cluster.nodes {
            if node.thaw().is_err() {
                node.restart(&self.cluster.network)?;
            }
        }
        Ok(())
    }

    /// Tells all clients to end, and waits for that.
    ///
    /// # Errors
    /// When one fails or goes on for too long.
    pub fn stop_clients(&mut self) -> io::Result<()> {
        for client in &mut self.clients {
            client.input = None;
        }
        for client in &mut self.clients {
            let status = client.process.wait(LAST_TURN)?;
            if !status.success() {
                let log = self
                    .cluster
                    .folder()
                    .join(format!("client{}.log", client.id));
                let said = std::fs::read_to_string(log).unwrap_or_default();
                let why = format!("client {} ended with {status}: {said}", client.id);
                return Err(io::Error::other(why));
            }
        }
        Ok(())
    }
}
