//! One `redis-server` of ours: started where the network says, with the clock and the persistence
//! that a row wants; killed, stopped, emptied, put back to an older copy, and asked.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use redis::{FromRedisValue, RedisResult};

use crate::clock::BentClock;
use crate::net::{End, Inside, Network};
use crate::process::Process;

/// How long a server may take to answer its first question.
const START_LIMIT: Duration = Duration::from_secs(20);
/// How long a server may take to answer any other.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// The port of every server that has an address of its own.
const PORT: u16 = 6379;

/// What a server keeps on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Persistence {
    /// Nothing.
    #[default]
    None,
    /// Every write, before it is acknowledged.
    EveryWrite,
    /// Every write, but the last second of them is not safe from a power cut.
    EverySecond,
}

impl Persistence {
    fn words(self) -> &'static [&'static str] {
        match self {
            Self::None => &["--appendonly", "no"],
            Self::EveryWrite => &["--appendonly", "yes", "--appendfsync", "always"],
            Self::EverySecond => &["--appendonly", "yes", "--appendfsync", "everysec"],
        }
    }
}

/// How a server is to be started.
#[derive(Clone, Debug, Default)]
pub struct NodeOptions {
    /// What it keeps.
    pub persistence: Persistence,
    /// Whether its clock can be bent.
    pub bent: bool,
    /// Whether only its own end can reach it: a proxy stands before it.
    pub hidden: bool,
    /// Whether it is a node of a Redis Cluster.
    pub clustered: bool,
    /// What its configuration file says before it is started for the first time. A Sentinel writes it anew.
    pub config: Option<String>,
    /// More words for its command line.
    pub words: Vec<String>,
}

/// A `redis-server` of ours. Dropping it kills the process.
#[derive(Debug)]
pub struct Node {
    number: usize,
    folder: PathBuf,
    address: SocketAddr,
    /// Where it hears the other nodes of its Redis Cluster.
    bus: Option<u16>,
    options: NodeOptions,
    /// Its clock, if that can be bent.
    pub clock: Option<BentClock>,
    process: Option<Process>,
}

