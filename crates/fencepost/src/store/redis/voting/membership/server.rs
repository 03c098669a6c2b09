//! Reads and writes the marker of a server.

use super::KEY;
use crate::error::NodeError;
use crate::store::redis::connection::link::Connection;
use crate::store::redis::fault;
use crate::store::redis::options::RedisOptions;
use crate::store::redis::protocol::command::Cmd;
use crate::store::redis::protocol::value::Value;
use crate::store::redis::voting::handshake::{self, Look};
use fencepost_core::quorum::membership::{Marker, Terms, is_marker, outside};

/// Replaces a marker if it is still the one that was read; deletes it if the new one is empty.
const REPLACE: &str = "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end \
                       if ARGV[2] == '' then redis.call('DEL', KEYS[1]) \
                       else redis.call('SET', KEYS[1], ARGV[2]) end return 1";

/// Whether a server may vote for a client that keeps no marker: not if it belongs to a cluster on
/// other terms. What this user may not read is unknown.
pub(crate) async fn check_outside(
    connection: &Connection,
    terms: &Terms,
    node: &str,
) -> Result<(), NodeError> {
    let mut get = Cmd::new("GET");
    let answer = connection.send(get.arg(KEY)).await;
    let marker = match answer.map_err(|error| fault::node_error(&error)) {
        Ok(value) => value.read::<Option<String>>().unwrap_or_default(),
        Err(NodeError::Permission(_) | NodeError::WrongType(_)) => None,
        Err(error) => return Err(error),
    };
    let Some(raw) = marker.filter(|raw| is_marker(raw)) else {
        return Ok(());
    };
    let why = match raw.parse::<Marker>() {
        Ok(marker) => match outside(terms, &marker) {
            Some(why) => format!("{node} belongs to another cluster: {why}"),
            None => return Ok(()),
        },
        Err(_) => format!("the marker of {node} cannot be read by this version"),
    };
    Err(NodeError::Differs(why))
}

/// A server that is being checked.
pub(crate) struct Server<'c> {
    pub(crate) connection: &'c Connection,
    pub(crate) options: &'c RedisOptions,
    /// Whether it tracks what was read with `CLIENT CACHING YES`.
    pub(crate) tracks: bool,
}

impl Server<'_> {
    /// Queries everything that matters, and whether the server may vote at all.
    pub(crate) async fn look(&self) -> Result<Look, NodeError> {
        let look = handshake::look(self.connection, self.tracks).await?;
        look.facts.admit(self.options)?;
        Ok(look)
    }

    async fn send(&self, cmd: &Cmd) -> Result<Value, NodeError> {
        let answer = self.connection.send(cmd).await;
        answer.map_err(|error| fault::node_error(&error))
    }

    /// Writes a marker if there is none, or only the old one that it replaces.
    pub(super) async fn put(&self, old: &str, marker: &Marker) -> Result<(), NodeError> {
        if !old.is_empty() {
            return self.replace(old, Some(marker)).await;
        }
        let mut set = Cmd::new("SET");
        set.arg(KEY).arg(marker.to_string()).arg("NX");
        self.send(&set).await.map(|_| ())
    }

    /// The next look shows whether it was still that one.
    pub(crate) async fn replace(&self, old: &str, new: Option<&Marker>) -> Result<(), NodeError> {
        let mut eval = Cmd::new("EVAL");
        let new = new.map(ToString::to_string).unwrap_or_default();
        eval.arg(REPLACE).arg(1).arg(KEY).arg(old).arg(new);
        self.send(&eval).await.map(|_| ())
    }
}
