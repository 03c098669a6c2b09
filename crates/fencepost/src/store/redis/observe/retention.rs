//! Removes the fence registers of names that were not acquired for a long time, a few at a time.
//!
//! It must never remove a name before its retention is over, and never block the server for others:
//! one call removes at most [`MOST`] entries, which takes a millisecond.

use std::convert::Infallible;
use std::time::Duration;

use tokio::time::sleep;

use crate::runtime::clock::Clock;
use crate::store::redis::connection::link::Link;
use crate::store::redis::encoding::keys::REGISTER;
use crate::store::redis::encoding::scripts;
use crate::store::redis::protocol::command::Cmd;
use crate::store::redis::protocol::value::Value;

/// The maximum number of entries per call.
const MOST: u64 = 1000;
/// The pause before the next call if there may be more.
const PAUSE: Duration = Duration::from_millis(20);
/// How often a server is checked.
const EVERY: Duration = Duration::from_secs(60);

/// Removes old entries on this server for the lifetime of the connection. Starts at once, so that a
/// program which runs once a minute for a second does its share.
pub(crate) async fn enforce(
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

/// The same for all registers in use, of which there are many.
pub(crate) async fn enforce_all(
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

/// Removes the oldest entries of one register. Returns whether there may be more.
async fn forget(
    link: &Link,
    node: &str,
    register: &str,
    retention: Duration,
    clock: &dyn Clock,
) -> bool {
    let mut cmd = Cmd::new("EVAL");
    cmd.arg(scripts::FORGET)
        .arg(1)
        .arg(register)
        .arg(u64::try_from(retention.as_micros()).unwrap_or(u64::MAX))
        .arg(clock.wall_micros())
        .arg(MOST);
    let forgotten = link.send(&cmd, clock).await;
    if let Err(error) = &forgotten {
        // If a permission is missing, the lock itself fails and reports it.
        tracing::debug!(node, %error, "cannot remove old fence registers");
    }
    forgotten.is_ok_and(|count| count == Value::Int(MOST.cast_signed()))
}
