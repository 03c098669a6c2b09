//! [`Link`]: one connection that has passed its handshake, and whether it still answers.
//!
//! It must never send a command twice, except after the one refusal that proves that nothing was
//! done. It must not cost a call a timer: whether the server has gone mute is the keeper's watch.
//!
//! `connection`: sends; `posted`: commands whose answers nobody waits for; `reply`: what a reply says.

mod connection;
mod posted;
mod reply;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::unconstrained;
use tokio::time::{sleep, timeout};

use crate::error::NodeError;
use crate::runtime::clock::{Clock, Moment};
use crate::store::ReplySlot;
use crate::store::redis::encoding::keys::{Keys, WAIT_KEY};
use crate::store::redis::encoding::plain::{self, Outcome, ServerClock};
use crate::store::redis::encoding::prepared::Prepared;
use crate::store::redis::encoding::released::{self, Released};
use crate::store::redis::encoding::scripts;
use crate::store::redis::fault;
use crate::store::redis::fault::RedisResult;
use crate::store::redis::options::RedisOptions;
use crate::store::redis::protocol::command::Cmd;
use crate::store::redis::protocol::value::Value;
use crate::store::redis::protocol::wire::Urgency;
use crate::store::redis::voting::membership::{Guard, Server};
use crate::store::redis::voting::replicas::Replicas;
use fencepost_core::lock::plain::Verdict;
use fencepost_core::lock::{Command, Holder, Reply, TicketDisposition};
use fencepost_core::quorum::membership::is_void_in_quarantine;
use fencepost_core::stored::Stored;
use fencepost_core::value::AttemptValue;

pub(crate) use connection::Connection;
pub(crate) use posted::Posted;
pub(crate) use reply::given_up;
use reply::{urgency, usual_reply};

/// The maximum number of calls in flight. More are refused: a call that waited for room would be sent
/// when its caller polls again, and later calls could overtake it.
pub(crate) const MOST_IN_FLIGHT: usize = 1 << 20;

/// What is left of a quarantine whose time is over, until it is lifted.
const SOON: Duration = Duration::from_millis(1);

/// Why a command is not sent again when it is no longer known whether it was released meanwhile.
pub(crate) const TOO_LATE: &str =
    "script cache was flushed while this command was in flight; retry";

