//! A process of clients that all want a permit of one semaphore, for the tests to start several of.
//!
//! `permits URLS NAME PERMITS CLIENTS TURNS slots|count` prints one line for each turn: see
//! `fencepost_tests::Stay`. With `count`, by the semaphore that is wrong on purpose. A turn now and
//! then outlives its lease and gives it back late, and a request now and then is dropped half-way.

use std::error::Error;
use std::time::Duration;

use fencepost::internals::clock::{Clock, SystemClock};
use fencepost::{Client, Permit, RestartPolicy, Semaphore};
use fencepost_tests::{ByCount, Stay, Turn};
use tokio::time::{sleep, timeout};

/// Short enough that stopped nodes make leases expire.
const TTL: Duration = Duration::from_millis(300);
/// Short enough that a stopped node is not waited for.
const NODE_TIMEOUT: Duration = Duration::from_millis(100);
/// How much longer a turn is by count. It asks one node after the other, and has to be there for
/// longer than that to meet the others.
const LONGER: Duration = Duration::from_millis(30);
/// How long a request waits before it is made anew.
const WAIT: Duration = Duration::from_secs(2);

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [urls, name, permits, clients, turns, how] = &words[..] else {
        return Err("see the head of permits.rs".into());
    };
    let (permits, turns) = (permits.parse()?, turns.parse::<usize>()?);
    let mut tasks = Vec::new();
    for client in 0..clients.parse::<usize>()? {
        let (urls, name, how) = (urls.clone(), name.clone(), how.clone());
        tasks.push(tokio::spawn(async move {
            let variety = |turn| client * 7 + turn;
            if how == "count" {
                let wrong = ByCount::open(&urls, &name, permits, NODE_TIMEOUT)?;
                for turn in 0..turns {
                    println!(
                        "{}",
                        by_count(&wrong, variety(turn), client % permits).await
                    );
                }
                return Outcome::Ok(());
            }
            let locks = Client::builder()
                .url(&urls)
                .restart_policy(RestartPolicy::Trust)
                .node_timeout(NODE_TIMEOUT);
            // Not connected: the nodes may be stopped just now.
            let semaphore = locks.build()?.semaphore(&name, permits);
            for turn in 0..turns {
                println!("{}", by_slots(&semaphore, variety(turn)).await?);
            }
            Ok(())
        }));
    }
    for task in tasks {
        task.await??;
    }
    Ok(())
}

fn now() -> Duration {
    SystemClock.now().since_start()
}

async fn by_slots(semaphore: &Semaphore, variety: usize) -> Outcome<Stay> {
    let renews = variety.is_multiple_of(3);
    let (asked, permit) = loop {
        let asked = now();
        let request = semaphore.acquire().ttl(TTL).renew(renews);
        let outcome = match variety % 8 {
            0 => request.timeout(Duration::ZERO).await,
            1 => {
                let some_time = Duration::from_micros(500 * (variety % 100) as u64);
                match timeout(some_time, request.timeout(WAIT).into_future()).await {
                    Ok(outcome) => outcome,
                    Err(_) => continue,
                }
            }
            _ => request.timeout(WAIT).await,
        };
        match outcome {
            Ok(permit) => break (asked, permit),
            // All pass: the holders let go, the nodes come back.
            Err(error) if error.is_retryable() => {}
            Err(error) => return Err(error.into()),
        }
        sleep(Duration::from_millis(1 + variety as u64 % 20)).await;
    };
    let begin = now();
    let valid_until = begin + permit.remaining();
    let turn = Turn {
        token: permit.token().get(),
        ..stay(asked, begin, &[&permit], valid_until, variety).await
    };
    let slot = permit.slot();
    // Lost or not: it is over.
    let _ = permit.release().await;
    Ok(Stay { slot, turn })
}

async fn by_count(wrong: &ByCount, variety: usize, slot: usize) -> Stay {
    let (asked, places) = loop {
        let asked = now();
        if let Some(places) = wrong.try_enter(asked.subsec_nanos() as usize, TTL).await {
            break (asked, places);
        }
        sleep(Duration::from_millis(1 + variety as u64 % 20)).await;
    };
    let begin = now();
    let left = places.iter().map(|place| place.remaining()).min();
    let places: Vec<_> = places.iter().collect();
    let valid_until = begin + left.unwrap_or_default();
    sleep(LONGER).await;
    let turn = stay(asked, begin, &places, valid_until, variety).await;
    Stay { slot, turn }
}

/// Works for a while under these permits; most often a short one.
async fn stay(
    asked: Duration,
    begin: Duration,
    permits: &[&Permit],
    valid_until: Duration,
    variety: usize,
) -> Turn {
    let work = match variety % 100 {
        0 => TTL + Duration::from_millis(20),
        3 => TTL / 2,
        n => Duration::from_micros(n as u64 * 20),
    };
    sleep(work).await;
    let end = now();
    let still = permits.iter().all(|permit| permit.is_valid());
    let end = if still { end } else { end.min(valid_until) };
    let nanos = |time: Duration| time.as_nanos() as u64;
    Turn {
        asked: nanos(asked),
        begin: nanos(begin),
        end: nanos(end.max(begin)),
        token: permits
            .iter()
            .map(|permit| permit.token().get())
            .max()
            .unwrap_or(0),
    }
}
