//! [`Link`]: one connection that has passed its handshake, and whether it still answers.
//!
//! It must never send a command twice, except after the one refusal that proves that nothing was
//! done. It must not cost a call a timer: whether the server has gone mute is the keeper's watch.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisError, RedisResult, Value};
use tokio::sync::Notify;
use tokio::task::unconstrained;
use tokio::time::{sleep, timeout};

use super::keys::{Keys, WAIT_KEY};
use super::membership::{Guard, Server};
use super::options::RedisOptions;
use super::plain::{self, Outcome, ServerClock};
use super::prepared::Prepared;
use super::released::{self, Released};
use super::replicas::Replicas;
use super::wire::{Urgency, Wire};
use super::{fault, scripts};
use crate::error::NodeError;
use crate::runtime::clock::{Clock, Moment};
use fencepost_core::lock::plain::Verdict;
use fencepost_core::lock::{Command, Holder, Reply, TicketDisposition};
use fencepost_core::value::{AttemptValue, Stored};

/// How many calls may be on their way. More are refused: a call that waited for room would be sent
/// when its caller polls again, and those behind it could overtake it. WaitRegistry is made when it is
/// needed.
pub(super) const MOST_IN_FLIGHT: usize = 1 << 20;

/// What is left of a quarantine whose time is over, until it is lifted.
const SOON: Duration = Duration::from_millis(1);

/// Why a command is not sent again, of which nobody knows any more whether it was given back.
pub(super) const TOO_LATE: &str =
    "it had lost its scripts, and too much has been sent since; try again";

/// A way to send commands.
#[derive(Clone)]
pub(super) enum Connection {
    /// Made by us.
    Ours(Wire),
    /// Made by the user.
    Given(MultiplexedConnection),
}

impl Connection {
    /// Sends one command when first polled, and waits for its answer. What the server refuses is an
    /// error too.
    pub(super) async fn send(&self, cmd: &Cmd) -> RedisResult<Value> {
        let answer = match self {
            Self::Ours(wire) => wire.send(cmd, Urgency::Now).await,
            Self::Given(connection) => connection.clone().send_packed_command(cmd).await,
        };
        match answer? {
            Value::ServerError(error) => Err(RedisError::from(error)),
            value => Ok(value),
        }
    }

    /// Sends two commands with nothing of anybody between them, and waits for the second's answer.
    pub(super) async fn send_behind(&self, first: &Cmd, second: &Cmd) -> RedisResult<Value> {
        let answer = match self {
            Self::Ours(wire) => wire.send_behind(first, second).await,
            Self::Given(connection) => connection.clone().send_packed_command(second).await,
        };
        match answer? {
            Value::ServerError(error) => Err(RedisError::from(error)),
            value => Ok(value),
        }
    }

    /// Sends so many commands that are encoded already, with nothing of anybody between them, and waits for
    /// their answers. What the server refuses is among these.
    async fn send_encoded(
        &self,
        commands: &[u8],
        count: usize,
        urgency: Urgency,
    ) -> RedisResult<Value> {
        match self {
            Self::Ours(wire) => wire.send_encoded(commands, count, urgency).await,
            // Only scripts are sent on it.
            Self::Given(_) => Err(std::io::Error::from(std::io::ErrorKind::Unsupported).into()),
        }
    }

    /// Sends a command by its script, and waits for its answer.
    async fn send_script(&self, command: &Prepared, urgency: Urgency) -> RedisResult<Value> {
        let answer = match self {
            Self::Ours(wire) => wire.send_encoded(command.script(), 1, urgency).await,
            Self::Given(_) => {
                let cmd = scripts::by_digest(&command.command, &command.keys);
                Box::pin(self.send(&cmd)).await
            }
        };
        match answer? {
            Value::ServerError(error) => Err(RedisError::from(error)),
            value => Ok(value),
        }
    }
}

