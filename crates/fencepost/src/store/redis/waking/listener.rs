//! Subscribes to what a server publishes for the waiters of one client, on a separate connection.
//!
//! A message may be lost, and a waiter must never hang because of that: after each new connection
//! the waiters look again.
//!
//! While a waiter waits for a reentrant lock, it also subscribes to Redisson's channel of that
//! lock. At a shard of a Cluster there are only channels of locks: see [`wakes`](crate::store::redis::cluster).

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::{join, join_all, try_join, try_join_all};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::error::NodeError;
use crate::store::redis::connection::keeper::{Pauses, Source};
use crate::store::redis::connection::link::Connection;
use crate::store::redis::encoding::keys::Keys;
use crate::store::redis::fault;
use crate::store::redis::fault::RedisResult;
use crate::store::redis::protocol::command::Cmd;
use crate::store::redis::protocol::reader::Reader;
use crate::store::redis::protocol::resp::Message;
use crate::store::redis::protocol::value::Value;
use crate::store::redis::protocol::wire::{OnPush, Push};
use crate::store::redis::voting::handshake;
use crate::store::{Listener, Notice, WakeSink};
use fencepost_core::name::LockName;
use fencepost_core::ticket::{ClientId, TicketId, Wake};

/// The interval of PINGs.
const PING_EVERY: Duration = Duration::from_secs(5);

/// The prefix of the channels on which clients are woken.
const OUR_CHANNELS: &str = "fencepost:wake:";

/// The state of the task.
pub(crate) struct Subscription {
    pub(crate) source: Arc<Source>,
    pub(crate) label: String,
    pub(crate) scope: Scope,
    pub(crate) followed: Followed,
    pub(crate) connect_timeout: Duration,
    pub(crate) reader: Reader,
    /// Gone when no client listens any more.
    pub(crate) sink: Weak<dyn WakeSink>,
}

/// Where messages are published that a connection subscribes to.
pub(crate) enum Scope {
    /// At a server, or in a whole Cluster: on the client's own channel, and on those that are followed.
    Everywhere { channel: String },
    /// In one shard of a Cluster.
    Shard,
}

impl Scope {
    fn subscribe(&self) -> &'static str {
        match self {
            Self::Everywhere { .. } => "SUBSCRIBE",
            Self::Shard => "SSUBSCRIBE",
        }
    }

    fn unsubscribe(&self) -> &'static str {
        match self {
            Self::Everywhere { .. } => "UNSUBSCRIBE",
            Self::Shard => "SUNSUBSCRIBE",
        }
    }
}

/// The channel on which a client is woken.
pub(crate) fn channel(client: &ClientId) -> String {
    [OUR_CHANNELS, client.as_str()].concat()
}

/// The channel on which a client that waits for a lock is woken at the shard of that lock. It has the slot of
/// the lock's queue. Our scripts use the same rule.
pub(crate) fn channel_at_shard(keys: &Keys, client: &ClientId) -> String {
    format!("{OUR_CHANNELS}{}:{}", keys.queue(), client.as_str())
}

/// The channels besides the client's own: the lock of each, and the number of its waiters.
#[derive(Clone, Default)]
pub(crate) struct Followed(Arc<watch::Sender<Channels>>);

pub(crate) type Channels = BTreeMap<String, (LockName, usize)>;

