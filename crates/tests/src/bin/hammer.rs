//! A process for the tests of the SQLite node to start, to kill and to look at.
//!
//! - `hammer open FILE` opens the file and takes a lock; prints `ok`, or why not (exit 1).
//! - `hammer work FILE COUNTER ROUNDS` takes the lock `job`, adds one to the number in the file
//!   COUNTER, gives the lock back; ROUNDS times. Prints the longest wait for the lock.
//! - `hammer hold FILE COUNTER` does it once and keeps the lock; prints `holding`.
//! - `hammer turns URL TURNS` takes the lock `job` and gives it back, TURNS times; each time prints
//!   what happened, and waits for a line on its input before and after.
//! - `hammer look URL` prints who holds the lock `job`, and the names of all locks.
//! - `hammer fork URL` takes the lock `job` and forks; the child tries everything that it could do
//!   with what it inherited. Prints what came of it.
//! - `hammer commands FILE COMMANDS` acquires and releases a lock that nobody else wants, and
//!   prints how long the commands took.

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fencepost::internals::Node;
use fencepost::internals::clock::{Clock, SystemClock};
use fencepost::internals::sqlite::SqliteNode;
use fencepost::{AttemptValue, Client, FencingToken, LockName, NamePattern, Owner};
use fencepost_core::Ttl;
use fencepost_core::lock::{Command, Reply};

/// Much longer than any test waits: only the death of the holder frees the lock in time.
const TTL: Duration = Duration::from_secs(30);

