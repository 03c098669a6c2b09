//! A process of clients that read and write under one lock, for the tests to start several of.
//!
//! `visitors URLS NAME CLIENTS TURNS majority|one` prints one line for each lease: see
//! `fencepost_tests::Visit`. With `one`, readers ask one node only, which is wrong on purpose. Every
//! fifth turn writes, and every second writer becomes a reader. A turn now and then outlives its
//! lease, and a request now and then is dropped half-way.
//!
//! `visitors URLS NAME hold TTL_MILLIS` reads, prints `reading`, and renews until it is killed.

use std::error::Error;
use std::time::Duration;

use fencepost::internals::clock::{Clock, SystemClock};
use fencepost::{Client, Lease, LockOptions, ReadLease, RestartPolicy, RwLock, WriteLease};
use fencepost_tests::{Turn, Visit};
use tokio::time::{sleep, timeout};

/// Short enough that stopped nodes make leases expire.
const TTL: Duration = Duration::from_millis(300);
/// How long a request waits before it is made anew.
const WAIT: Duration = Duration::from_secs(2);

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        [urls, name, "hold", ttl] => {
            let ttl = Duration::from_millis(ttl.parse()?);
            let reader = open(urls, name)?.read().ttl(ttl).await?;
            println!("reading");
            Err(format!("not killed, and {}", reader.lost().await).into())
        }
        [urls, name, clients, turns, how] => {
            let nodes: Vec<&str> = urls.split(',').collect();
            let mut tasks = Vec::new();
            for client in 0..clients.parse::<usize>()? {
                let reading = match how {
                    "one" => nodes[client % nodes.len()],
                    _ => urls,
                };
                let visitor = Visitor {
                    reading: open(reading, name)?,
                    writing: open(urls, name)?,
                };
                let varieties = (0..turns.parse::<usize>()?).map(move |turn| client * 7 + turn);
                tasks.push(tokio::spawn(visitor.visits(varieties)));
            }
            for task in tasks {
                task.await??;
            }
            Ok(())
        }
        _ => Err("see the head of visitors.rs".into()),
    }
}

/// Not connected: the nodes may be stopped just now.
fn open(urls: &str, name: &str) -> Outcome<RwLock> {
    let locks = Client::builder()
        .url(urls)
        .restart_policy(RestartPolicy::Trust)
        .node_timeout(Duration::from_millis(100));
    Ok(locks.build()?.read_write(name))
}

fn now() -> Duration {
    SystemClock.now().since_start()
}

struct Visitor {
    reading: RwLock,
    writing: RwLock,
}

impl Visitor {
    async fn visits(self, varieties: impl Iterator<Item = usize>) -> Outcome<()> {
        for variety in varieties {
            let (asked, lease) = self.enter(variety).await?;
            let writes = matches!(lease, Entered::Writer(_));
            let visit = stay(asked, now(), lease.lease(), variety).await;
            println!(
                "{}",
                Visit {
                    writes,
                    turn: visit
                }
            );
            match lease {
                Entered::Writer(writer) if variety.is_multiple_of(2) => {
                    // Valid or not: a lease that is over does not become another.
                    let begin = now();
                    if let Ok(reader) = writer.downgrade().await {
                        let turn = stay(begin, begin, &reader, variety).await;
                        let writes = false;
                        println!("{}", Visit { writes, turn });
                        let _ = reader.release().await;
                    }
                }
                // Lost or not: it is over.
                Entered::Writer(writer) => drop(writer.release().await),
                Entered::Reader(reader) => drop(reader.release().await),
            }
        }
        Ok(())
    }

    async fn enter(&self, variety: usize) -> Outcome<(Duration, Entered)> {
        // Whoever does not get in line may never get in beside those who do: once is enough.
        let mut manner = variety % 8;
        loop {
            let asked = now();
            let options = LockOptions::new()
                .ttl(TTL)
                .renew(variety.is_multiple_of(3))
                .timeout(if manner == 0 { Duration::ZERO } else { WAIT });
            let request = async {
                match variety % 5 {
                    0 => {
                        let writer = self.writing.write().options(options).await;
                        writer.map(Entered::Writer)
                    }
                    _ => {
                        let reader = self.reading.read().options(options).await;
                        reader.map(Entered::Reader)
                    }
                }
            };
            let outcome = match manner {
                1 => {
                    let some_time = Duration::from_micros(500 * (variety % 100) as u64);
                    timeout(some_time, request).await.ok()
                }
                _ => Some(request.await),
            };
            match outcome {
                Some(Ok(lease)) => return Ok((asked, lease)),
                // All pass: the holders let go, the nodes come back.
                Some(Err(error)) if error.is_retryable() => {}
                None => {}
                Some(Err(error)) => return Err(error.into()),
            }
            manner = 2;
            sleep(Duration::from_millis(1 + variety as u64 % 20)).await;
        }
    }
}

/// What a visitor holds.
enum Entered {
    Reader(ReadLease),
    Writer(WriteLease),
}

impl Entered {
    fn lease(&self) -> &Lease {
        match self {
            Self::Reader(lease) => lease,
            Self::Writer(lease) => lease,
        }
    }
}

/// Works for a while under this lease; most often a short one.
async fn stay(asked: Duration, begin: Duration, lease: &Lease, variety: usize) -> Turn {
    let valid_until = now() + lease.remaining();
    let work = match variety % 100 {
        0 => TTL + Duration::from_millis(20),
        3 => TTL / 2,
        n => Duration::from_micros(n as u64 * 100),
    };
    sleep(work).await;
    let end = now();
    let end = if lease.is_valid() {
        end
    } else {
        end.min(valid_until)
    };
    let nanos = |time: Duration| time.as_nanos() as u64;
    Turn {
        asked: nanos(asked),
        begin: nanos(begin),
        end: nanos(end.max(begin)),
        token: lease.token().get(),
    }
}
