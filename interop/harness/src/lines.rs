//! The line protocol of `interop/README.md`, served on stdin and stdout.

use std::collections::HashMap;
use std::future::Future;
use std::time::{Duration, Instant, SystemTime};

use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

/// What those do who load one lock together: under it, and behind it.
const WORK: Duration = Duration::from_millis(1);
/// Unless another is asked for.
const PAUSE: Duration = Duration::from_millis(5);

/// The locks of one client.
pub trait Locks: Clone + Send + Sync + 'static {
    /// A lock that is held.
    type Held: Send + 'static;

    /// Which version of the client this is.
    fn version(&self) -> String;

    /// Acquires the lock, or says with `None` that somebody else had it until `wait` was over.
    fn acquire(
        &self,
        name: &str,
        ttl: Duration,
        wait: Duration,
    ) -> impl Future<Output = Result<Option<Self::Held>, String>> + Send;

    /// Whether it is held for another TTL.
    fn extend(
        &self,
        held: &mut Self::Held,
        ttl: Duration,
    ) -> impl Future<Output = Result<bool, String>> + Send;

    /// Whether it was held until now.
    fn release(&self, held: Self::Held) -> impl Future<Output = Result<bool, String>> + Send;

    /// The fencing token, where there is one.
    fn token(&self, _held: &Self::Held) -> Option<u64> {
        None
    }
}

/// Answers each line until there is none.
///
/// # Panics
/// When stdin or stdout is closed too early.
pub async fn serve<L: Locks>(locks: L, first_url: &str) {
    let mut peer = Peer {
        locks,
        first: first(first_url).await,
        held: HashMap::new(),
    };
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    let mut out = tokio::io::stdout();
    while let Some(line) = lines.next_line().await.expect("stdin") {
        let words: Vec<_> = line.split('\t').collect();
        let answer = peer.answer(&words).await;
        let answer = answer.unwrap_or_else(|error| {
            let words: Vec<_> = error.split_whitespace().collect();
            format!("error\t{}", words.join(" "))
        });
        let written = out.write_all(format!("{answer}\n").as_bytes()).await;
        written.expect("stdout");
        out.flush().await.expect("stdout");
    }
}

async fn first(url: &str) -> MultiplexedConnection {
    let client = redis::Client::open(url).expect("a good URL");
    let connection = client.get_multiplexed_async_connection().await;
    connection.expect("the first server")
}

struct Peer<L: Locks> {
    locks: L,
    first: MultiplexedConnection,
    /// The newest last: whoever acquires a name twice releases it twice.
    held: HashMap<String, Vec<L::Held>>,
}

impl<L: Locks> Peer<L> {
    async fn answer(&mut self, words: &[&str]) -> Result<String, String> {
        match words {
            ["hello"] => Ok(format!("ok\t{}", self.locks.version())),
            ["try", name, ttl] => self.take(name, millis(ttl)?, Duration::ZERO).await,
            ["lock", name, ttl, wait] => self.take(name, millis(ttl)?, millis(wait)?).await,
            ["extend", name, ttl] => self.extend(name, millis(ttl)?).await,
            ["release", name] => self.release(name).await,
            ["token", name] => {
                let held = self.held.get(*name).and_then(|held| held.last());
                let token = held.and_then(|held| self.locks.token(held));
                Ok(token.map_or("unsupported".to_owned(), |token| format!("ok\t{token}")))
            }
            ["soak", name, counter, rounds, ttl, wait] => {
                let rounds = number(rounds)?;
                self.soak(name, counter, rounds, millis(ttl)?, millis(wait)?)
                    .await
            }
            ["load", name, whose, workers, span, ttl, pause @ ..] => {
                let workers = number(workers)?;
                let pause = pause.first().map_or(Ok(PAUSE), |pause| millis(pause))?;
                let shared = (*whose == "shared").then_some(pause);
                self.load(name, shared, workers, millis(span)?, millis(ttl)?)
                    .await
            }
            _ => Err("unknown verb".to_owned()),
        }
    }

