//! Hears what a server publishes to the waiters of one client, on a connection of its own.
//!
//! A message may be lost, and a waiter must never hang because of it: after each new connection the
//! waiters are told to look.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, ProtocolVersion, PushInfo, PushKind, RedisConnectionInfo, Value,
};
use tokio::time::{sleep, timeout};

use super::keeper::{Pauses, Source};
use super::stream::Route;
use crate::node::{Ear, Notice};
use crate::ticket::{ClientId, TicketId, WakeUp};

/// How often the server is asked whether it is still there.
const PING_EVERY: Duration = Duration::from_secs(5);

/// What the task works with.
pub(super) struct Ears {
    pub(super) source: Arc<Source>,
    pub(super) label: String,
    pub(super) channel: String,
    pub(super) connect_timeout: Duration,
    pub(super) ear: Arc<dyn Ear>,
}

/// Where a client is told.
pub(super) fn channel(client: &ClientId) -> String {
    format!("fencepost:wake:{}", client.as_str())
}

impl Ears {
    /// Listens until the task is aborted.
    pub(super) async fn run(self) {
        let Source::Url { route, login } = &*self.source else {
            return;
        };
        // Messages come as pushes, which this task takes from the connection itself: a task between
        // the two would cost every wake-up one more.
        let login = login.clone().set_protocol(ProtocolVersion::RESP3);
        let mut pauses = Pauses::default();
        loop {
            let mut was_heard = false;
            let reason = self.listen(route, &login, &mut was_heard).await;
            tracing::debug!(node = self.label, reason, "wake-ups cannot be heard");
            if was_heard {
                pauses = Pauses::default();
            }
            // Never at once: a server that closes every connection would make a storm of them.
            pauses.skip_first();
            sleep(pauses.next()).await;
        }
    }

    /// Connects, and hands on what is heard until the connection ends, for which this is the reason.
    async fn listen(
        &self,
        route: &Route,
        login: &RedisConnectionInfo,
        was_heard: &mut bool,
    ) -> String {
        let ear = Arc::clone(&self.ear);
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_push_sender(move |push: PushInfo| {
                if let Some(wake) = read(&push) {
                    ear.hear(Notice::WakeUp(wake));
                }
                Ok::<_, ()>(())
            });
        let connect = async {
            let stream = route.open(self.connect_timeout).await;
            let stream = stream.map_err(|error| error.to_string())?;
            let connection = MultiplexedConnection::new_with_config(login, stream, config).await;
            connection.map_err(|error| error.to_string())
        };
        let (connection, driver) = match timeout(self.connect_timeout, connect).await {
            Ok(Ok(made)) => made,
            Ok(Err(reason)) => return reason,
            Err(_) => return "no answer in time".to_owned(),
        };
        tokio::select! {
            biased;
            () = driver => "the connection was closed".to_owned(),
            reason = self.subscribe(connection, was_heard) => reason,
        }
    }

    /// Subscribes, and looks now and then whether the server is still there.
    async fn subscribe(
        &self,
        mut connection: MultiplexedConnection,
        was_heard: &mut bool,
    ) -> String {
        let subscribed = connection.subscribe(&self.channel);
        match timeout(self.connect_timeout, subscribed).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return error.to_string(),
            Err(_) => return "no answer in time".to_owned(),
        }
        *was_heard = true;
        self.ear.hear(Notice::Listening);
        loop {
            sleep(PING_EVERY).await;
            let ping = redis::cmd("PING");
            let answer = connection.send_packed_command(&ping);
            match timeout(self.connect_timeout, answer).await {
                Ok(Ok(_)) => {}
                Ok(Err(error)) => return error.to_string(),
                Err(_) => return "the server has stopped answering".to_owned(),
            }
        }
    }
}

/// What was published: a place, 1 or 2, and the ticket.
fn read(push: &PushInfo) -> Option<WakeUp> {
    let (PushKind::Message, [_, Value::BulkString(payload)]) = (&push.kind, push.data.as_slice())
    else {
        return None;
    };
    let text = std::str::from_utf8(payload).ok()?;
    let (first, ticket) = match text.split_at_checked(1)? {
        ("1", ticket) => (true, ticket),
        ("2", ticket) => (false, ticket),
        _ => return None,
    };
    let ticket = TicketId::reported(ticket);
    Some(WakeUp { ticket, first })
}
