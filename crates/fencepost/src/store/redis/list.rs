//! The names that a server knows: those that have a token counter.
//!
//! `SCAN` in small steps, never `KEYS`, which would stop the server for everybody. And never by the
//! lock keys themselves: on a server that holds other data too, any string might look like one.

use redis::{Value, from_redis_value};

use super::fault;
use super::keys::Prefix;
use super::link::Link;
use crate::error::NodeError;
use crate::runtime::clock::Clock;
use fencepost_core::pattern::{NamePattern, Names};

/// How many keys the server looks at in one step: a fraction of a millisecond.
const STEP: usize = 1000;

pub(super) async fn names(
    link: &Link,
    prefix: &Prefix,
    wanted: &NamePattern,
    clock: &dyn Clock,
) -> Result<Names, NodeError> {
    let mut names = Names::default();
    let mut cursor = "0".to_owned();
    loop {
        let mut scan = redis::cmd("SCAN");
        scan.arg(&cursor).arg("MATCH").arg(prefix.counters());
        scan.arg("COUNT").arg(STEP);
        let answer = link.send(&scan, clock).await;
        let answer = answer.map_err(|error| fault::node_error(&error))?;
        let (next, keys): (String, Vec<Value>) = from_redis_value(answer)
            .map_err(|error| NodeError::Other(format!("an answer that makes no sense: {error}")))?;
        for key in keys {
            // A key that is not text was not written by us.
            let Ok(key) = from_redis_value::<String>(key) else {
                continue;
            };
            let name = prefix.name_of_counter(&key);
            if let Some(name) = name.filter(|name| wanted.matches(name.as_str()))
                && !names.push(name)
            {
                return Ok(names);
            }
        }
        // The server gives a key twice when it grows meanwhile; the listing takes care of that.
        if next == "0" {
            return Ok(names);
        }
        cursor = next;
    }
}