impl Node {
    /// Starts a server in a folder of its own.
    ///
    /// # Errors
    /// When it does not come up, with its log.
    pub fn start(
        network: &Network,
        number: usize,
        folder: &Path,
        options: NodeOptions,
    ) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let end = End::Node(number);
        let inside = if options.hidden {
            Inside::Yes
        } else {
            Inside::No
        };
        let port = match (network.can_cut(), inside) {
            (true, Inside::No) => PORT,
            _ => network.free_port(end, inside)?,
        };
        let address = match inside {
            Inside::Yes => SocketAddr::from(([127, 0, 0, 1], port)),
            Inside::No => SocketAddr::new(network.address(end), port),
        };
        let clock = match options.bent {
            true => Some(BentClock::new(&folder.join("clock"))?),
            false => None,
        };
        let bus = match options.clustered {
            true => Some(network.free_port(end, inside)?),
            false => None,
        };
        if let Some(config) = &options.config {
            fs::write(folder.join("config"), config)?;
        }
        let mut node = Self {
            number,
            folder: folder.to_owned(),
            address,
            bus,
            options,
            clock,
            process: None,
        };
        node.launch(network)?;
        node.until_up()?;
        Ok(node)
    }

    fn launch(&mut self, network: &Network) -> io::Result<()> {
        let _ = fs::remove_file(self.socket());
        fs::create_dir_all(self.data())?;
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(self.folder.join("log"))?;
        let mut command = network.command(End::Node(self.number), Path::new("redis-server"));
        if self.options.config.is_some() {
            command.arg(self.folder.join("config"));
        }
        if let Some(bus) = self.bus {
            let bus = bus.to_string();
            command.args(["--cluster-enabled", "yes", "--cluster-port", &bus]);
        }
        command
            .args(["--port", &self.address.port().to_string()])
            .args(["--bind", &self.address.ip().to_string()])
            .args(["--protected-mode", "no", "--save", "", "--dir"])
            .arg(self.data())
            .arg("--unixsocket")
            .arg(self.socket())
            .args(self.options.persistence.words())
            .args(&self.options.words)
            .stdin(Stdio::null())
            .stderr(log.try_clone()?)
            .stdout(log);
        if let Some(clock) = &self.clock {
            clock.give_to(&mut command);
        }
        self.process = Some(Process::start(&mut command)?);
        Ok(())
    }

    /// Waits until it can be asked. A server that is loading can.
    fn until_up(&mut self) -> io::Result<()> {
        let end = Instant::now() + START_LIMIT;
        loop {
            if let Ok(mut control) = self.control() {
                let mut ping = redis::cmd("PING");
                match ping.query::<String>(control.connection()) {
                    Err(error) if error.is_io_error() => {}
                    // Whatever it says, it speaks.
                    _ => return Ok(()),
                }
                ping.clear();
            }
            let ended = match &mut self.process {
                Some(process) => process.ended()?.is_some(),
                None => true,
            };
            if ended || Instant::now() >= end {
                let log = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
                return Err(io::Error::other(format!("redis-server is not up:\n{log}")));
            }
            std::thread::sleep(Duration::from_millis(3));
        }
    }

    /// Kills it with -9, as a power cut would. [`restart`](Self::restart) brings it back.
    ///
    /// # Errors
    /// When it cannot be waited for.
    pub fn kill(&mut self) -> io::Result<()> {
        match self.process.take() {
            Some(mut process) => process.kill(),
            None => Ok(()),
        }
    }

    /// Starts it again, at the same address and with what is on its disk.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn restart(&mut self, network: &Network) -> io::Result<()> {
        self.kill()?;
        self.launch(network)?;
        self.until_up()
    }

    /// What it keeps from its next start on.
    pub fn keep(&mut self, persistence: Persistence) {
        self.options.persistence = persistence;
    }

    /// Deletes what it has on disk. Only while it is killed.
    ///
    /// # Errors
    /// When that cannot be deleted.
    pub fn empty_disk(&self) -> io::Result<()> {
        fs::remove_dir_all(self.data())
    }

    /// Copies what it has on disk at this moment, as a backup or a lagging disk has it.
    ///
    /// # Errors
    /// When it cannot be copied.
    pub fn back_up(&self) -> io::Result<()> {
        let copy = self.backup();
        if copy.exists() {
            fs::remove_dir_all(&copy)?;
        }
        copy_folder(&self.data(), &copy)
    }

    /// Puts its disk back to the last backup. Only while it is killed.
    ///
    /// # Errors
    /// When there is none.
    pub fn restore_backup(&self) -> io::Result<()> {
        self.empty_disk()?;
        copy_folder(&self.backup(), &self.data())
    }

    /// Stops it in its tracks: it accepts connections and never answers.
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

    /// Where clients find it, or its proxy finds it.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where other nodes of its Redis Cluster find it.
    #[must_use]
    pub fn bus(&self) -> Option<u16> {
        self.bus
    }

    /// Its Unix socket: the harness asks there, whatever the network does.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.folder.join("socket")
    }

    /// Where it keeps its data.
    #[must_use]
    pub fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    fn backup(&self) -> PathBuf {
        self.folder.join("backup")
    }

    /// A connection of the harness's own.
    ///
    /// # Errors
    /// When it is not running, or takes no more clients.
    pub fn control(&self) -> RedisResult<Control> {
        let client = redis::Client::open(format!("redis+unix://{}", self.socket().display()))?;
        let connection = client.get_connection_with_timeout(ANSWER_LIMIT)?;
        connection.set_read_timeout(Some(ANSWER_LIMIT))?;
        Ok(Control { connection })
    }

    /// Asks it one thing.
    ///
    /// # Errors
    /// Whatever it says.
    pub fn ask<T: FromRedisValue>(&self, words: &[&str]) -> RedisResult<T> {
        self.control()?.ask(words)
    }

    /// Tells it one thing whose answer does not matter.
    ///
    /// # Errors
    /// Whatever it says.
    pub fn tell(&self, words: &[&str]) -> io::Result<()> {
        self.ask::<redis::Value>(words)
            .map_err(io::Error::other)
            .map(drop)
    }
}

/// A connection to a server that stays open.
pub struct Control {
    connection: redis::Connection,
}

impl Control {
    /// Asks one thing.
    ///
    /// # Errors
    /// Whatever the server says.
    pub fn ask<T: FromRedisValue>(&mut self, words: &[&str]) -> RedisResult<T> {
        let mut command = redis::Cmd::new();
        for word in words {
            command.arg(word);
        }
        command.query(&mut self.connection)
    }

    fn connection(&mut self) -> &mut redis::Connection {
        &mut self.connection
    }
}

fn gone() -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, "the server is not running")
}

fn copy_folder(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let place = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_folder(&entry.path(), &place)?;
        } else {
            match fs::copy(entry.path(), place) {
                // A file that the server has replaced meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                copied => drop(copied?),
            }
        }
    }
    Ok(())
}
