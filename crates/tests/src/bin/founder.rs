//! A process that makes a cluster, for the tests to kill in the middle.
//!
//! `founder URLS MAX_TTL_MILLIS` makes it of servers that nobody has used.

use std::error::Error;
use std::time::Duration;

use fencepost::{Client, InitOptions, RestartPolicy};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [urls, max_ttl] = &words[..] else {
        return Err("see the head of founder.rs".into());
    };
    let builder = Client::builder()
        .url(urls)
        .max_ttl(Duration::from_millis(max_ttl.parse()?))
        .restart_policy(RestartPolicy::Delay);
    builder.init(InitOptions::new().fresh(true)).await?;
    Ok(())
}