/// One connection that has passed its handshake.
pub(super) struct Link {
    connection: Connection,
    /// Until then the server may have forgotten locks, in nanoseconds of the clock; zero when it has
    /// not.
    quarantine: AtomicU64,
    /// It does not vote before the watch has lifted it, also when the time is over: what casts no vote
    /// may change its marker.
    is_held_back: AtomicBool,
    /// Watches the server's marker, where it has one.
    guard: Option<Guard>,
    /// Where a vote counts only once replicas have it.
    replicas: Option<Replicas>,
    /// The server's time, where locks may be acquired by plain commands.
    plain: Option<Arc<ServerClock>>,
    released: Released,
    /// How many commands were sent, and the number of the latest of which an answer is known. The
    /// server answers in order, so that one answer covers all before it.
    sent: AtomicU64,
    answered: AtomicU64,
    /// When the latest answer came, in nanoseconds of the clock.
    seen_alive: AtomicU64,
    /// Set while the watch sleeps because everything is answered.
    watch_is_idle: AtomicBool,
    activity: Notify,
    /// A call found the connection broken.
    broken: Notify,
}

impl Link {
    pub(super) fn new(connection: Connection, quarantine: Option<Moment>, now: Moment) -> Self {
        Self {
            connection,
            quarantine: AtomicU64::new(quarantine.map_or(0, nanos)),
            is_held_back: AtomicBool::new(false),
            guard: None,
            replicas: None,
            plain: None,
            released: Released::default(),
            sent: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            seen_alive: AtomicU64::new(nanos(now)),
            watch_is_idle: AtomicBool::new(false),
            activity: Notify::new(),
            broken: Notify::new(),
        }
    }

    /// How long the server still does not vote.
    pub(super) fn quarantine_left(&self, clock: &dyn Clock) -> Option<Duration> {
        let until = self.quarantine.load(Ordering::Relaxed);
        if until == 0 {
            return None;
        }
        let until = Moment::from_start(Duration::from_nanos(until));
        let left = until.since(clock.now());
        match left.is_zero() {
            true => self.is_held_back.load(Ordering::SeqCst).then_some(SOON),
            false => Some(left),
        }
    }

    /// The server's marker is watched: whoever has the link must run
    /// [`until_forgotten`](Self::until_forgotten).
    pub(super) fn guarded(self, guard: Guard) -> Self {
        let is_held_back = self.quarantine.load(Ordering::Relaxed) != 0;
        Self {
            is_held_back: AtomicBool::new(is_held_back),
            guard: Some(guard),
            ..self
        }
    }

    /// A vote counts only once replicas have it.
    pub(super) fn waiting_for(self, replicas: Replicas) -> Self {
        Self {
            replicas: Some(replicas),
            ..self
        }
    }

    /// Locks are acquired by plain commands where that can be, on a server whose time this is.
    pub(super) fn by_plain_commands(self, server: Arc<ServerClock>) -> Self {
        Self {
            plain: Some(server),
            ..self
        }
    }

    /// No vote counts any more whose reply has not been handed out.
    pub(super) fn revoke(&self) {
        if let Some(guard) = &self.guard {
            guard.revoke();
        }
    }

    /// Resolves when the server has forgotten, or may not vote any more.
    pub(super) async fn until_forgotten(
        &self,
        node: &str,
        options: &RedisOptions,
        clock: &dyn Clock,
    ) -> NodeError {
        let Some(guard) = &self.guard else {
            return std::future::pending().await;
        };
        let server = Server {
            connection: &self.connection,
            options,
            tracks: guard.tracks(),
        };
        let left = || self.quarantine_left(clock);
        let votes_after = |left: Option<Duration>| {
            let until = left.map_or(0, |left| nanos(clock.now() + left));
            self.is_held_back.store(left.is_some(), Ordering::SeqCst);
            self.quarantine.store(until, Ordering::Relaxed);
        };
        guard
            .until_forgotten(node, &server, left, votes_after)
            .await
    }

