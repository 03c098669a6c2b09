//! [`LinkGate`]: every call reaches the connection through it, and waits there while one is being
//! opened.
//!
//! Waiting calls are sent in order of arrival, before any later one, and whether or not their
//! callers are being polled: a caller that does not poll must never delay another.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};

use tokio::sync::{oneshot, watch};

use super::link::Link;
use crate::error::NodeError;
use crate::runtime::clock::{Clock, Moment};
use crate::runtime::tasks;
use crate::store::ReplySlot;
use crate::store::redis::address::stream::Process;
use crate::store::redis::encoding::prepared::Prepared;
use fencepost_core::lock::Reply;

/// The maximum number of calls that wait for one connection.
const MOST_WAITING: usize = 16 * 1024;

/// The state of a node.
#[derive(Clone)]
pub(crate) enum State {
    /// Connecting; calls wait for it.
    Connecting,
    /// Connected.
    Up(Arc<Link>),
    /// Down, for this reason.
    Down(NodeError),
}

/// Where calls and connection meet.
pub(crate) struct LinkGate {
    /// Its lock also orders the calls: one joins the queue under the read lock, and all of them
    /// leave under the write lock that ends the wait.
    state: watch::Sender<State>,
    waiting: Mutex<VecDeque<Waiting>>,
    clock: Arc<dyn Clock>,
    /// The process that may use it: not a forked child.
    process: Process,
}

type Answer = oneshot::Receiver<Result<Reply, NodeError>>;

/// How a call enters.
enum Entry {
    Straight(Arc<Link>),
    Wait(Answer),
}

struct Waiting {
    command: Arc<Prepared>,
    reply: oneshot::Sender<Result<Reply, NodeError>>,
}

impl LinkGate {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            state: watch::Sender::new(State::Connecting),
            waiting: Mutex::default(),
            clock,
            process: Process::this(),
        }
    }

    /// Runs one command, waiting for a connection that is being opened.
    pub(crate) async fn call(&self, command: Arc<Prepared>) -> Result<Reply, NodeError> {
        match self.enter(&command)? {
            Entry::Straight(link) => link.carry_out(&command, &*self.clock).await,
            Entry::Wait(reply) => reply.await.unwrap_or_else(|_| Err(gone())),
        }
    }

    /// Sends a command at once, with the reply to an inbox. False if nothing was sent.
    pub(crate) fn post(
        &self,
        command: &Arc<Prepared>,
        now: Moment,
        slot: impl FnOnce() -> ReplySlot,
    ) -> bool {
        let link = match &*self.state.borrow() {
            State::Up(link) => Arc::clone(link),
            _ => return false,
        };
        link.post(command, now, &self.clock, slot)
    }

    /// Refuses the child of a fork. Asked once for a command that goes to many nodes; the connection asks again
    /// before it writes.
    ///
    /// # Errors
    /// [`NodeError::Forked`].
    pub(crate) fn check_process(&self) -> Result<(), NodeError> {
        match self.process.is_this() {
            true => Ok(()),
            false => Err(NodeError::Forked),
        }
    }

    fn enter(&self, command: &Arc<Prepared>) -> Result<Entry, NodeError> {
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
            let why = format!("{MOST_WAITING} calls are already waiting for the connection");
            return Err(NodeError::Unreachable(why));
        }
        let (reply, answer) = oneshot::channel();
        waiting.push_back(Waiting {
            command: Arc::clone(command),
            reply,
        });
        Ok(answer)
    }

    /// A connection is being opened; calls wait for it.
    pub(crate) fn connecting(&self) {
        self.state.send_replace(State::Connecting);
    }

    /// Connected. Must run on the runtime that carries the waiting calls.
    pub(crate) fn up(&self, link: &Arc<Link>) {
        self.state.send_modify(|state| {
            for call in self.take_waiting() {
                call.send(Arc::clone(link), Arc::clone(&self.clock));
            }
            *state = State::Up(Arc::clone(link));
        });
    }

    /// Not connected, for this reason.
    pub(crate) fn down(&self, reason: &NodeError) {
        self.state.send_modify(|state| {
            for call in self.take_waiting() {
                // The caller may be gone.
                let _ = call.reply.send(Err(reason.clone()));
            }
            *state = State::Down(reason.clone());
        });
    }

    /// The node's keeper is gone, and so is its runtime.
    pub(crate) fn abandoned(&self) {
        self.down(&gone());
    }

    /// The state once the current connection attempt has ended.
    pub(crate) async fn settled(&self) -> Result<Arc<Link>, NodeError> {
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

    /// Resolves when connected.
    pub(crate) async fn ready(&self) {
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
    /// Sends the command, unless its caller is gone.
    fn send(self, link: Arc<Link>, clock: Arc<dyn Clock>) {
        let Self { command, reply } = self;
        if reply.is_closed() {
            return;
        }
        let mut exchange = Box::pin(async move {
            let answer = link.carry_out(&command, &*clock).await;
            let _ = reply.send(answer);
        });
        // The first poll sends it, in the order of these calls. The task polls again, which
        // registers its waker.
        let mut context = Context::from_waker(Waker::noop());
        if exchange.as_mut().poll(&mut context).is_pending() {
            tasks::spawn(exchange);
        }
    }
}

fn gone() -> NodeError {
    NodeError::Disconnected("the async runtime of the connection has shut down".to_owned())
}
