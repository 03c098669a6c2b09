//! Hears what a server publishes to the waiters of one client, on a connection of its own.
//!
//! A message may be lost, and a waiter must never hang because of it: after each new connection the
//! waiters look again.
//!
//! While a waiter waits for a reentrant lock, it receives also what Redisson publishes of it, on a
//! channel for each such lock.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::{join, join_all, try_join, try_join_all};
use redis::{RedisResult, Value};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::keeper::{Pauses, Source};
use super::link::Connection;
use super::resp::News;
use super::wire::{Heard, OnNews};
use super::{fault, handshake};
use crate::error::NodeError;
use crate::store::{Listener, Notice, WakeSink};
use fencepost_core::name::LockName;
use fencepost_core::ticket::{ClientId, TicketId, Wake};

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
    /// Gone when no client listens any more.
    pub(super) ear: Weak<dyn WakeSink>,
}

/// The channel on which a client is woken.
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
        let mut pauses = Pauses::default();
        loop {
            let mut was_heard = false;
            let Err(reason) = self.listen(&mut was_heard).await;
            tracing::debug!(node = self.label, %reason, "wake-ups cannot be heard");
            if was_heard {
                pauses = Pauses::default();
            }
            // Never at once: a server that closes every connection would make a storm of them.
            pauses.skip_first();
            sleep(pauses.next()).await;
        }
    }

    /// Connects, and hands on what is heard until the connection ends, for which the error is the
    /// reason.
    async fn listen(&self, was_heard: &mut bool) -> Result<Infallible, NodeError> {
        let limit = self.connect_timeout;
        let Some(way) = self.source.locate(limit).await? else {
            // The user's connection is for commands, and there is no other.
            return std::future::pending().await;
        };
        let dial = way.dial(limit, Some(self.on_news()));
        let (connection, mut driver) = self.within_time(dial).await?;
        tokio::select! {
            biased;
            // It may know the reason better.
            end = self.keep_subscribed(&connection, was_heard) => end,
            () = driver.ended() => Err(NodeError::Disconnected("closed".to_owned())),
            reason = way.until_moved() => Err(reason),
        }
    }

    /// What the connection's task does with each message. The tasks that wait are woken by that one:
    /// a task between the two would cost every wake-up one more.
    fn on_news(&self) -> OnNews {
        let (ear, followed) = (Weak::clone(&self.ear), self.followed.clone());
        Box::new(move |heard| {
            if let Heard::News(news) = heard
                && let Some(notice) = read(news, &followed)
            {
                tell(&ear, notice);
            }
        })
    }

    /// Subscribes, and looks now and then whether the server is still there.
    async fn keep_subscribed(
        &self,
        connection: &Connection,
        was_heard: &mut bool,
    ) -> Result<Infallible, NodeError> {
        self.within_time(self.begin(connection)).await?;
        *was_heard = true;
        tell(&self.ear, Notice::Listening);
        let mut wanted = self.followed.0.subscribe();
        let mut heard = Channels::new();
        let mut next_ping = Instant::now() + PING_EVERY;
        loop {
            let now_wanted = wanted.borrow_and_update().clone();
            let switch = self.switch(connection, &heard, &now_wanted);
            self.within_time(switch).await?;
            heard = now_wanted;
            tokio::select! {
                biased;
                // It ends with the node, and so does this task.
                Ok(()) = wanted.changed() => continue,
                () = sleep_until(next_ping) => {}
            }
            next_ping = Instant::now() + PING_EVERY;
            let ping = redis::cmd("PING");
            self.within_time(unless_refused(connection.send(&ping)))
                .await?;
        }
    }

    /// Hears from now on what concerns this client.
    async fn begin(&self, connection: &Connection) -> Result<(), NodeError> {
        // Before the channel: a connection that has subscribed may not send it any more.
        let introduction = handshake::introduction();
        let introduced = join_all(introduction.iter().map(|cmd| connection.send(cmd)));
        let subscribed = switch_one(connection, "SUBSCRIBE", &self.channel);
        let (_, subscribed) = join(introduced, subscribed).await;
        subscribed.map_err(|error| fault::node_error(&error))
    }

    /// Hears from now on what is wanted, and no longer what was.
    async fn switch(
        &self,
        connection: &Connection,
        heard: &Channels,
        wanted: &Channels,
    ) -> Result<(), NodeError> {
        // All at once: after a new connection there may be many.
        let old = heard.keys().filter(|old| !wanted.contains_key(*old));
        let old = old.map(|channel| {
            // What still arrives concerns no waiter.
            unless_refused(switch_one(connection, "UNSUBSCRIBE", channel))
        });
        let new = wanted.iter().filter(|(new, _)| !heard.contains_key(*new));
        let new = new.map(async |(channel, (name, _))| {
            match switch_one(connection, "SUBSCRIBE", channel).await {
                // What was said before has been missed.
                Ok(()) => tell(&self.ear, Notice::Freed(name.clone())),
                // A user who may not hear it looks now and then, as for any foreign client.
                Err(error) if fault::is_answer(&error) => {
                    tracing::debug!(node = self.label, channel, %error, "cannot be heard");
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

fn tell(ear: &Weak<dyn WakeSink>, notice: Notice) {
    if let Some(ear) = ear.upgrade() {
        ear.hear(notice);
    }
}

/// A server that refuses is there nevertheless.
async fn unless_refused<T>(answer: impl Future<Output = RedisResult<T>>) -> Result<(), NodeError> {
    match answer.await {
        Err(error) if !fault::is_answer(&error) => Err(fault::node_error(&error)),
        _ => Ok(()),
    }
}

/// `SUBSCRIBE` or `UNSUBSCRIBE` for one channel, of which the server says that it is done.
async fn switch_one(connection: &Connection, command: &str, channel: &str) -> RedisResult<()> {
    let mut cmd = redis::cmd(command);
    let answer = connection.send(cmd.arg(channel)).await?;
    if let Value::Array(items) = &answer
        && let [Value::BulkString(done), Value::BulkString(whose), _] = items.as_slice()
        && done.eq_ignore_ascii_case(command.as_bytes())
        && whose == channel.as_bytes()
    {
        return Ok(());
    }
    // No refusal: what this connection says cannot be trusted.
    Err(io::Error::new(io::ErrorKind::InvalidData, "another answer was due").into())
}

/// What was published: to this client, or to all waiters for a lock that is followed.
fn read(News { channel, payload }: News<'_>, followed: &Followed) -> Option<Notice> {
    match channel.starts_with(OUR_CHANNELS.as_bytes()) {
        true => wake_up(payload).map(Notice::Wake),
        false => followed.lock_of(channel).map(Notice::Freed),
    }
}

/// A place, 1 or 2, the number of a slot between colons where one was released, and the ticket.
fn wake_up(payload: &[u8]) -> Option<Wake> {
    let text = std::str::from_utf8(payload).ok()?;
    let (first, rest) = match text.split_at_checked(1)? {
        ("1", rest) => (true, rest),
        ("2", rest) => (false, rest),
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
        slot,
    })
}
