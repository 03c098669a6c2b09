//! The names that a server knows: those in its fence register.
//!
//! `ZSCAN` in small steps, which never stops the server for others. And never by the lock keys themselves:
//! on a server that holds other data too, any string might look like one.

use redis::{Value, from_redis_value};

use super::fault;
use super::keys::Prefix;
use super::link::Link;
use crate::error::NodeError;
use crate::runtime::clock::Clock;
use fencepost_core::pattern::{NamePattern, Names};

/// How many members the server looks at in one step: a fraction of a millisecond.
const STEP: usize = 1000;

/// Adds what this register has. Whether there was room for all of it.
pub(super) async fn add_names(
    names: &mut Names,
    link: &Link,
    register: &str,
    prefix: &Prefix,
    wanted: &NamePattern,
    clock: &dyn Clock,
) -> Result<bool, NodeError> {
    let mut cursor = "0".to_owned();
    loop {
        let mut scan = redis::cmd("ZSCAN");
        scan.arg(register).arg(&cursor);
        scan.arg("MATCH").arg(prefix.locks());
        scan.arg("COUNT").arg(STEP);
        let answer = link.send(&scan, clock).await;
        let answer = answer.map_err(|error| fault::node_error(&error))?;
        let (next, members): (String, Vec<Value>) = from_redis_value(answer)
            .map_err(|error| NodeError::Other(format!("an answer that makes no sense: {error}")))?;
        // Each is followed by its score.
        for member in members.into_iter().step_by(2) {
            // What is not text was not written by us.
            let Ok(key) = from_redis_value::<String>(member) else {
                continue;
            };
            let name = prefix.name_of(&key);
            if let Some(name) = name.filter(|name| wanted.matches(name.as_str()))
                && !names.push(name)
            {
                return Ok(false);
            }
        }
        // The server may give a member twice when it grows meanwhile; the listing takes care of that.
        if next == "0" {
            return Ok(true);
        }
        cursor = next;
    }
}
