//! [`Pace`]: how long a connection may take until its next request is there.
//!
//! A client that renews leases keeps its connection for the time between two renewals. Closed for it after the time
//! that a request may take to be sent, the connection would break under every other renewal.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use tokio::time::{Instant, Sleep, sleep_until};

use crate::limits::Limits;

/// Whether a request of the connection is under way. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct UnderWay(Arc<AtomicBool>);

/// A request under way, until it is dropped.
pub(crate) struct Begun(UnderWay);

impl UnderWay {
    pub(crate) fn begin(&self) -> Begun {
        self.0.store(true, Ordering::Relaxed);
        Begun(self.clone())
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        self.0.0.store(false, Ordering::Relaxed);
    }
}

/// The time of one connection.
pub(crate) struct Pace {
    under_way: UnderWay,
    limits: Arc<Limits>,
    /// Whether some of the next request's head is there; or the first one is awaited.
    head_began: bool,
    /// When it began, or when something was last written.
    since: Instant,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Pace {
    pub(crate) fn new(under_way: UnderWay, limits: Arc<Limits>) -> Self {
        Self {
            under_way,
            limits,
            head_began: true,
            since: Instant::now(),
            timer: None,
        }
    }

    fn is_under_way(&self) -> bool {
        self.under_way.0.load(Ordering::Relaxed)
    }

    /// The client has sent something.
    pub(crate) fn read(&mut self) {
        if !self.head_began && !self.is_under_way() {
            self.head_began = true;
            self.since = Instant::now();
        }
    }

    /// It has taken something, or is to be answered.
    pub(crate) fn wrote(&mut self) {
        self.head_began = false;
        self.since = Instant::now();
    }

    /// There is nothing to read: an error once that has lasted for too long.
    ///
    /// While a request is under way it only sees to it that this is looked at again: behind its answer hyper reads no
    /// more before something wakes it.
    pub(crate) fn wait(&mut self, context: &mut Context<'_>) -> Poll<io::Error> {
        loop {
            let is_under_way = self.is_under_way();
            if is_under_way {
                self.wrote();
            }
            let (limit, name) = match self.head_began {
                true => (self.limits.read_timeout, "read_timeout"),
                false => (self.limits.idle_timeout, "idle_timeout"),
            };
            let end = self.since + limit;
            let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(end)));
            // A later one is set when this one is over: most connections are never idle for so long.
            if timer.deadline() > end {
                timer.as_mut().reset(end);
            }
            ready!(timer.as_mut().poll(context));
            if !is_under_way && Instant::now() >= end {
                let why = format!("no request came (limit {name})");
                return Poll::Ready(io::Error::new(io::ErrorKind::TimedOut, why));
            }
            timer.as_mut().reset(end);
        }
    }
}
