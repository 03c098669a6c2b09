//! A process whose clients wait for a lock, for the tests to kill.
//!
//! `waiter URLS NAME COUNT fair|default` starts so many clients, one after the other in line, and
//! prints `waiting` when all of them have their place. Whoever gets the lock keeps it.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use fencepost::{Client, RestartPolicy};
use tokio::sync::Notify;

/// How long it waits for being killed.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [urls, name, count, mode] = &words[..] else {
        return Err("see the head of waiter.rs".into());
    };
    let mut leases = Vec::new();
    for _ in 0..count.parse()? {
        let builder = Client::builder().url(urls);
        let builder = builder.restart_policy(RestartPolicy::Trust);
        let locks = builder.connect().await?;
        let seated = Arc::new(Notify::new());
        let tell = Arc::clone(&seated);
        let request = locks.lock(name).fair(mode == "fair");
        let request = request.on_progress(move |progress| {
            if progress.is_settled {
                tell.notify_one();
            }
        });
        leases.push(tokio::spawn(request.into_future()));
        seated.notified().await;
    }
    println!("waiting");
    tokio::time::sleep(PATIENCE).await;
    Ok(())
}