impl Followed {
    /// Adds a channel, until the listener is dropped.
    pub(crate) fn add(&self, channel: String, name: &LockName) -> Listener {
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

    /// Follows what it changes.
    pub(crate) fn watch(&self) -> watch::Receiver<Channels> {
        self.0.subscribe()
    }

    /// Follows these and no others.
    pub(crate) fn replace(&self, wanted: Channels) {
        self.0.send_if_modified(|channels| {
            let is_new = !channels.keys().eq(wanted.keys());
            *channels = wanted;
            is_new
        });
    }

    fn lock_of(&self, channel: &[u8]) -> Option<LockName> {
        let channel = std::str::from_utf8(channel).ok()?;
        let channels = self.0.borrow();
        channels.get(channel).map(|(name, _)| name.clone())
    }
}

impl Subscription {
    /// Runs until the task is aborted.
    pub(crate) async fn run(self) {
        let mut pauses = Pauses::default();
        loop {
            let mut was_subscribed = false;
            let Err(reason) = self.listen(&mut was_subscribed).await;
            tracing::debug!(node = self.label, %reason, "cannot subscribe to wake-ups");
            if was_subscribed {
                pauses = Pauses::default();
            }
            // Never immediately: a server that closes every connection would cause a storm of them.
            pauses.skip_first();
            sleep(pauses.next()).await;
        }
    }

    /// Connects, and forwards messages until the connection ends. The error is the reason.
    async fn listen(&self, was_subscribed: &mut bool) -> Result<Infallible, NodeError> {
        let limit = self.connect_timeout;
        let way = self.source.locate(limit).await?;
        let dial = way.dial(limit, Some(self.on_push()), self.reader.clone());
        let (connection, mut driver) = self.within_time(dial).await?;
        tokio::select! {
            biased;
            // It may know the reason better.
            end = self.keep_subscribed(&connection, was_subscribed) => end,
            () = driver.ended() => Err(NodeError::Disconnected("closed".to_owned())),
            reason = way.until_moved() => Err(reason),
        }
    }

    /// Handles each message in the connection's task. That task wakes the waiters directly: another
    /// task in between would delay every wake-up.
    fn on_push(&self) -> OnPush {
        let (sink, followed) = (Weak::clone(&self.sink), self.followed.clone());
        Box::new(move |push| {
            if let Push::Message(message) = push
                && let Some(notice) = read(message, &followed)
            {
                tell(&sink, notice);
            }
        })
    }

    /// Subscribes, and pings the server now and then.
    async fn keep_subscribed(
        &self,
        connection: &Connection,
        was_subscribed: &mut bool,
    ) -> Result<Infallible, NodeError> {
        self.within_time(self.begin(connection)).await?;
        *was_subscribed = true;
        tell(&self.sink, Notice::Listening);
        let mut wanted = self.followed.watch();
        let mut subscribed_to = Channels::new();
        let mut next_ping = Instant::now() + PING_EVERY;
        loop {
            let now_wanted = wanted.borrow_and_update().clone();
            let switch = self.switch(connection, &subscribed_to, &now_wanted);
            self.within_time(switch).await?;
            subscribed_to = now_wanted;
            tokio::select! {
                biased;
                // It ends with the node, and so does this task.
                Ok(()) = wanted.changed() => continue,
                () = sleep_until(next_ping) => {}
            }
            next_ping = Instant::now() + PING_EVERY;
            let ping = Cmd::new("PING");
            self.within_time(unless_refused(connection.send(&ping)))
                .await?;
        }
    }

    /// Subscribes to the client's own channel.
    async fn begin(&self, connection: &Connection) -> Result<(), NodeError> {
        // Before the subscription: a connection that has subscribed may no longer send it.
        let introduction = handshake::introduction();
        let introduced = join_all(introduction.iter().map(|cmd| connection.send(cmd)));
        let subscribed = async {
            match &self.scope {
                Scope::Everywhere { channel } => {
                    switch_one(connection, self.scope.subscribe(), channel).await
                }
                Scope::Shard => Ok(()),
            }
        };
        let (_, subscribed) = join(introduced, subscribed).await;
        subscribed.map_err(|error| fault::node_error(&error))
    }

