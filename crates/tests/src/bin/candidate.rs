//! A process that wants to lead, again and again, for the tests to kill, to stop and to continue.
//!
//! `candidate URLS NAME VALUE TTL_MILLIS` prints `leading TOKEN` when it leads, and once it no longer
//! does, `led` and the time in which it saw that it did: see `fencepost_tests::Turn`.

use std::error::Error;
use std::time::Duration;

use fencepost::internals::clock::{Clock, SystemClock};
use fencepost::{Client, RestartPolicy};
use fencepost_tests::Turn;

/// How often it looks whether it leads.
const LOOK: Duration = Duration::from_millis(1);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [urls, name, value, ttl] = &words[..] else {
        return Err("see the head of candidate.rs".into());
    };
    let ttl = Duration::from_millis(ttl.parse()?);
    let locks = Client::builder()
        .url(urls)
        .restart_policy(RestartPolicy::Trust)
        .connect()
        .await?;
    let election = locks.election(name);
    let now = || SystemClock.now().since_start().as_nanos() as u64;
    loop {
        let asked = now();
        let leadership = election.campaign(value).ttl(ttl).await?;
        let begin = now();
        let token = leadership.token().get();
        println!("leading {token}");
        let mut end = begin;
        loop {
            // The time first: what is still valid afterwards was so then.
            let time = now();
            if !leadership.is_valid() {
                break;
            }
            end = time;
            tokio::time::sleep(LOOK).await;
        }
        let turn = Turn {
            asked,
            begin,
            end,
            token,
        };
        println!("led {turn}");
    }
}
