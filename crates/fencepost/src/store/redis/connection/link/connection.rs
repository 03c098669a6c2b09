//! [`Connection`]: sends commands and waits for their answers.

use crate::store::redis::encoding::prepared::Prepared;
use crate::store::redis::fault::{RedisError, RedisResult};
use crate::store::redis::protocol::command::Cmd;
use crate::store::redis::protocol::value::Value;
use crate::store::redis::protocol::wire::{Urgency, Wire};

/// A connection. An error reply of the server is an error of the call.
#[derive(Clone)]
pub(crate) struct Connection(pub(super) Wire);

impl Connection {
    pub(crate) fn new(wire: Wire) -> Self {
        Self(wire)
    }

    /// Its client has no other server.
    pub(crate) fn is_alone(&self) {
        self.0.is_alone();
    }

    /// Sends one command when first polled, and waits for its answer.
    pub(crate) async fn send(&self, cmd: &Cmd) -> RedisResult<Value> {
        or_error(self.0.send(cmd, Urgency::Now).await?)
    }

    /// Sends two commands with none of other senders between them, and waits for the second's answer.
    pub(crate) async fn send_behind(&self, first: &Cmd, second: &Cmd) -> RedisResult<Value> {
        or_error(self.0.send_behind(first, second).await?)
    }

    /// Sends a command by its script, and waits for its answer.
    pub(super) async fn send_script(
        &self,
        command: &Prepared,
        urgency: Urgency,
    ) -> RedisResult<Value> {
        or_error(self.0.send_encoded(command.script(), 1, urgency).await?)
    }
}

fn or_error(answer: Value) -> RedisResult<Value> {
    match answer {
        Value::ServerError(error) => Err(RedisError::Server(error)),
        value => Ok(value),
    }
}