type Outcome<T> = Result<T, Box<dyn Error>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["open", file] => open(file).await,
        ["work", file, counter, rounds] => work(file, Path::new(counter), rounds).await,
        ["hold", file, counter] => hold(file, Path::new(counter)).await,
        ["turns", url, turns] => self::turns(url, turns).await,
        ["look", url] => look(url).await,
        ["fork", url] => fork(url).await,
        ["commands", file, many] => commands(file, many).await,
        _ => Err("see the head of hammer.rs".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// A lock and the node that has it.
struct Lock {
    node: SqliteNode,
    name: LockName,
    value: AttemptValue,
}

impl Lock {
    fn new(file: &str, name: &str) -> Outcome<Self> {
        Ok(Self {
            node: SqliteNode::open(file, Arc::new(SystemClock))?,
            name: LockName::new(name)?,
            value: AttemptValue::reported(""),
        })
    }

    async fn try_acquire(&mut self) -> Outcome<Option<FencingToken>> {
        self.value =
            AttemptValue::labelled(fencepost_tests::random_number(), &Owner::new("hammer")?);
        let acquire = Command::Acquire {
            value: self.value.clone(),
            ttl: Ttl::new(TTL)?,
            proposed: SystemClock.proposal(),
            turn: Default::default(),
        };
        match self.node.call(&self.name, acquire).await? {
            Reply::Granted { register, .. } => Ok(Some(register)),
            Reply::Held(_) => Ok(None),
            other => Err(format!("{other:?}").into()),
        }
    }

    async fn acquire(&mut self) -> Outcome<FencingToken> {
        loop {
            if let Some(token) = self.try_acquire().await? {
                return Ok(token);
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    async fn release(&self) -> Outcome<()> {
        let release = Command::Release {
            value: self.value.clone(),
            tombstone: None,
            ticket: Default::default(),
            follower: None,
            is_lease: false,
        };
        match self.node.call(&self.name, release).await? {
            Reply::Released => Ok(()),
            other => Err(format!("{other:?}").into()),
        }
    }
}

/// Adds one to the number in the file, and checks that no newer token was there before.
fn count(counter: &Path, token: FencingToken) -> Outcome<()> {
    let text = std::fs::read_to_string(counter).unwrap_or_default();
    let mut words = text.split_whitespace().map(str::parse::<u64>);
    let number = words.next().transpose()?.unwrap_or(0);
    let newest = words.next().transpose()?.unwrap_or(0);
    if token.get() <= newest {
        return Err(format!("token {token} after {newest}").into());
    }
    std::fs::write(counter, format!("{} {token}", number + 1))?;
    Ok(())
}

async fn open(file: &str) -> Outcome<()> {
    Lock::new(file, "job")?.acquire().await?;
    println!("ok");
    Ok(())
}

async fn work(file: &str, counter: &Path, rounds: &str) -> Outcome<()> {
    let mut lock = Lock::new(file, "job")?;
    let mut longest = Duration::ZERO;
    for _ in 0..rounds.parse::<u32>()? {
        let begun = Instant::now();
        let token = lock.acquire().await?;
        longest = longest.max(begun.elapsed());
        count(counter, token)?;
        lock.release().await?;
    }
    println!("waited at most {} ms for the lock", longest.as_millis());
    Ok(())
}

async fn hold(file: &str, counter: &Path) -> Outcome<()> {
    let mut lock = Lock::new(file, "job")?;
    let token = lock.acquire().await?;
    count(counter, token)?;
    println!("holding");
    std::future::pending().await
}

/// Waits until the test says that it goes on.
fn next_line() -> Outcome<()> {
    match std::io::stdin().read_line(&mut String::new())? {
        0 => Err("the test is over".into()),
        _ => Ok(()),
    }
}

async fn turns(url: &str, turns: &str) -> Outcome<()> {
    let locks = Client::connect(url).await?;
    println!("ready");
    for _ in 0..turns.parse::<u32>()? {
        next_line()?;
        match locks.try_lock("job").ttl(TTL).renew(false).await {
            Err(error) => println!("refused: {error}"),
            Ok(lease) => {
                println!("holding");
                next_line()?;
                match lease.release().await {
                    Ok(()) => println!("released"),
                    Err(error) => println!("not released: {error}"),
                }
            }
        }
    }
    Ok(())
}

async fn look(url: &str) -> Outcome<()> {
    let locks = Client::builder().url(url).build()?;
    let status = locks.status("job").await?;
    for node in &status.nodes {
        match &node.lock {
            Ok(lock) => println!("held: {}", lock.holder.is_some()),
            Err(error) => println!("{error}"),
        }
    }
    let listing = locks.list(&NamePattern::all()).await?;
    let names: Vec<_> = listing
        .locks
        .iter()
        .map(|lock| lock.name.as_str())
        .collect();
    println!("locks: {}", names.join(" "));
    Ok(())
}

async fn fork(url: &str) -> Outcome<()> {
    let locks = Client::connect(url).await?;
    let lease = locks.try_lock("job").ttl(TTL).renew(false).await?;
    match fork::fork() {
        Ok(fork::Fork::Child) => {
            let other = locks.try_lock("other").ttl(TTL).renew(false).await;
            println!("child locks: {}", say(other.err()));
            let listed = locks.list(&NamePattern::all()).await;
            println!("child lists: {}", say(listed.err()));
            println!("child opens: {}", say(Client::connect(url).await.err()));
            drop(lease);
            locks.shutdown().await;
            println!("child is done");
            Ok(())
        }
        Ok(fork::Fork::Parent(_)) => {
            let ended = rustix::process::wait(rustix::process::WaitOptions::empty())?;
            println!(
                "child ended: {:?}",
                ended.and_then(|(_, how)| how.exit_status())
            );
            println!("parent is valid: {}", lease.is_valid());
            let rival = Client::connect(url).await?;
            let rival = rival.try_lock("job").ttl(TTL).renew(false).await;
            println!(
                "rival is refused: {}",
                rival.is_err_and(|error| error.is_held())
            );
            lease.extend().await?;
            lease.release().await?;
            println!("parent released");
            Ok(())
        }
        Err(error) => Err(format!("no fork: {error}").into()),
    }
}

fn say(error: Option<fencepost::Error>) -> String {
    error.map_or_else(|| "ALLOWED".into(), |error| error.to_string())
}

async fn commands(file: &str, many: &str) -> Outcome<()> {
    let mut lock = Lock::new(file, &format!("own-{}", std::process::id()))?;
    let mut took = Vec::new();
    for _ in 0..many.parse::<u32>()? / 2 {
        let begun = Instant::now();
        lock.try_acquire().await?.ok_or("held by somebody")?;
        took.push(begun.elapsed());
        let begun = Instant::now();
        lock.release().await?;
        took.push(begun.elapsed());
    }
    took.sort();
    let at = |part: f64| took[(part * (took.len() - 1) as f64) as usize].as_micros();
    println!(
        "us: median {}, p99 {}, p99.9 {}, longest {}",
        at(0.5),
        at(0.99),
        at(0.999),
        at(1.0)
    );
    Ok(())
}