    /// Subscribes to the new channels, and unsubscribes from the old ones.
    async fn switch(
        &self,
        connection: &Connection,
        subscribed_to: &Channels,
        wanted: &Channels,
    ) -> Result<(), NodeError> {
        // All at once: after a reconnect there may be many.
        let old = subscribed_to
            .keys()
            .filter(|old| !wanted.contains_key(*old));
        let old = old.map(|channel| {
            // Messages that still arrive concern no waiter.
            unless_refused(switch_one(connection, self.scope.unsubscribe(), channel))
        });
        let new = wanted
            .iter()
            .filter(|(new, _)| !subscribed_to.contains_key(*new));
        let new = new.map(async |(channel, (name, _))| {
            match switch_one(connection, self.scope.subscribe(), channel).await {
                Ok(()) => match self.scope {
                    // Earlier messages were missed.
                    Scope::Everywhere { .. } => tell(&self.sink, Notice::Freed(name.clone())),
                    // They came on the client's own channel.
                    Scope::Shard => {}
                },
                // A user who may not subscribe polls, as for any foreign client.
                Err(error) if fault::is_answer(&error) => {
                    tracing::debug!(node = self.label, channel, %error, "cannot subscribe");
                }
                Err(error) => return Err(fault::node_error(&error)),
            }
            Ok(())
        });
        try_join(try_join_all(old), try_join_all(new)).await?;
        Ok(())
    }

    async fn within_time<T>(
        &self,
        answer: impl Future<Output = Result<T, NodeError>>,
    ) -> Result<T, NodeError> {
        let limit = self.connect_timeout;
        let answer = timeout(limit, answer).await;
        answer.unwrap_or(Err(NodeError::Timeout(limit)))
    }
}

fn tell(sink: &Weak<dyn WakeSink>, notice: Notice) {
    if let Some(sink) = sink.upgrade() {
        sink.notify(notice);
    }
}

/// A server that refuses is still up.
async fn unless_refused<T>(answer: impl Future<Output = RedisResult<T>>) -> Result<(), NodeError> {
    match answer.await {
        Err(error) if !fault::is_answer(&error) => Err(fault::node_error(&error)),
        _ => Ok(()),
    }
}

/// `SUBSCRIBE`, `UNSUBSCRIBE` or their like for one channel, confirmed by the server.
async fn switch_one(connection: &Connection, command: &str, channel: &str) -> RedisResult<()> {
    let mut cmd = Cmd::new(command);
    let answer = connection.send(cmd.arg(channel)).await?;
    if let Value::Array(items) = &answer
        && let [Value::BulkString(done), Value::BulkString(whose), _] = items.as_slice()
        && done.eq_ignore_ascii_case(command.as_bytes())
        && whose == channel.as_bytes()
    {
        return Ok(());
    }
    // Not a refusal: this connection cannot be trusted.
    Err(io::Error::new(io::ErrorKind::InvalidData, "unexpected reply").into())
}

/// A published message: for this client, or for all waiters of a followed lock.
fn read(Message { channel, payload }: Message<'_>, followed: &Followed) -> Option<Notice> {
    match channel.starts_with(OUR_CHANNELS.as_bytes()) {
        true => wake_up(payload).map(Notice::Wake),
        false => followed.lock_of(channel).map(Notice::Freed),
    }
}

/// A place: 1 for the head of the queue, or 0 if the lock is released on every node; 2 for the next one. Then
/// the number of the released slot between colons, if any; and the ticket.
fn wake_up(payload: &[u8]) -> Option<Wake> {
    let text = std::str::from_utf8(payload).ok()?;
    let (place, rest) = text.split_at_checked(1)?;
    let (first, everywhere) = match place {
        "0" => (true, true),
        "1" => (true, false),
        "2" => (false, false),
        _ => return None,
    };
    let (slot, ticket) = match rest.strip_prefix(':') {
        Some(rest) => {
            let (slot, ticket) = rest.split_once(':')?;
            (Some(slot.parse().ok()?), ticket)
        }
        None => (None, rest),
    };
    let ticket = TicketId::reported(ticket);
    Some(Wake {
        ticket,
        first,
        everywhere,
        slot,
    })
}
