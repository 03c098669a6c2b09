//! Hears what a server publishes to the waiters of one client, on a connection of its own.
//!
//! A message may be lost, and a waiter must never hang because of it: after each new connection the
//! waiters are told to look.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use redis::aio::{PubSub, PubSubStream};
use redis::{ProtocolVersion, RedisConnectionInfo};
use tokio::time::{sleep, timeout};

use super::keeper::{Pauses, Source};
use super::stream::Route;
use crate::node::{Ear, Notice};
use crate::ticket::{ClientId, TicketId, WakeUp};

/// After that much silence the server is asked whether it is still there.
const PING_AFTER: Duration = Duration::from_secs(5);

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
        // The stream of messages is the same on both; the older one needs no handshake for it.
        let login = login.clone().set_protocol(ProtocolVersion::RESP2);
        let mut pauses = Pauses::default();
        loop {
            let reason = match self.connect(route, &login).await {
                Ok(connection) => {
                    pauses = Pauses::default();
                    self.ear.hear(Notice::Listening);
                    self.hear(connection).await
                }
                Err(reason) => reason,
            };
            tracing::debug!(node = self.label, reason, "wake-ups cannot be heard");
            // Never at once: a server that closes every connection would make a storm of them.
            pauses.skip_first();
            sleep(pauses.next()).await;
        }
    }

    async fn connect(&self, route: &Route, login: &RedisConnectionInfo) -> Result<PubSub, String> {
        let limit = self.connect_timeout;
        let connect = async {
            let stream = route.open(limit).await.map_err(|error| error.to_string())?;
            let connection = PubSub::new(login, stream).await;
            let mut connection = connection.map_err(|error| error.to_string())?;
            let subscribed = connection.subscribe(&self.channel).await;
            subscribed.map_err(|error| error.to_string())?;
            Ok(connection)
        };
        let late = |_| Err("no answer in time".to_owned());
        timeout(limit, connect).await.unwrap_or_else(late)
    }

    /// Hands on what is heard, until the connection ends.
    async fn hear(&self, connection: PubSub) -> String {
        let (mut asking, mut messages) = connection.split();
        loop {
            match timeout(PING_AFTER, self.next(&mut messages)).await {
                Ok(true) => {}
                Ok(false) => return "the connection was closed".to_owned(),
                Err(_) => {
                    match timeout(self.connect_timeout, asking.ping::<redis::Value>()).await {
                        Ok(Ok(_)) => {}
                        Ok(Err(error)) => return error.to_string(),
                        Err(_) => return "the server has stopped answering".to_owned(),
                    }
                }
            }
        }
    }

    async fn next(&self, messages: &mut PubSubStream) -> bool {
        let Some(message) = messages.next().await else {
            return false;
        };
        if let Some(wake) = read(message.get_payload_bytes()) {
            self.ear.hear(Notice::WakeUp(wake));
        }
        true
    }
}

/// A place, 1 or 2, and the ticket.
fn read(payload: &[u8]) -> Option<WakeUp> {
    let text = std::str::from_utf8(payload).ok()?;
    let (first, ticket) = match text.split_at_checked(1)? {
        ("1", ticket) => (true, ticket),
        ("2", ticket) => (false, ticket),
        _ => return None,
    };
    let ticket = TicketId::reported(ticket);
    Some(WakeUp { ticket, first })
}
