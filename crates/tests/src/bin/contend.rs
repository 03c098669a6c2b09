//! A process of tasks that all want one lock, for the tests to start several of.
//!
//! `contend URLS NAME TASKS TURNS` prints one line for each turn: see `fencepost_tests::Turn`. A
//! turn now and then outlives its lease, and gives it back late.

use std::error::Error;
use std::time::Duration;

use fencepost::clock::{Clock, SystemClock};
use fencepost::{Fencepost, RestartPolicy};
use fencepost_tests::Turn;

/// Short enough that stopped nodes make leases expire.
const TTL: Duration = Duration::from_millis(300);

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [urls, name, tasks, turns] = &words[..] else {
        return Err("see the head of contend.rs".into());
    };
    let locks = Fencepost::builder()
        .url(urls)
        .restart_policy(RestartPolicy::Trust)
        .node_timeout(Duration::from_millis(100))
        .connect()
        .await?;
    let turns: usize = turns.parse()?;
    let tasks = (0..tasks.parse()?).map(|task| {
        let (locks, name) = (locks.clone(), name.clone());
        tokio::spawn(async move {
            for turn in 0..turns {
                println!("{}", take_a_turn(&locks, &name, task * 7 + turn).await?);
            }
            Outcome::Ok(())
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await??;
    }
    Ok(())
}

async fn take_a_turn(locks: &Fencepost, name: &str, variety: usize) -> Outcome<Turn> {
    let now = || SystemClock.now().since_start();
    let (asked, lease) = loop {
        let asked = now();
        match locks.try_lock(name, TTL).await {
            Ok(lease) => break (asked, lease),
            // Both pass: the holder lets go, the nodes come back.
            Err(error) if error.is_held() || error.is_no_quorum() => {}
            Err(fencepost::Error::TooLate { .. }) => {}
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
    // Lost or not: it is over.
    let _ = lease.release().await;
    let nanos = |time: Duration| time.as_nanos() as u64;
    Ok(Turn {
        asked: nanos(asked),
        begin: nanos(begin),
        end: nanos(end.max(begin)),
        token,
    })
}
