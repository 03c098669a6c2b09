//! The names that a server knows: the members of its fence register.
//!
//! Uses `ZSCAN` in small steps, which never blocks the server for others. Never scans the lock keys
//! themselves: on a server with other data, any string might look like one.

use crate::error::NodeError;
use crate::runtime::clock::Clock;
use crate::store::redis::connection::link::Link;
use crate::store::redis::encoding::keys::Prefix;
use crate::store::redis::fault;
use crate::store::redis::protocol::command::Cmd;
use crate::store::redis::protocol::value::Value;
use fencepost_core::pattern::{NamePattern, Names};

/// How many members the server visits in one step: a fraction of a millisecond.
const STEP: usize = 1000;

/// Adds the names of this register. Returns whether there was room for all.
pub(crate) async fn add_names(
    names: &mut Names,
    link: &Link,
    register: &str,
    prefix: &Prefix,
    wanted: &NamePattern,
    clock: &dyn Clock,
) -> Result<bool, NodeError> {
    let mut cursor = "0".to_owned();
    loop {
        let mut scan = Cmd::new("ZSCAN");
        scan.arg(register).arg(&cursor);
        scan.arg("MATCH").arg(prefix.locks());
        scan.arg("COUNT").arg(STEP);
        let answer = link.send(&scan, clock).await;
        let answer = answer.map_err(|error| fault::node_error(&error))?;
        let (next, members): (String, Vec<Value>) = answer
            .read()
            .map_err(|error| NodeError::Other(format!("malformed reply: {error}")))?;
        // Each is followed by its score.
        for member in members.into_iter().step_by(2) {
            // Text that is not UTF-8 was not written by us.
            let Ok(key) = member.read::<String>() else {
                continue;
            };
            let name = prefix.name_of(&key);
            if let Some(name) = name.filter(|name| wanted.matches(name.as_str()))
                && !names.push(name)
            {
                return Ok(false);
            }
        }
        // The server may return a member twice when the set grows; the listing handles that.
        if next == "0" {
            return Ok(true);
        }
        cursor = next;
    }
}