    /// Carries out one command, and counts no vote of a server that has forgotten.
    ///
    /// Here and below, what is rarely waited for is boxed: the rest is small enough for the allocator to
    /// have at hand.
    pub(super) async fn carry_out(
        &self,
        command: &Prepared,
        clock: &dyn Clock,
    ) -> Result<Reply, NodeError> {
        if !is_vote(&command.command) {
            return self.perform(command, clock).await;
        }
        if let Some(why) = self.guard.as_ref().and_then(Guard::refusal) {
            return Err(why);
        }
        let reply = self.perform(command, clock).await?;
        if let Some(replicas) = self.replicas.as_ref().filter(|_| holds(&reply)) {
            let confirmed = Box::pin(replicas.confirm(WAIT_KEY)).await;
            if let Err(NodeError::Disconnected(_)) = confirmed {
                self.broken.notify_one();
            }
            confirmed?;
        }
        if let Some(guard) = &self.guard {
            match guard.knows() {
                Some(counts) => counts?,
                None => Box::pin(guard.confirm(&self.connection)).await?,
            }
        }
        Ok(reply)
    }

    /// When the server last answered.
    pub(super) fn seen_alive(&self) -> Moment {
        Moment::from_start(Duration::from_nanos(
            self.seen_alive.load(Ordering::Relaxed),
        ))
    }

    /// Carries out one command.
    pub(super) async fn perform(
        &self,
        prepared: &Prepared,
        clock: &dyn Clock,
    ) -> Result<Reply, NodeError> {
        let quarantine = self.quarantine_left(clock);
        self.perform_in(quarantine, prepared, clock).await
    }

    /// The same where the lock's own quarantine is known.
    pub(super) async fn perform_in(
        &self,
        quarantine: Option<Duration>,
        prepared: &Prepared,
        clock: &dyn Clock,
    ) -> Result<Reply, NodeError> {
        let command = &prepared.command;
        if let Some(left) = quarantine
            && matches!(
                command,
                Command::Acquire { .. }
                    | Command::Share { .. }
                    | Command::Steal { .. }
                    | Command::Raise { .. }
            )
        {
            return Err(NodeError::Quarantined(left));
        }
        let answered = self.answered.load(Ordering::SeqCst);
        let open = self.sent.load(Ordering::SeqCst).saturating_sub(answered);
        if open >= MOST_IN_FLIGHT as u64 {
            let why = format!("{MOST_IN_FLIGHT} calls are on their way already");
            return Err(NodeError::Unreachable(why));
        }
        let urgency = match command {
            // The attempt of the follower comes in the next moment.
            Command::Release {
                follower: Some(_), ..
            } => Urgency::WithNext,
            _ => Urgency::Now,
        };
        let before = self.released.count();
        if let Some(plain) = &self.plain
            && plain::suits(command, plain.at(clock.now()))
            && let Some((commands, count)) = prepared.plain()
        {
            let sending = self.connection.send_encoded(commands, count, urgency);
            let answers = self.counted(sending, clock).await;
            let answers = answers.map_err(|error| fault::node_error(&error))?;
            return match (plain::read(command, &answers), command) {
                (Outcome::Decided(Verdict::Granted), Command::Acquire { proposed, .. }) => {
                    Ok(Reply::Granted {
                        counter: *proposed,
                        evicted: None,
                    })
                }
                (outcome, _) => Box::pin(self.plain_reply(prepared, outcome, before, clock)).await,
            };
        }
        if let Command::Release { value, .. } = command {
            self.released.note(value);
        }
        let sending = self.connection.send_script(prepared, urgency);
        let mut answer = self.counted(sending, clock).await;
        if answer.as_ref().is_err_and(fault::is_no_script) {
            let cmd = scripts::by_source(command, &prepared.keys);
            match Box::pin(self.once_more(prepared, &cmd, before, clock)).await? {
                Some(again) => answer = again,
                None => return Ok(given_up(command)),
            }
        }
        let reply = answer
            .map_err(|error| fault::node_error(&error))
            .and_then(scripts::read)?;
        match (reply, quarantine) {
            // What it holds for us now it may have held for another before it forgot.
            (Reply::Extended | Reply::Repaired | Reply::Queue(_), Some(left)) => {
                Err(NodeError::Quarantined(left))
            }
            (reply, _) => Ok(reply),
        }
    }

