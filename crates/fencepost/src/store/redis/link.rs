//! [`Link`]: one connection that has passed its handshake, and whether it still answers.
//!
//! It must never send a command twice, except after the one refusal that proves that nothing was
//! done. It must not cost a call a timer: whether the server has gone mute is the keeper's watch.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisError, RedisResult, Value};
use tokio::sync::Notify;
use tokio::task::unconstrained;
use tokio::time::{sleep, timeout};

use super::keys::Keys;
use super::membership::{Guard, Server};
use super::options::RedisOptions;
use super::released::{self, Released};
use super::replicas::Replicas;
use super::wire::{Urgency, Wire};
use super::{fault, scripts};
use crate::error::NodeError;
use crate::runtime::clock::{Clock, Moment};
use fencepost_core::lock::{Command, Reply, TicketDisposition};
use fencepost_core::value::AttemptValue;

/// How many calls may be on their way. More are refused: a call that waited for room would be sent
/// when its caller polls again, and those behind it could overtake it. WaitRegistry is made when it is
/// needed.
pub(super) const MOST_IN_FLIGHT: usize = 1 << 20;

/// What is left of a quarantine whose time is over, until it is lifted.
const SOON: Duration = Duration::from_millis(1);

/// Why a command is not sent again, of which nobody knows any more whether it was given back.
const TOO_LATE: &str = "it had lost its scripts, and too much has been sent since; try again";

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
        self.send_when(cmd, Urgency::Now).await
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

    /// The same, for a command that another may follow at once.
    async fn send_when(&self, cmd: &Cmd, urgency: Urgency) -> RedisResult<Value> {
        let answer = match self {
            Self::Ours(wire) => wire.send(cmd, urgency).await,
            Self::Given(connection) => connection.clone().send_packed_command(cmd).await,
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
    pub(super) async fn carry_out(
        &self,
        keys: &Keys,
        command: &Command,
        clock: &dyn Clock,
    ) -> Result<Reply, NodeError> {
        if !is_vote(command) {
            return self.perform(keys, command, clock).await;
        }
        if let Some(why) = self.guard.as_ref().and_then(Guard::refusal) {
            return Err(why);
        }
        let reply = self.perform(keys, command, clock).await?;
        if let Some(replicas) = self.replicas.as_ref().filter(|_| holds(&reply)) {
            let confirmed = replicas.confirm().await;
            if let Err(NodeError::Disconnected(_)) = confirmed {
                self.broken.notify_one();
            }
            confirmed?;
        }
        if let Some(guard) = &self.guard {
            guard.confirm(&self.connection).await?;
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
        keys: &Keys,
        command: &Command,
        clock: &dyn Clock,
    ) -> Result<Reply, NodeError> {
        let quarantine = self.quarantine_left(clock);
        if let Some(left) = quarantine
            && matches!(
                command,
                Command::Acquire { .. }
                    | Command::Share { .. }
                    | Command::Steal { .. }
                    | Command::LookForTombstone { .. }
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
        let cmd = scripts::by_digest(command, keys);
        let before = self.released.count();
        if let Command::Release { value, .. } = command {
            self.released.note(value);
        }
        let mut answer = self.send_when(&cmd, urgency, clock).await;
        if answer.as_ref().is_err_and(fault::is_no_script) {
            // Once more it goes behind whatever was sent meanwhile.
            let taker = released::taker(command);
            let is_released = || match taker {
                Some(value) => self.released.has(value, before),
                None => Some(false),
            };
            match is_released() {
                Some(false) => {}
                Some(true) => return Ok(given_up(command)),
                None => return Err(NodeError::Unreachable(TOO_LATE.to_owned())),
            }
            answer = self.send(&scripts::by_source(command, keys), clock).await;
            if let Some(value) = taker
                && is_released() == Some(true)
            {
                // Nobody can tell which of the two came first.
                self.give_back(keys, value, clock).await?;
                return Ok(given_up(command));
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

    async fn give_back(
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
        let sent = self.send(&scripts::by_source(&release, keys), clock).await;
        sent.map(|_| ()).map_err(|error| fault::node_error(&error))
    }

    /// Sends one command and waits for its answer.
    pub(super) async fn send(&self, cmd: &Cmd, clock: &dyn Clock) -> RedisResult<Value> {
        self.send_when(cmd, Urgency::Now, clock).await
    }

    async fn send_when(
        &self,
        cmd: &Cmd,
        urgency: Urgency,
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
        let answer = unconstrained(self.connection.send_when(cmd, urgency)).await;
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
fn is_vote(command: &Command) -> bool {
    !matches!(
        command,
        Command::Release { .. }
            | Command::Enqueue { .. }
            | Command::Leave { .. }
            | Command::Inspect
    )
}

/// Whether the answer says that the lock is the caller's.
fn holds(reply: &Reply) -> bool {
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
fn given_up(command: &Command) -> Reply {
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
mod tests {
    use std::future::Future;
    use std::num::NonZeroU32;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    use super::super::keys::Prefix;
    use super::*;
    use crate::runtime::clock::SystemClock;
    use fencepost_core::name::LockName;
    use fencepost_core::token::FencingToken;
    use fencepost_core::ttl::Ttl;

    const NO_SCRIPT: &[u8] = b"-NOSCRIPT No matching script.\r\n";
    const RELEASED: &[u8] = b"$8\r\nreleased\r\n";

    /// A link, and the keys of a lock.
    struct Client {
        link: Link,
        keys: Keys,
    }

    impl Client {
        /// And the server's end of its connection.
        fn new() -> (Self, DuplexStream) {
            let (ours, server) = duplex(1 << 20);
            let (wire, task) = Wire::over(Box::new(ours), None);
            tokio::spawn(task);
            let link = Link::new(Connection::Ours(wire), None, SystemClock.now());
            let name = LockName::new("job").unwrap();
            let keys = Prefix::new("").unwrap().keys(&name).unwrap();
            (Self { link, keys }, server)
        }

        async fn perform(&self, command: &Command) -> Result<Reply, NodeError> {
            within_time(self.link.perform(&self.keys, command, &SystemClock)).await
        }
    }

    async fn within_time<T>(outcome: impl Future<Output = T>) -> T {
        timeout(Duration::from_secs(10), outcome).await.unwrap()
    }

    fn extend(value: &str) -> Command {
        Command::Extend {
            value: AttemptValue::reported(value),
            ttl: Ttl::new(Duration::from_secs(60)).unwrap(),
            token: FencingToken::new(1).unwrap(),
            entries: NonZeroU32::MIN,
        }
    }

    fn release(value: &str) -> Command {
        Command::Release {
            value: AttemptValue::reported(value),
            tombstone: None,
            ticket: TicketDisposition::Stays,
            follower: None,
        }
    }

    /// The server is sent this, and answers that.
    async fn exchange(server: &mut DuplexStream, cmd: &Cmd, answer: &[u8]) {
        let expected = cmd.get_packed_command();
        let mut bytes = vec![0; expected.len()];
        within_time(server.read_exact(&mut bytes)).await.unwrap();
        assert_eq!(bytes, expected, "{}", bytes.escape_ascii());
        server.write_all(answer).await.unwrap();
    }

    /// Whoever is dropped before it could give it back again would leave the lock to nobody.
    #[tokio::test]
    async fn what_was_released_is_not_even_sent_again() {
        let (client, mut server) = Client::new();
        let (taken, released) = (extend("a"), release("a"));
        let scripted = async {
            let keys = &client.keys;
            exchange(&mut server, &scripts::by_digest(&taken, keys), b"").await;
            let answers = [NO_SCRIPT, RELEASED].concat();
            exchange(&mut server, &scripts::by_digest(&released, keys), &answers).await;
        };
        let calls = async { tokio::join!(client.perform(&taken), client.perform(&released)) };
        let (outcomes, ()) = tokio::join!(calls, scripted);
        let expected = (Ok(Reply::NotHeld(None)), Ok(Reply::Released));
        assert_eq!(outcomes, expected);
        // The next that the server sees is the next command.
        let next = release("b");
        let cmd = scripts::by_digest(&next, &client.keys);
        let seen = exchange(&mut server, &cmd, RELEASED);
        let (outcome, ()) = tokio::join!(client.perform(&next), seen);
        assert_eq!(outcome, Ok(Reply::Released));
    }

    /// Nobody can tell which of the two the server had first.
    #[tokio::test]
    async fn what_is_released_while_it_is_sent_again_is_released_once_more() {
        let (client, mut server) = Client::new();
        let (taken, released) = (extend("a"), release("a"));
        let scripted = async {
            let keys = &client.keys;
            exchange(&mut server, &scripts::by_digest(&taken, keys), NO_SCRIPT).await;
            let again = scripts::by_source(&taken, keys);
            exchange(&mut server, &again, b"").await;
            let release = client.perform(&released);
            let answered = async {
                let release = scripts::by_digest(&released, keys);
                exchange(&mut server, &release, b"$8\r\nrepaired\r\n").await;
                server.write_all(RELEASED).await.unwrap();
                let once_more = scripts::by_source(&released, keys);
                exchange(&mut server, &once_more, RELEASED).await;
            };
            let (outcome, ()) = tokio::join!(release, answered);
            assert_eq!(outcome, Ok(Reply::Released));
        };
        let (outcome, ()) = tokio::join!(client.perform(&taken), scripted);
        assert_eq!(outcome, Ok(Reply::NotHeld(None)));
    }

    /// It was called given back, and a lease was lost that nobody had touched.
    #[tokio::test]
    async fn a_command_is_not_called_released_because_many_others_were() {
        let (client, mut server) = Client::new();
        let taken = extend("a");
        let others: Vec<_> = (0..2000).map(|n| release(&format!("other-{n}"))).collect();
        let releases = async {
            let releases = others.iter().map(|release| client.perform(release));
            futures_util::future::join_all(releases).await
        };
        let scripted = async {
            let keys = &client.keys;
            exchange(&mut server, &scripts::by_digest(&taken, keys), NO_SCRIPT).await;
            for release in &others {
                let release = scripts::by_digest(release, keys);
                exchange(&mut server, &release, RELEASED).await;
            }
        };
        let (outcome, _, ()) = tokio::join!(client.perform(&taken), releases, scripted);
        assert!(outcome.is_err_and(|error| !error.is_uncertain()));
    }

    /// A PING waits for its turn behind all that was sent before it. The connection was given up while
    /// one answer came after the other, because nobody waited for them any more.
    #[tokio::test(start_paused = true)]
    async fn a_server_that_is_behind_is_not_mute() {
        const LIMIT: Duration = Duration::from_secs(1);
        let (client, mut server) = Client::new();
        for _ in 0..20 {
            let command = extend("a");
            let answer = timeout(Duration::ZERO, client.perform(&command));
            assert!(answer.await.is_err());
        }
        let answers = async {
            for _ in 0..20 {
                sleep(LIMIT / 4).await;
                server.write_all(b"$8\r\nextended\r\n").await.unwrap();
            }
        };
        tokio::select! {
            biased;
            reason = client.link.until_useless(LIMIT, &SystemClock) => panic!("{reason}"),
            () = answers => {}
        }
        // Now it is.
        let useless = client.link.until_useless(LIMIT, &SystemClock);
        assert!(matches!(
            within_time(useless).await,
            NodeError::Disconnected(_)
        ));
    }
}
