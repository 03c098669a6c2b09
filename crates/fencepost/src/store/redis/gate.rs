//! [`Gate`]: through which every call reaches the connection, and at which calls wait while one is
//! being made.
//!
//! Calls that waited are sent in the order in which they came, before any that comes later, and
//! whether or not their callers are being polled: one caller that does not look must never hold up
//! another.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};

use tokio::sync::{oneshot, watch};

use super::link::Link;
use super::prepared::Prepared;
use crate::error::NodeError;
use crate::runtime::clock::Clock;
use fencepost_core::lock::Reply;

/// How many calls may wait for one connection.
const MOST_WAITING: usize = 16 * 1024;

/// Where a node stands.
#[derive(Clone)]
pub(super) enum State {
    /// An attempt is under way that is worth waiting for.
    Connecting,
    /// It can be asked.
    Up(Arc<Link>),
    /// It cannot, for this reason.
    Down(NodeError),
}

/// Where calls and connection meet.
pub(super) struct Gate {
    /// Its lock also orders the calls: one joins the waiting under the read lock, and all of them
    /// go under the write lock that ends the wait.
    state: watch::Sender<State>,
    waiting: Mutex<VecDeque<Waiting>>,
    clock: Arc<dyn Clock>,
    /// Which process may use it: not the child of a fork.
    process: u32,
}

type Answer = oneshot::Receiver<Result<Reply, NodeError>>;

/// How a call gets in.
enum Entry {
    Straight(Arc<Link>),
    Wait(Answer),
}

struct Waiting {
    command: Arc<Prepared>,
    reply: oneshot::Sender<Result<Reply, NodeError>>,
}

impl Gate {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            state: watch::Sender::new(State::Connecting),
            waiting: Mutex::default(),
            clock,
            process: std::process::id(),
        }
    }

    /// Carries out one command, after waiting for a connection that is being made.
    pub(super) async fn call(&self, command: Arc<Prepared>) -> Result<Reply, NodeError> {
        match self.enter(&command)? {
            Entry::Straight(link) => link.carry_out(&command, &*self.clock).await,
            Entry::Wait(reply) => reply.await.unwrap_or_else(|_| Err(gone())),
        }
    }

    fn enter(&self, command: &Arc<Prepared>) -> Result<Entry, NodeError> {
        if self.process != std::process::id() {
            return Err(NodeError::Forked);
        }
        match &*self.state.borrow() {
            State::Up(link) => Ok(Entry::Straight(Arc::clone(link))),
            State::Down(reason) => Err(reason.clone()),
            State::Connecting => self.join(command).map(Entry::Wait),
        }
    }

    fn join(&self, command: &Arc<Prepared>) -> Result<Answer, NodeError> {
        let mut waiting = self.waiting();
        if waiting.len() >= MOST_WAITING {
            waiting.retain(|call| !call.reply.is_closed());
        }
        if waiting.len() >= MOST_WAITING {
            let why = format!("{MOST_WAITING} calls wait for the connection already");
            return Err(NodeError::Unreachable(why));
        }
        let (reply, answer) = oneshot::channel();
        waiting.push_back(Waiting {
            command: Arc::clone(command),
            reply,
        });
        Ok(answer)
    }

    /// A connection is being made; calls shall wait for it.
    pub(super) fn connecting(&self) {
        self.state.send_replace(State::Connecting);
    }

    /// The connection is there. On the runtime that is to carry the calls that waited.
    pub(super) fn up(&self, link: &Arc<Link>) {
        self.state.send_modify(|state| {
            for call in self.take_waiting() {
                call.send(Arc::clone(link), Arc::clone(&self.clock));
            }
            *state = State::Up(Arc::clone(link));
        });
    }

    /// There is none, for this reason.
    pub(super) fn down(&self, reason: &NodeError) {
        self.state.send_modify(|state| {
            for call in self.take_waiting() {
                // A caller that has gone does not care.
                let _ = call.reply.send(Err(reason.clone()));
            }
            *state = State::Down(reason.clone());
        });
    }

    /// The node's keeper is gone, and with it its runtime.
    pub(super) fn abandoned(&self) {
        self.down(&gone());
    }

    /// How things stand once the attempt that is under way has ended.
    pub(super) async fn settled(&self) -> Result<Arc<Link>, NodeError> {
        let mut state = self.state.subscribe();
        let settled = state
            .wait_for(|state| !matches!(state, State::Connecting))
            .await;
        match settled.as_deref() {
            Ok(State::Up(link)) => Ok(Arc::clone(link)),
            Ok(State::Down(reason)) => Err(reason.clone()),
            Ok(State::Connecting) | Err(_) => Err(gone()),
        }
    }

    /// Resolves when there is a connection.
    pub(super) async fn ready(&self) {
        let mut state = self.state.subscribe();
        // The sender is in this very gate: it cannot be gone.
        let _ = state.wait_for(|state| matches!(state, State::Up(_))).await;
    }

    fn take_waiting(&self) -> VecDeque<Waiting> {
        std::mem::take(&mut *self.waiting())
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    /// Puts the command on its way, unless its caller has given it up.
    fn send(self, link: Arc<Link>, clock: Arc<dyn Clock>) {
        let Self { command, reply } = self;
        if reply.is_closed() {
            return;
        }
        let mut exchange = Box::pin(async move {
            let answer = link.carry_out(&command, &*clock).await;
            let _ = reply.send(answer);
        });
        // The first poll puts it on its way, in the order of these calls. The task polls again,
        // which is when it asks to be woken.
        let mut context = Context::from_waker(Waker::noop());
        if exchange.as_mut().poll(&mut context).is_pending() {
            tokio::spawn(exchange);
        }
    }
}

fn gone() -> NodeError {
    NodeError::Disconnected("the runtime that kept the connection is gone".to_owned())
}