/// One connection that has passed its handshake.
pub(crate) struct Link {
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
    pub(crate) fn new(connection: Connection, quarantine: Option<Moment>, now: Moment) -> Self {
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
    pub(crate) fn quarantine_left(&self, clock: &dyn Clock) -> Option<Duration> {
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

    /// The server's marker is watched: the owner of the link must run
    /// [`until_forgotten`](Self::until_forgotten).
    pub(crate) fn guarded(self, guard: Guard) -> Self {
        let is_held_back = self.quarantine.load(Ordering::Relaxed) != 0;
        Self {
            is_held_back: AtomicBool::new(is_held_back),
            guard: Some(guard),
            ..self
        }
    }

    /// A vote counts only once replicas have it.
    pub(crate) fn waiting_for(self, replicas: Replicas) -> Self {
        Self {
            replicas: Some(replicas),
            ..self
        }
    }

    /// Locks are acquired by plain commands where that can be, on a server whose time this is.
    pub(crate) fn by_plain_commands(self, server: Arc<ServerClock>) -> Self {
        Self {
            plain: Some(server),
            ..self
        }
    }

    /// No vote counts any more whose reply has not been handed out.
    pub(crate) fn revoke(&self) {
        if let Some(guard) = &self.guard {
            guard.revoke();
        }
    }

    /// Resolves when the server has forgotten, or may not vote any more.
    pub(crate) async fn until_forgotten(
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
    pub(crate) async fn carry_out(
        &self,
        command: &Prepared,
        clock: &dyn Clock,
    ) -> Result<Reply, NodeError> {
        if !command.command.is_vote() {
            return self.perform(command, clock).await;
        }
        if let Some(why) = self.guard.as_ref().and_then(Guard::refusal) {
            return Err(why);
        }
        let reply = self.perform(command, clock).await?;
        if let Some(replicas) = self.replicas.as_ref().filter(|_| reply.holds()) {
            self.confirm_by(replicas, WAIT_KEY).await?;
        }
        self.confirmed(reply).await
    }

    /// Whether replicas have the vote. Where the connection that waits for them broke, this one is of no
    /// use either: both are made anew.
    pub(crate) async fn confirm_by(&self, replicas: &Replicas, key: &str) -> Result<(), NodeError> {
        let confirmed = Box::pin(replicas.confirm(key)).await;
        if let Err(NodeError::Disconnected(_)) = confirmed {
            self.broken.notify_one();
        }
        confirmed
    }

    /// The reply to a vote, if that counts.
    async fn confirmed(&self, reply: Reply) -> Result<Reply, NodeError> {
        if let Some(guard) = &self.guard {
            match guard.knows() {
                Some(counts) => counts?,
                None => Box::pin(guard.confirm(&self.connection)).await?,
            }
        }
        Ok(reply)
    }

    /// Sends a command at once, with the reply to an inbox, where nothing has to be waited for before. False if nothing
    /// was sent. For a caller that has asked whose process this is.
    pub(crate) fn post(
        self: &Arc<Self>,
        prepared: &Arc<Prepared>,
        now: Moment,
        clock: &Arc<dyn Clock>,
        slot: impl FnOnce() -> ReplySlot,
    ) -> bool {
        let command = &prepared.command;
        if command.is_vote() {
            let refusal = self.guard.as_ref().and_then(Guard::refusal);
            let must_wait = self.replicas.is_some() || self.quarantine_left(&**clock).is_some();
            if must_wait || refusal.is_some() {
                return false;
            }
        }
        if self.is_full() {
            return false;
        }
        let Some((commands, count)) = self.plain_commands(prepared, now) else {
            return false;
        };
        let posted = Posted {
            before: self.released.count(),
            number: self.begins(),
            link: Arc::clone(self),
            prepared: Arc::clone(prepared),
            clock: Arc::clone(clock),
            slot: Some(slot()),
        };
        if let Command::Release { value, .. } = command {
            self.released.note(value);
        }
        let usual = plain::usual_answers(count);
        self.connection.0.post(commands, count, usual, posted);
        true
    }

    /// The plain commands for it, if there are any and the server may be sent them.
    fn plain_commands<'p>(&self, prepared: &'p Prepared, now: Moment) -> Option<(&'p [u8], usize)> {
        let server = self.plain.as_ref()?;
        let suits = plain::suits(&prepared.command, server.at(now));
        suits.then(|| prepared.plain())?
    }

    /// Whether no more calls may be in flight.
    fn is_full(&self) -> bool {
        let answered = self.answered.load(Ordering::SeqCst);
        let open = self.sent.load(Ordering::SeqCst).saturating_sub(answered);
        open >= MOST_IN_FLIGHT as u64
    }

    /// When the server last answered.
    pub(crate) fn seen_alive(&self) -> Moment {
        Moment::from_start(Duration::from_nanos(
            self.seen_alive.load(Ordering::Relaxed),
        ))
    }

    /// Carries out one command.
    pub(crate) async fn perform(
        &self,
        prepared: &Prepared,
        clock: &dyn Clock,
    ) -> Result<Reply, NodeError> {
        let quarantine = self.quarantine_left(clock);
        self.perform_in(quarantine, prepared, clock).await
    }

    /// The same where the lock's own quarantine is known.
    pub(crate) async fn perform_in(
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
        if self.is_full() {
            let why = format!("{MOST_IN_FLIGHT} calls are in flight already");
            return Err(NodeError::Unreachable(why));
        }
        let before = self.released.count();
        let plain = self.plain_commands(prepared, clock.now());
        if let Command::Release { value, .. } = command {
            self.released.note(value);
        }
        let Some((commands, count)) = plain else {
            return self.by_script(quarantine, prepared, before, clock).await;
        };
        let wire = &self.connection.0;
        let sending = wire.send_encoded(commands, count, Urgency::Now);
        let answers = self.counted(sending, clock).await;
        let answers = answers.map_err(|error| fault::node_error(&error))?;
        match plain::is_usual(command, &answers) {
            true => Ok(usual_reply(command)),
            false => Box::pin(self.unusual(prepared, &answers, before, clock)).await,
        }
    }

    /// What other answers than the usual ones to plain commands come to; `before` is how many releases there were
    /// before them.
    async fn unusual(
        &self,
        prepared: &Prepared,
        answers: &Value,
        before: u64,
        clock: &dyn Clock,
    ) -> Result<Reply, NodeError> {
        if plain::is_no_script(answers) {
            // For the next ones. That it did not work shows there.
            let load = scripts::load_short(&prepared.command);
            let _ = self.send(&load, clock).await;
        }
        if let Command::Release { .. } = prepared.command {
            return self.by_script(None, prepared, before, clock).await;
        }
        let outcome = plain::read(&prepared.command, answers);
        self.plain_reply(prepared, outcome, before, clock).await
    }

    /// Carries out one command by its script; `before` is how many releases there were before it.
    async fn by_script(
        &self,
        quarantine: Option<Duration>,
        prepared: &Prepared,
        before: u64,
        clock: &dyn Clock,
    ) -> Result<Reply, NodeError> {
        let command = &prepared.command;
        let sending = self.connection.send_script(prepared, urgency(command));
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
            (reply, Some(left)) if is_void_in_quarantine(&reply, command.is_vote()) => {
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
            Outcome::Decided(Verdict::Granted) => Ok(usual_reply(command)),
            Outcome::Decided(Verdict::NotRaised) => Ok(Reply::NotRaised(*proposed)),
            Outcome::Held(Stored { value, token }) if !prepared.needs_expiry => {
                Ok(Reply::Held(Holder {
                    value,
                    token,
                    remaining: None,
                }))
            }
            Outcome::Held(Stored { value, token }) => {
                let mut pttl = Cmd::new("PTTL");
                let left = self.send(pttl.arg(&keys.lock), clock).await;
                let left = left.map_err(|error| fault::node_error(&error))?;
                Ok(Reply::Held(Holder {
                    value,
                    token,
                    remaining: plain::remaining(&left),
                }))
            }
            Outcome::Failed { error, is_taken } => match is_taken {
                true => match self.undo_acquire(keys, value, clock).await {
                    // Whether it was released is not known, which matters more.
                    Err(lost) if lost.is_uncertain() => Err(lost),
                    _ => Err(error),
                },
                false => Err(error),
            },
            Outcome::Decided(Verdict::Tombstoned) => {
                self.undo_acquire(keys, value, clock).await?;
                Ok(Reply::Tombstoned)
            }
            Outcome::Decided(verdict) => {
                if verdict == (Verdict::AskScript { is_taken: true }) {
                    self.undo_acquire(keys, value, clock).await?;
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
            // Which of the two came first cannot be told.
            self.undo_acquire(&prepared.keys, value, clock).await?;
            return Ok(None);
        }
        Ok(Some(answer))
    }

    pub(crate) async fn undo_acquire(
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
            is_lease: false,
        };
        let mut sent = self.send(&scripts::by_digest(&release, keys), clock).await;
        if sent.as_ref().is_err_and(fault::is_no_script) {
            sent = self.send(&scripts::by_source(&release, keys), clock).await;
        }
        sent.map(|_| ()).map_err(|error| fault::node_error(&error))
    }

    /// Sends one command and waits for its answer.
    pub(crate) async fn send(&self, cmd: &Cmd, clock: &dyn Clock) -> RedisResult<Value> {
        self.counted(self.connection.send(cmd), clock).await
    }

    /// Notes that something was sent, and when it was answered.
    async fn counted(
        &self,
        sending: impl Future<Output = RedisResult<Value>>,
        clock: &dyn Clock,
    ) -> RedisResult<Value> {
        let number = self.begins();
        // Unconstrained, so that the first poll always sends the command: a task whose
        // turn is over would otherwise send it after a command that came later.
        let answer = unconstrained(sending).await;
        if answer.as_ref().err().is_none_or(fault::is_answer) {
            self.note_answer(number, clock.now());
        } else {
            self.broken.notify_one();
        }
        answer
    }

    /// Notes that something is sent. Its number.
    fn begins(&self) -> u64 {
        let number = self.sent.fetch_add(1, Ordering::SeqCst) + 1;
        if self.watch_is_idle.load(Ordering::SeqCst)
            && self.watch_is_idle.swap(false, Ordering::SeqCst)
        {
            self.activity.notify_one();
        }
        number
    }

    fn note_answer(&self, number: u64, now: Moment) {
        self.answered.fetch_max(number, Ordering::SeqCst);
        self.seen_alive.fetch_max(nanos(now), Ordering::Relaxed);
    }

    /// What grows while the server answers.
    fn progress(&self) -> u64 {
        self.connection.0.answers()
    }

    /// Resolves when the connection is of no use any more, with the reason: it broke under a call,
    /// or it has left a command and then a PING unanswered, and answered nothing else meanwhile.
    ///
    /// However many calls were dropped, this sends at most one PING in half a `limit`, and none
    /// while later calls are answered.
    pub(crate) async fn until_useless(&self, limit: Duration, clock: &dyn Clock) -> NodeError {
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
            match timeout(limit, self.connection.send(&Cmd::new("PING"))).await {
                Ok(answer) if answer.as_ref().err().is_none_or(fault::is_answer) => {
                    self.note_answer(mark, clock.now());
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

fn disconnected(why: &str) -> NodeError {
    NodeError::Disconnected(why.to_owned())
}

fn nanos(moment: Moment) -> u64 {
    u64::try_from(moment.since_start().as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
