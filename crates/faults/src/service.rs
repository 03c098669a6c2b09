//! A replica of the lock service: a process of its own, which is killed, stopped and started again.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use clap::Args;
use fencepost::{Client, RestartPolicy};

use crate::cluster::Cluster;
use crate::net::{End, Inside};
use crate::process::Process;
use crate::program;
use crate::scene::MAX_TTL;

/// The port of every replica that has an address of its own.
const PORT: u16 = 7323;
/// How long it may take to listen.
const START_LIMIT: Duration = Duration::from_secs(20);

/// What a replica is told on its command line.
#[derive(Clone, Debug, Args)]
pub struct ReplicaOptions {
    /// The nodes.
    #[arg(long)]
    pub urls: String,
    /// Where to listen.
    #[arg(long)]
    pub listen: SocketAddr,
    /// The longest TTL of all, in milliseconds.
    #[arg(long)]
    pub max_ttl: u64,
    /// Whether restarted servers are trusted at once.
    #[arg(long)]
    pub trust: bool,
    /// A file that is made once it listens.
    #[arg(long)]
    pub listens: PathBuf,
}

/// Serves until it is killed, as `fencepost serve` does.
///
/// # Errors
/// When it cannot listen, or too few nodes answer.
pub fn run(options: ReplicaOptions) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let policy = match options.trust {
            true => RestartPolicy::Trust,
            false => RestartPolicy::Delay,
        };
        let builder = Client::builder()
            .url(&options.urls)
            .restart_policy(policy)
            .max_ttl(Duration::from_millis(options.max_ttl))
            .replica();
        let client = builder.connect().await?;
        let listener = tokio::net::TcpListener::bind(options.listen).await?;
        fs::write(&options.listens, "")?;
        let serving = fencepost_server::Options::new();
        fencepost_server::serve(listener, client, serving, std::future::pending()).await?;
        Ok(())
    })
}

/// A replica. Dropping it kills the process.
#[derive(Debug)]
pub struct Replica {
    number: usize,
    /// Its place in the network, behind those of the servers.
    place: usize,
    urls: String,
    address: SocketAddr,
    process: Option<Process>,
}

impl Replica {
    /// Starts one over the servers of a cluster.
    ///
    /// # Errors
    /// When it does not listen in time, with what it said.
    pub fn start(cluster: &Cluster, number: usize, urls: &str) -> io::Result<Self> {
        let place = cluster.nodes.len() + number;
        let (network, end) = (&cluster.network, End::Node(place));
        let port = match network.can_cut() {
            true => PORT,
            false => network.free_port(end, Inside::No)?,
        };
        let mut replica = Self {
            number,
            place,
            urls: urls.to_owned(),
            address: SocketAddr::new(network.address(end), port),
            process: None,
        };
        replica.restart(cluster)?;
        Ok(replica)
    }

    /// Where clients find it.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Its place in the network.
    #[must_use]
    pub fn end(&self) -> End {
        End::Node(self.place)
    }

    /// Kills it with -9. [`restart`](Self::restart) brings it back.
    ///
    /// # Errors
    /// When it cannot be waited for.
    pub fn kill(&mut self) -> io::Result<()> {
        match self.process.take() {
            Some(mut process) => process.kill(),
            None => Ok(()),
        }
    }

    /// Starts it again, at the same address, and waits until it listens.
    ///
    /// # Errors
    /// When it does not, with what it said.
    pub fn restart(&mut self, cluster: &Cluster) -> io::Result<()> {
        let folder = cluster.folder();
        let listens = folder.join(format!("replica{}.listens", self.number));
        let log = folder.join(format!("replica{}.log", self.number));
        let _ = fs::remove_file(&listens);
        let mut command = cluster.network.command(self.end(), &program::path()?);
        command
            .args(["replica", "--urls", &self.urls])
            .args(["--listen", &self.address.to_string()])
            .args(["--max-ttl", &MAX_TTL.as_millis().to_string()])
            .arg("--listens")
            .arg(&listens)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(&log)?);
        if cluster.layout.policy == RestartPolicy::Trust {
            command.arg("--trust");
        }
        let process = self.process.insert(Process::start(&mut command)?);
        let end = Instant::now() + START_LIMIT;
        while !listens.exists() {
            if process.ended()?.is_some() || Instant::now() >= end {
                let said = fs::read_to_string(&log).unwrap_or_default();
                let why = format!("replica {} does not listen: {said}", self.number);
                return Err(io::Error::other(why));
            }
            std::thread::sleep(Duration::from_millis(3));
        }
        Ok(())
    }

    /// Stops it in its tracks: connections to it are accepted, and nothing is answered.
    ///
    /// # Errors
    /// When it is not running.
    pub fn freeze(&self) -> io::Result<()> {
        self.process.as_ref().ok_or_else(gone)?.freeze()
    }

    /// Lets it go on.
    ///
    /// # Errors
    /// When it is not running.
    pub fn thaw(&self) -> io::Result<()> {
        self.process.as_ref().ok_or_else(gone)?.thaw()
    }
}

fn gone() -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, "the replica is not running")
}
