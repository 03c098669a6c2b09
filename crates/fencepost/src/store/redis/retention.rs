//! Forgets the fence registers of names that nobody has acquired for long, a few at a time.
//!
//! It must never forget a name before its retention is over, and never stop the server for others: one
//! call removes at most [`MOST`] entries, which takes a millisecond.

use std::convert::Infallible;
use std::time::Duration;

use tokio::time::sleep;

use super::keys::REGISTER;
use super::link::Link;
use super::scripts;
use crate::runtime::clock::Clock;

/// How many entries one call removes at the most.
const MOST: u64 = 1000;
/// How long to pause where there may be more.
const PAUSE: Duration = Duration::from_millis(20);
/// How often a server is looked at.
const EVERY: Duration = Duration::from_secs(60);

/// Forgets what is too old on this server, as long as the connection lives. At once for the first time:
/// a program that runs once a minute for a second does its share.
pub(super) async fn enforce(
    link: &Link,
    node: &str,
    retention: Duration,
    clock: &dyn Clock,
) -> Infallible {
    loop {
        let is_full = forget(link, node, REGISTER, retention, clock).await;
        sleep(if is_full { PAUSE } else { EVERY }).await;
    }
}

/// The same for the registers that are in use, of which there are many.
pub(super) async fn enforce_all(
    link: &Link,
    node: &str,
    registers: impl Fn() -> Vec<String>,
    retention: Duration,
    clock: &dyn Clock,
) -> Infallible {
    loop {
        sleep(EVERY).await;
        for register in registers() {
            while forget(link, node, &register, retention, clock).await {
                sleep(PAUSE).await;
            }
        }
    }
}

/// Removes the oldest entries of one register. Whether there may be more.
async fn forget(
    link: &Link,
    node: &str,
    register: &str,
    retention: Duration,
    clock: &dyn Clock,
) -> bool {
    let mut cmd = redis::cmd("EVAL");
    cmd.arg(scripts::FORGET)
        .arg(1)
        .arg(register)
        .arg(u64::try_from(retention.as_micros()).unwrap_or(u64::MAX))
        .arg(clock.wall_micros())
        .arg(MOST);
    let forgotten = link.send(&cmd, clock).await;
    if let Err(error) = &forgotten {
        // What a lock needs is refused to the lock itself, and told there.
        tracing::debug!(node, %error, "old fence registers were not removed");
    }
    forgotten.is_ok_and(|count| count == redis::Value::Int(MOST.cast_signed()))
}
