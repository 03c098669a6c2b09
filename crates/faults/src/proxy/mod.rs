//! A TCP proxy in front of one server that knows where RESP messages begin and end: it loses,
//! delays and tears them, and can put another server in the place of the first.
//!
//! - `frame`: where a message ends.
//! - `rules`: what becomes of it.
//!
//! What it loses is what a network can lose: the rest of a connection, never a message from its
//! middle, which no TCP does and every client would take for an answer to the wrong question.

mod frame;
mod rules;

use std::collections::VecDeque;
use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::Handle;
use tokio::sync::watch;

use crate::random::Random;
use frame::{command_name, first_message, is_push};
pub use rules::Rules;
use rules::TicketDisposition;

/// The moment between two pieces of a torn message.
const BETWEEN_PIECES: Duration = Duration::from_micros(300);

/// How often to look whether what is held may pass.
const HELD_LOOK: Duration = Duration::from_millis(5);

/// A proxy. Dropping it closes its port and its connections.
#[derive(Debug)]
pub struct Proxy {
    shared: Arc<Shared>,
    task: tokio::task::JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    rules: Mutex<Rules>,
    random: Mutex<Random>,
    server: Mutex<PathBuf>,
    /// Connections made before the latest change of this end.
    generation: watch::Sender<u64>,
    lost: std::sync::atomic::AtomicU64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Proxy {
    /// Takes what comes to `listener` to the server with that Unix socket.
    ///
    /// # Errors
    /// When the listener cannot be used.
    pub fn start(
        listener: TcpListener,
        server: &Path,
        seed: u64,
        runtime: &Handle,
    ) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let shared = Arc::new(Shared {
            rules: Mutex::default(),
            random: Mutex::new(Random::from_seed(seed)),
            server: Mutex::new(server.to_owned()),
            generation: watch::Sender::new(0),
            lost: std::sync::atomic::AtomicU64::new(0),
        });
        let _in_runtime = runtime.enter();
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let task = runtime.spawn(accept(listener, shared.clone()));
        Ok(Self { shared, task })
    }

    /// From now on it does this.
    pub fn set(&self, rules: Rules) {
        *lock(&self.shared.rules) = rules;
    }

    /// Closes all connections.
    pub fn hang_up(&self) {
        self.shared.generation.send_modify(|number| *number += 1);
    }

    /// Puts another server in the place of the present one, and closes all connections.
    pub fn lead_to(&self, server: &Path) {
        *lock(&self.shared.server) = server.to_owned();
        self.hang_up();
    }

    /// How many replies it has lost, and how many messages it has cut or held up for what is in them.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.shared.lost.load(std::sync::atomic::Ordering::Relaxed)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.hang_up();
        self.task.abort();
    }
}

impl Shared {
    /// The rules, once they let a message pass.
    async fn rules_when(&self, pass: fn(&Rules) -> bool) -> Rules {
        loop {
            let rules = lock(&self.rules).clone();
            if pass(&rules) {
                return rules;
            }
            tokio::time::sleep(HELD_LOOK).await;
        }
    }

    fn draw<T>(&self, draw: impl FnOnce(&mut Random) -> T) -> T {
        draw(&mut lock(&self.random))
    }

