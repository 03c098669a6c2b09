//! A process that holds a lock, for the tests to stop and to continue.
//!
//! `holder URLS NAME TTL_MILLIS` prints `holding`. When it finds that it has been stopped for longer
//! than the TTL, it prints one line, the answers in the order in which they were asked for: whether
//! the lease is valid, how it was lost, whether it can be extended, and what a task was told that
//! waited for the loss.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use fencepost::internals::clock::{Clock, SystemClock};
use fencepost::{Client, RestartPolicy};

/// How often it looks whether it has been stopped.
const LOOK: Duration = Duration::from_millis(1);
/// How long it waits for being stopped.
const PATIENCE: Duration = Duration::from_secs(60);

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [urls, name, ttl] = &words[..] else {
        return Err("see the head of holder.rs".into());
    };
    let ttl = Duration::from_millis(ttl.parse()?);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    let lease = runtime.block_on(async {
        let locks = Client::builder()
            .url(urls)
            .restart_policy(RestartPolicy::Trust)
            .connect()
            .await?;
        locks.lock(name).ttl(ttl).await
    })?;
    let lease = Arc::new(lease);
    let told = runtime.spawn({
        let lease = lease.clone();
        async move { lease.lost().await }
    });
    // This thread is not the runtime's: whether that one has run already does not matter to it.
    // Before the line that gets it stopped: a stop right behind that line must not go unnoticed.
    let start = SystemClock.now();
    let mut last = start;
    println!("holding");
    loop {
        std::thread::sleep(LOOK);
        // One reading each time, so that there is no moment at which a stop goes unnoticed.
        let now = SystemClock.now();
        if now.since(last) > ttl {
            break;
        }
        if now.since(start) > PATIENCE {
            return Err("nobody has stopped it".into());
        }
        last = now;
    }
    let valid = lease.is_valid();
    let loss = lease.loss().map_or("none", |why| why.as_str());
    let extended = match runtime.block_on(lease.extend()) {
        Err(error) if error.is_lost() => "lost",
        Err(_) => "failed",
        Ok(()) => "extended",
    };
    let told = runtime.block_on(told)?;
    println!("{valid} {loss} {extended} {}", told.as_str());
    Ok(())
}
