//! A process of tasks that all want one lock, for the tests to start several of.
//!
//! `contend URLS NAME TASKS TURNS KIND` prints one line for each turn: see `fencepost_tests::Turn`. A
//! turn now and then outlives its lease, and gives it back late. KIND is `plain` or `reentrant`; in a
//! reentrant lock each task is an owner of its own, and enters twice.

use std::error::Error;
use std::ops::Deref;
use std::time::Duration;

use fencepost::internals::clock::{Clock, SystemClock};
use fencepost::{Client, Lease, LockOptions, ReentrantGuard, RestartPolicy};
use fencepost_tests::Turn;

/// Short enough that stopped nodes make leases expire.
const TTL: Duration = Duration::from_millis(300);

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [urls, name, tasks, turns, kind] = &words[..] else {
        return Err("see the head of contend.rs".into());
    };
    let is_reentrant = match kind.as_str() {
        "plain" => false,
        "reentrant" => true,
        _ => return Err("see the head of contend.rs".into()),
    };
    // Not connected: the nodes may be stopped just now.
    let locks = Client::builder()
        .url(urls)
        .restart_policy(RestartPolicy::Trust)
        .node_timeout(Duration::from_millis(100))
        .build()?;
    let turns: usize = turns.parse()?;
    let tasks = (0..tasks.parse()?).map(|task| {
        let door = Door {
            locks: locks.clone(),
            name: name.clone(),
            is_reentrant,
        };
        tokio::spawn(async move {
            for turn in 0..turns {
                println!("{}", take_a_turn(&door, task * 7 + turn).await?);
            }
            Outcome::Ok(())
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await??;
    }
    Ok(())
}

/// What a task wants to have.
struct Door {
    locks: Client,
    name: String,
    is_reentrant: bool,
}

/// What it has then.
enum Held {
    Once(Lease),
    Twice(ReentrantGuard, ReentrantGuard),
}

impl Door {
    async fn try_once(&self) -> Result<Held, fencepost::Error> {
        if !self.is_reentrant {
            return Ok(Held::Once(
                self.locks
                    .try_lock(&self.name)
                    .ttl(TTL)
                    .renew(false)
                    .await?,
            ));
        }
        let now = LockOptions::new()
            .ttl(TTL)
            .timeout(Duration::ZERO)
            .renew(false);
        let lock = self.locks.reentrant(&self.name);
        let enter = || lock.lock().options(now);
        let outer = enter().await?;
        Ok(Held::Twice(enter().await?, outer))
    }
}

impl Deref for Held {
    type Target = Lease;

    fn deref(&self) -> &Lease {
        match self {
            Self::Once(lease) => lease,
            Self::Twice(inner, _) => inner,
        }
    }
}

impl Held {
    /// Lost or not: it is over.
    async fn release(self) {
        let _ = match self {
            Self::Once(lease) => lease.release().await,
            Self::Twice(inner, outer) => {
                drop(outer);
                inner.release().await
            }
        };
    }
}

async fn take_a_turn(door: &Door, variety: usize) -> Outcome<Turn> {
    let now = || SystemClock.now().since_start();
    let (asked, lease) = loop {
        let asked = now();
        match door.try_once().await {
            Ok(lease) => break (asked, lease),
            // Both pass: the holder lets go, the nodes come back.
            Err(error) if error.is_retryable() => {}
            Err(error) => return Err(error.into()),
        }
        let pause = 1 + (asked.subsec_nanos() as usize + variety) % 20;
        tokio::time::sleep(Duration::from_millis(pause as u64)).await;
    };
    let begin = now();
    let mut valid_until = begin + lease.remaining();
    let work = match variety % 50 {
        0 => TTL + Duration::from_millis(20),
        n => Duration::from_micros(n as u64 * 20),
    };
    if variety % 5 == 1 && lease.extend().await.is_ok() {
        valid_until = now() + lease.remaining();
    }
    tokio::time::sleep(work).await;
    let end = now().min(valid_until);
    let token = lease.token().get();
    lease.release().await;
    let nanos = |time: Duration| time.as_nanos() as u64;
    Ok(Turn {
        asked: nanos(asked),
        begin: nanos(begin),
        end: nanos(end.max(begin)),
        token,
    })
}
