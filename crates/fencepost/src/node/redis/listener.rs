//! Hears what a server publishes to the waiters of one client, on a connection of its own.
//!
//! A message may be lost, and a waiter must never hang because of it: after each new connection the
//! waiters are told to look.
//!
//! While somebody waits for a reentrant lock, it hears also what Redisson says of it, on a channel for
//! each such lock.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{try_join, try_join_all};
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, ProtocolVersion, PushInfo, PushKind, RedisConnectionInfo, Value,
};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::fault;
use super::keeper::{Pauses, Source};
use super::stream::Route;
use crate::name::LockName;
use crate::node::{Ear, Listener, Notice};
use crate::ticket::{ClientId, TicketId, WakeUp};

/// How often the server is asked whether it is still there.
const PING_EVERY: Duration = Duration::from_secs(5);

/// How the channels begin on which clients are told.
const OUR_CHANNELS: &str = "fencepost:wake:";

/// What the task works with.
pub(super) struct Ears {
    pub(super) source: Arc<Source>,
    pub(super) label: String,
    pub(super) channel: String,
    pub(super) followed: Followed,
    pub(super) connect_timeout: Duration,
    pub(super) ear: Arc<dyn Ear>,
}

/// Where a client is told.
pub(super) fn channel(client: &ClientId) -> String {
    [OUR_CHANNELS, client.as_str()].concat()
}

/// The channels to hear beside a client's own: the lock of each, and how many want to hear it.
#[derive(Clone, Default)]
pub(super) struct Followed(Arc<watch::Sender<Channels>>);

type Channels = BTreeMap<String, (LockName, usize)>;

impl Followed {
    /// Adds one, until the listener is dropped.
    pub(super) fn add(&self, channel: String, name: &LockName) -> Listener {
        self.0.send_modify(|channels| {
            let (_, listeners) = channels
                .entry(channel.clone())
                .or_insert_with(|| (name.clone(), 0));
            *listeners += 1;
        });
        let followed = self.clone();
        Listener::until(move || followed.remove(&channel))
    }

    fn remove(&self, channel: &str) {
        self.0.send_modify(|channels| {
            if let Some((_, listeners)) = channels.get_mut(channel) {
                *listeners -= 1;
                if *listeners == 0 {
                    channels.remove(channel);
                }
            }
        });
    }

    fn lock_of(&self, channel: &[u8]) -> Option<LockName> {
        let channel = std::str::from_utf8(channel).ok()?;
        let channels = self.0.borrow();
        channels.get(channel).map(|(name, _)| name.clone())
    }
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
        let (ear, followed) = (Arc::clone(&self.ear), self.followed.clone());
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_push_sender(move |push: PushInfo| {
                if let Some(notice) = read(&push, &followed) {
                    ear.hear(notice);
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
        if let Err(failure) = self.within_time(subscribed).await {
            return failure.to_string();
        }
        *was_heard = true;
        self.ear.hear(Notice::Listening);
        let mut wanted = self.followed.0.subscribe();
        let mut heard = Channels::new();
        let mut next_ping = Instant::now() + PING_EVERY;
        loop {
            let now_wanted = wanted.borrow_and_update().clone();
            if let Err(failure) = self.switch(&connection, &heard, &now_wanted).await {
                return failure.to_string();
            }
            heard = now_wanted;
            tokio::select! {
                biased;
                // It ends with the node, and so does this task.
                Ok(()) = wanted.changed() => continue,
                () = sleep_until(next_ping) => {}
            }
            next_ping = Instant::now() + PING_EVERY;
            let ping = redis::cmd("PING");
            let answer = connection.send_packed_command(&ping);
            if let Err(failure) = self.within_time(answer).await {
                return failure.to_string();
            }
        }
    }

    /// Hears from now on what is wanted, and no longer what was.
    async fn switch(
        &self,
        connection: &MultiplexedConnection,
        heard: &Channels,
        wanted: &Channels,
    ) -> Result<(), Failure> {
        // All at once: after a new connection there may be many.
        let old = heard.keys().filter(|old| !wanted.contains_key(*old));
        let old = old.map(async |channel| {
            let mut connection = connection.clone();
            self.within_time(connection.unsubscribe(channel)).await
        });
        let new = wanted.iter().filter(|(new, _)| !heard.contains_key(*new));
        let new = new.map(async |(channel, (name, _))| {
            let mut connection = connection.clone();
            match self.within_time(connection.subscribe(channel)).await {
                // What was said before has been missed.
                Ok(()) => self.ear.hear(Notice::Freed(name.clone())),
                // A user who may not hear it looks now and then, as for any foreign client.
                Err(Failure::Answer(error)) if fault::is_answer(&error) => {
                    tracing::debug!(node = self.label, channel, %error, "cannot be heard");
                }
                Err(failure) => return Err(failure),
            }
            Ok(())
        });
        try_join(try_join_all(old), try_join_all(new)).await?;
        Ok(())
    }

    async fn within_time<T>(
        &self,
        answer: impl Future<Output = redis::RedisResult<T>>,
    ) -> Result<T, Failure> {
        match timeout(self.connect_timeout, answer).await {
            Ok(answer) => answer.map_err(Failure::Answer),
            Err(_) => Err(Failure::Silence),
        }
    }
}

/// Why a connection is given up.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("{0}")]
    Answer(redis::RedisError),
    #[error("the server does not answer")]
    Silence,
}

/// What was published: to this client, or to whoever waits for a lock that is followed.
fn read(push: &PushInfo, followed: &Followed) -> Option<Notice> {
    let (PushKind::Message, [Value::BulkString(channel), Value::BulkString(payload)]) =
        (&push.kind, push.data.as_slice())
    else {
        return None;
    };
    match channel.starts_with(OUR_CHANNELS.as_bytes()) {
        true => wake_up(payload).map(Notice::WakeUp),
        false => followed.lock_of(channel).map(Notice::Freed),
    }
}

/// A place, 1 or 2, and the ticket.
fn wake_up(payload: &[u8]) -> Option<WakeUp> {
    let text = std::str::from_utf8(payload).ok()?;
    let (first, ticket) = match text.split_at_checked(1)? {
        ("1", ticket) => (true, ticket),
        ("2", ticket) => (false, ticket),
        _ => return None,
    };
    let ticket = TicketId::reported(ticket);
    Some(WakeUp { ticket, first })
}