    /// What the answers to plain commands come to; `before` is how many releases there were before them.
    async fn plain_reply(
        &self,
        prepared: &Prepared,
        outcome: Outcome,
        before: u64,
        clock: &dyn Clock,
    ) -> Result<Reply, NodeError> {
        let Prepared { keys, command, .. } = prepared;
        let Command::Acquire {
            value, proposed, ..
        } = command
        else {
            return Err(NodeError::Other("no acquire".to_owned()));
        };
        match outcome {
            Outcome::Decided(Verdict::Granted) => Ok(Reply::Granted {
                counter: *proposed,
                evicted: None,
            }),
            Outcome::Decided(Verdict::NotRaised) => Ok(Reply::NotRaised(*proposed)),
            Outcome::Held(Stored { value, token }) => {
                let mut pttl = redis::cmd("PTTL");
                let left = self.send(pttl.arg(&keys.lock), clock).await;
                let left = left.map_err(|error| fault::node_error(&error))?;
                Ok(Reply::Held(Holder {
                    value,
                    token,
                    remaining: plain::remaining(&left),
                }))
            }
            Outcome::Failed { error, is_taken } => match is_taken {
                true => match self.give_back(keys, value, clock).await {
                    // Whether it was given back is not known, which matters more.
                    Err(lost) if lost.is_uncertain() => Err(lost),
                    _ => Err(error),
                },
                false => Err(error),
            },
            Outcome::Decided(Verdict::Tombstoned) => {
                self.give_back(keys, value, clock).await?;
                Ok(Reply::Tombstoned)
            }
            Outcome::Decided(verdict) => {
                if verdict == (Verdict::AskScript { is_taken: true }) {
                    self.give_back(keys, value, clock).await?;
                }
                for cmd in [scripts::by_digest, scripts::by_source] {
                    let cmd = cmd(command, keys);
                    match self.once_more(prepared, &cmd, before, clock).await? {
                        Some(Err(error)) if fault::is_no_script(&error) => {}
                        Some(Err(error)) => return Err(fault::node_error(&error)),
                        Some(Ok(answer)) => return scripts::read(answer),
                        None => return Ok(given_up(command)),
                    }
                }
                Err(NodeError::Other("it keeps no scripts".to_owned()))
            }
        }
    }

    /// Sends a command again, by script: it goes behind whatever was sent meanwhile, and so never behind its
    /// own release. `None` when that was sent.
    async fn once_more(
        &self,
        prepared: &Prepared,
        cmd: &Cmd,
        before: u64,
        clock: &dyn Clock,
    ) -> Result<Option<RedisResult<Value>>, NodeError> {
        let taker = released::taker(&prepared.command);
        let is_released = || match taker {
            Some(value) => self.released.has(value, before),
            None => Some(false),
        };
        match is_released() {
            Some(false) => {}
            Some(true) => return Ok(None),
            None => return Err(NodeError::Unreachable(TOO_LATE.to_owned())),
        }
        let answer = self.send(cmd, clock).await;
        if let Some(value) = taker
            && is_released() == Some(true)
        {
            // Nobody can tell which of the two came first.
            self.give_back(&prepared.keys, value, clock).await?;
            return Ok(None);
        }
        Ok(Some(answer))
    }

    pub(super) async fn give_back(
        &self,
        keys: &Keys,
        value: &AttemptValue,
        clock: &dyn Clock,
    ) -> Result<(), NodeError> {
        let release = Command::Release {
            value: value.clone(),
            tombstone: None,
            ticket: TicketDisposition::Stays,
            follower: None,
        };
        let mut sent = self.send(&scripts::by_digest(&release, keys), clock).await;
        if sent.as_ref().is_err_and(fault::is_no_script) {
            sent = self.send(&scripts::by_source(&release, keys), clock).await;
        }
        sent.map(|_| ()).map_err(|error| fault::node_error(&error))
    }

    /// Sends one command and waits for its answer.
    pub(super) async fn send(&self, cmd: &Cmd, clock: &dyn Clock) -> RedisResult<Value> {
        self.counted(self.connection.send(cmd), clock).await
    }

