//! A process that counts a latch down and ends, or waits at a barrier, for the tests to kill.
//!
//! `party URLS count NAME K` prints `counted`; `party URLS wait NAME K TTL_MILLIS` prints `passed PLACE`
//! when it has passed the barrier.

use std::error::Error;
use std::time::Duration;

use fencepost::{Client, RestartPolicy};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let [urls, what, name, k, ttl @ ..] = &words[..] else {
        return Err("see the head of party.rs".into());
    };
    let builder = Client::builder().url(urls);
    let builder = builder.restart_policy(RestartPolicy::Trust);
    let locks = builder.connect().await?;
    match (*what, ttl) {
        ("count", []) => {
            locks.latch(name, k.parse()?).count_down().await?;
            println!("counted");
        }
        ("wait", [ttl]) => {
            let barrier = locks.barrier(name, k.parse()?);
            let barrier = barrier.ttl(Duration::from_millis(ttl.parse()?));
            println!("passed {}", barrier.wait().await?.place());
        }
        _ => return Err("see the head of party.rs".into()),
    }
    // At once, with whatever is under way.
    std::process::exit(0)
}