    fn note_loss(&self) {
        self.lost.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
}

async fn accept(listener: tokio::net::TcpListener, shared: Arc<Shared>) {
    loop {
        let Ok((client, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(5)).await;
            continue;
        };
        let mut generation = shared.generation.subscribe();
        generation.mark_unchanged();
        let shared = shared.clone();
        tokio::spawn(async move {
            tokio::select! {
                // However it ends, both connections close.
                _ = connection(client, &shared) => {}
                _ = generation.changed() => {}
            }
        });
    }
}

/// The requests of one connection whose replies have not come yet.
#[derive(Default)]
struct Open {
    fates: Mutex<VecDeque<TicketDisposition>>,
    /// It listens to channels: its messages answer nothing.
    listens: std::sync::atomic::AtomicBool,
}

async fn connection(client: TcpStream, shared: &Shared) -> io::Result<()> {
    client.set_nodelay(true)?;
    let path = lock(&shared.server).clone();
    let server = UnixStream::connect(path).await?;
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let open = Open::default();
    let requests = async {
        let mut messages = Messages::default();
        while let Some(message) = messages.next(&mut from_client).await? {
            let rules = shared.rules_when(|rules| !rules.hold_requests).await;
            let command = command_name(&message);
            if command.ends_with("SUBSCRIBE") {
                open.listens
                    .store(true, std::sync::atomic::Ordering::SeqCst);
            }
            let fate = shared.draw(|random| rules.fate(&command, random));
            lock(&open.fates).push_back(fate);
            if let Some(by) = rules.late(&message) {
                shared.note_loss();
                tokio::time::sleep(by).await;
            }
            pass(&message, &mut to_server, &rules, shared).await?;
        }
        io::Result::Ok(())
    };
    let replies = async {
        let mut messages = Messages::default();
        let mut mute = false;
        while let Some(message) = messages.next(&mut from_server).await? {
            let rules = shared.rules_when(|rules| !rules.hold_replies).await;
            let listens = open.listens.load(std::sync::atomic::Ordering::SeqCst);
            let fate = match listens || is_push(&message) {
                true => None,
                false => lock(&open.fates).pop_front(),
            };
            if fate == Some(TicketDisposition::Mute) {
                // What a connection has lost once it never gets again.
                mute = true;
                shared.note_loss();
            }
            if fate == Some(TicketDisposition::Closed) {
                shared.note_loss();
                return Ok(());
            }
            let is_endless = fate.is_some()
                && rules
                    .endless_one_in
                    .is_some_and(|many| shared.draw(|r| r.one_in(many)));
            if is_endless {
                shared.note_loss();
                return write_endlessly(&mut to_client, shared).await;
            }
            if !mute {
                pass(&message, &mut to_client, &rules, shared).await?;
            }
        }
        io::Result::Ok(())
    };
    tokio::select! {
        ended = requests => ended,
        ended = replies => ended,
    }
}

/// A list that has no end while the rules say so, and then breaks off.
async fn write_endlessly(to: &mut (impl AsyncWriteExt + Unpin), shared: &Shared) -> io::Result<()> {
    to.write_all(b"*400000000\r\n").await?;
    let numbers = b":1\r\n".repeat(4096);
    while lock(&shared.rules).endless_one_in.is_some() {
        to.write_all(&numbers).await?;
    }
    Err(io::ErrorKind::ConnectionAborted.into())
}

async fn pass(
    message: &[u8],
    to: &mut (impl AsyncWriteExt + Unpin),
    rules: &Rules,
    shared: &Shared,
) -> io::Result<()> {
    let (hold_up, pieces, cut) = shared.draw(|random| {
        let cut = rules.cut_one_in.is_some_and(|many| random.one_in(many));
        (
            rules.hold_up(random),
            rules.pieces(message.len(), random),
            cut.then(|| random.place(message.len())),
        )
    });
    if !hold_up.is_zero() {
        tokio::time::sleep(hold_up).await;
    }
    if let Some(at) = cut {
        shared.note_loss();
        to.write_all(&message[..at]).await?;
        return Err(io::ErrorKind::ConnectionAborted.into());
    }
    let last = pieces.len().saturating_sub(1);
    let mut rest = message;
    for (i, piece) in pieces.into_iter().enumerate() {
        let (now, later) = rest.split_at(piece);
        to.write_all(now).await?;
        rest = later;
        if i < last {
            tokio::time::sleep(BETWEEN_PIECES).await;
        }
    }
    Ok(())
}

/// A stream, message by message.
#[derive(Default)]
struct Messages {
    bytes: Vec<u8>,
}

impl Messages {
    async fn next(
        &mut self,
        from: &mut (impl AsyncReadExt + Unpin),
    ) -> io::Result<Option<Vec<u8>>> {
        loop {
            if let Some(len) = first_message(&self.bytes)? {
                let rest = self.bytes.split_off(len);
                return Ok(Some(std::mem::replace(&mut self.bytes, rest)));
            }
            if from.read_buf(&mut self.bytes).await? == 0 {
                return Ok(None);
            }
        }
    }
}