    /// Notes that something was sent, and when it was answered.
    async fn counted(
        &self,
        sending: impl Future<Output = RedisResult<Value>>,
        clock: &dyn Clock,
    ) -> RedisResult<Value> {
        let number = self.sent.fetch_add(1, Ordering::SeqCst) + 1;
        if self.watch_is_idle.load(Ordering::SeqCst)
            && self.watch_is_idle.swap(false, Ordering::SeqCst)
        {
            self.activity.notify_one();
        }
        // Unconstrained, so that the first poll always puts the command into the line: a task whose
        // turn is over would otherwise send it after a command that came later.
        let answer = unconstrained(sending).await;
        if answer.as_ref().err().is_none_or(fault::is_answer) {
            self.note_answer(number, clock);
        } else {
            self.broken.notify_one();
        }
        answer
    }

    fn note_answer(&self, number: u64, clock: &dyn Clock) {
        self.answered.fetch_max(number, Ordering::SeqCst);
        self.seen_alive
            .fetch_max(nanos(clock.now()), Ordering::Relaxed);
    }

    /// What grows while the server answers.
    fn progress(&self) -> u64 {
        match &self.connection {
            Connection::Ours(wire) => wire.answers(),
            Connection::Given(_) => self.answered.load(Ordering::SeqCst),
        }
    }

    /// Resolves when the connection is of no use any more, with the reason: it broke under a call,
    /// or it has left a command and then a PING unanswered, and answered nothing else meanwhile.
    ///
    /// However many calls were dropped, this sends at most one PING in half a `limit`, and none
    /// while later calls are answered.
    pub(super) async fn until_useless(&self, limit: Duration, clock: &dyn Clock) -> NodeError {
        loop {
            tokio::select! {
                () = self.until_something_is_open() => {}
                () = self.broken.notified() => return disconnected("broken pipe"),
            }
            let mark = self.sent.load(Ordering::SeqCst);
            tokio::select! {
                () = sleep(limit / 2) => {}
                () = self.broken.notified() => return disconnected("broken pipe"),
            }
            if self.answered.load(Ordering::SeqCst) >= mark {
                continue;
            }
            let progress = self.progress();
            match timeout(limit, self.connection.send(&redis::cmd("PING"))).await {
                Ok(answer) if answer.as_ref().err().is_none_or(fault::is_answer) => {
                    self.note_answer(mark, clock);
                }
                Ok(_) => return disconnected("broken pipe"),
                // It has much to do before.
                Err(_) if self.progress() > progress => {}
                Err(_) => return disconnected("the server has stopped answering"),
            }
        }
    }

    async fn until_something_is_open(&self) {
        loop {
            self.watch_is_idle.store(true, Ordering::SeqCst);
            if self.sent.load(Ordering::SeqCst) > self.answered.load(Ordering::SeqCst) {
                self.watch_is_idle.store(false, Ordering::SeqCst);
                return;
            }
            self.activity.notified().await;
        }
    }
}

/// Whether the answer may be counted towards a quorum.
pub(super) fn is_vote(command: &Command) -> bool {
    !matches!(
        command,
        Command::Release { .. }
            | Command::ReleaseLease { .. }
            | Command::Enqueue { .. }
            | Command::Leave { .. }
            | Command::Inspect
    )
}

/// Whether the answer says that the lock is the caller's.
pub(super) fn holds(reply: &Reply) -> bool {
    matches!(
        reply,
        Reply::Granted { .. }
            | Reply::Raised(_)
            | Reply::NotRaised(_)
            | Reply::Extended
            | Reply::Repaired
    )
}

/// The answer to one that may take the lock, and was given back before it could.
pub(super) fn given_up(command: &Command) -> Reply {
    match command {
        Command::Extend { .. } | Command::ExtendShared { .. } => Reply::NotHeld(None),
        _ => Reply::Tombstoned,
    }
}

fn disconnected(why: &str) -> NodeError {
    NodeError::Disconnected(why.to_owned())
}

fn nanos(moment: Moment) -> u64 {
    u64::try_from(moment.since_start().as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
