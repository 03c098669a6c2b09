//! A process that asks for a lock when it is told to, for the tests to stop and to continue meanwhile.
//!
//! `asker URLS NAME MAX_TTL_MILLIS` tries to acquire NAME for each line that it reads, and prints `granted`, or how many
//! nodes gave no vote, and why. What was granted is released before it prints so.

use std::error::Error;
use std::io::BufRead;
use std::time::Duration;

use fencepost::{Client, NodeOutcome, NodeReport, RestartPolicy};

#[tokio::main(flavor = "multi_thread", worker_threads = 1)]
async fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [urls, name, max_ttl] = &words[..] else {
        return Err("see the head of asker.rs".into());
    };
    let max_ttl = Duration::from_millis(max_ttl.parse()?);
    let locks = Client::builder()
        .url(urls)
        .restart_policy(RestartPolicy::Delay)
        .max_ttl(max_ttl)
        .connect()
        .await?;
    // The connections are watched by the other thread meanwhile.
    for line in std::io::stdin().lock().lines() {
        line?;
        match locks.try_lock(name).renew(false).await {
            Ok(lease) => {
                lease.release().await?;
                println!("granted");
            }
            Err(error) => {
                let failed = |it: &&NodeReport| matches!(it.outcome, NodeOutcome::Failed(_));
                let many = error.nodes().iter().filter(failed).count();
                println!("refused by {many} nodes: {error}");
            }
        }
    }
    Ok(())
}
