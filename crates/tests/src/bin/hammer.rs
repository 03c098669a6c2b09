//! A process for the tests of the SQLite node to start, to kill and to look at.
//!
//! - `hammer open FILE` opens the file and takes a lock; prints `ok`, or why not (exit 1).
//! - `hammer work FILE COUNTER ROUNDS` takes the lock `job`, adds one to the number in the file
//!   COUNTER, gives the lock back; ROUNDS times. Prints the longest wait for the lock.
//! - `hammer hold FILE COUNTER` does it once and keeps the lock; prints `holding`.
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
use fencepost::{AttemptValue, FencingToken, LockName, Owner, Ttl};
use fencepost_core::lock::{Command, Reply};
use fencepost_tests::random_number;

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
        self.value = AttemptValue::labelled(random_number(), &Owner::new("hammer")?);
        let acquire = Command::Acquire {
            value: self.value.clone(),
            ttl: Ttl::new(TTL)?,
            proposed: SystemClock.proposal(),
            turn: Default::default(),
        };
        match self.node.call(&self.name, acquire).await? {
            Reply::Granted { counter, .. } => Ok(Some(counter)),
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