    async fn take(&mut self, name: &str, ttl: Duration, wait: Duration) -> Result<String, String> {
        let Some(held) = self.locks.acquire(name, ttl, wait).await? else {
            return Ok("held".to_owned());
        };
        let now = now();
        self.held.entry(name.to_owned()).or_default().push(held);
        Ok(format!("ok\t{now}"))
    }

    async fn extend(&mut self, name: &str, ttl: Duration) -> Result<String, String> {
        let Some(held) = self.held.get_mut(name).and_then(|held| held.last_mut()) else {
            return Ok("lost".to_owned());
        };
        let extended = self.locks.extend(held, ttl).await?;
        Ok(if extended {
            done(now())
        } else {
            "lost".to_owned()
        })
    }

    async fn release(&mut self, name: &str) -> Result<String, String> {
        let Some(held) = self.held.get_mut(name).and_then(Vec::pop) else {
            return Ok("lost".to_owned());
        };
        let begin = now();
        let released = self.locks.release(held).await?;
        Ok(if released {
            done(begin)
        } else {
            "lost".to_owned()
        })
    }

    /// Reads and writes the counter in two commands, so that it is exact only under a lock.
    async fn soak(
        &mut self,
        name: &str,
        counter: &str,
        rounds: usize,
        ttl: Duration,
        wait: Duration,
    ) -> Result<String, String> {
        let fault = |error: redis::RedisError| error.to_string();
        for _ in 0..rounds {
            let Some(held) = self.locks.acquire(name, ttl, wait).await? else {
                return Ok("held".to_owned());
            };
            let seen: Option<u64> = self.first.get(counter).await.map_err(fault)?;
            tokio::time::sleep(Duration::from_millis(1)).await;
            let next = seen.unwrap_or(0) + 1;
            let () = self.first.set(counter, next).await.map_err(fault)?;
            if !self.locks.release(held).await? {
                return Ok("lost".to_owned());
            }
        }
        Ok(format!("ok\t{rounds}"))
    }

    async fn load(
        &self,
        name: &str,
        // With a lock of their own, or with one for all, and the pause behind it.
        shared: Option<Duration>,
        workers: usize,
        span: Duration,
        ttl: Duration,
    ) -> Result<String, String> {
        const LONGEST_WAIT: Duration = Duration::from_secs(60);
        let begin = Instant::now();
        let workers: Vec<_> = (0..workers)
            .map(|worker| {
                let locks = self.locks.clone();
                let name = match shared {
                    Some(_) => name.to_owned(),
                    None => format!("{name}-{worker:04}"),
                };
                tokio::spawn(async move {
                    let mut took = Vec::new();
                    while begin.elapsed() < span {
                        let start = Instant::now();
                        let held = locks.acquire(&name, ttl, LONGEST_WAIT).await?;
                        let held = held.ok_or("not within a minute")?;
                        took.push(start.elapsed().as_micros() as u64);
                        if shared.is_some() {
                            tokio::time::sleep(WORK).await;
                        }
                        locks.release(held).await?;
                        if let Some(pause) = shared.filter(|pause| !pause.is_zero()) {
                            tokio::time::sleep(pause).await;
                        }
                    }
                    Ok::<_, String>(took)
                })
            })
            .collect();
        let mut all = Vec::new();
        for worker in workers {
            let took = worker.await.map_err(|error| error.to_string())?;
            all.extend(took?);
        }
        let rate = all.len() as f64 / begin.elapsed().as_secs_f64();
        all.sort_unstable();
        let part = |of: f64| all[((of * all.len() as f64) as usize).min(all.len() - 1)];
        Ok(format!(
            "ok\t{rate:.1}\t{}\t{}\t{}",
            part(0.5),
            part(0.99),
            part(1.0)
        ))
    }
}

fn done(at: u128) -> String {
    format!("ok\t{at}")
}

/// Microseconds since 1970: all peers are on one machine.
fn now() -> u128 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_default().as_micros()
}

fn number(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| format!("{text:?} is no number"))
}

fn millis(text: &str) -> Result<Duration, String> {
    Ok(Duration::from_millis(number(text)? as u64))
}
