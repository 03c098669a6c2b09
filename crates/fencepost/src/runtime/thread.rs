//! [`Background`]: the thread that drives one blocking client, and how other threads block on it.
//!
//! It drives connections, timers, renewal and releases. A call is polled by the calling thread,
//! which sleeps in between. So a call may borrow, its panic stays on its own thread, and it needs
//! no hop to another thread when there is nothing to wait for.

use std::pin::pin;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::runtime::{self, Handle};
use tokio::sync::oneshot;
use tokio::task::coop::unconstrained;
use tokio::time::timeout;

use crate::error::{Cause, Error};
use crate::runtime::tasks;

/// How long releases may take after the last client and the last lease are gone. What has not
/// reached its node by then ends by its TTL.
const LAST_RELEASES: Duration = Duration::from_secs(2);

/// The thread, for as long as a client or guard needs it. Nothing waits for its end.
pub(crate) struct Background {
    runtime: Handle,
    thread: JoinHandle<()>,
    /// The process in which the thread runs.
    process: u32,
    /// Dropping it ends the thread.
    _needed: oneshot::Sender<()>,
}

impl Background {
    /// Starts the thread, and runs `opening` on it. When the thread is no longer needed it runs
    /// what `closing` returned, for a limited time.
    pub(crate) fn start<T, C>(
        opening: impl Future<Output = Result<T, Error>> + Send + 'static,
        closing: impl FnOnce(&T) -> C + Send + 'static,
    ) -> Result<(T, Self), Error>
    where
        T: Send + 'static,
        C: Future<Output = ()> + Send,
    {
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            // For address look-ups; the thread itself is ours.
            .thread_name("fencepost-dns")
            .build()
            .map_err(not_started)?;
        let handle = runtime.handle().clone();
        let (opened, outcome) = sync_channel(1);
        let (needed, not_needed) = oneshot::channel();
        let thread = tasks::thread("fencepost", move || {
            runtime.block_on(live(opening, closing, opened, not_needed));
            // Does not wait for a hanging look-up, as dropping it would.
            runtime.shutdown_background();
        })
        .map_err(not_started)?;
        let made = outcome.recv().map_err(|_| no_thread(PANICKED))??;
        let background = Self {
            runtime: handle,
            thread,
            process: std::process::id(),
            _needed: needed,
        };
        Ok((made, background))
    }

    /// Runs a call and blocks until it is done.
    pub(crate) fn run<T>(&self, call: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        self.check()?;
        let (bell, rung) = bell();
        // For the timers of the call.
        let _context = self.runtime.enter();
        // Unconstrained: there is no task here whose budget would ever be refilled.
        let mut call = pin!(unconstrained(call));
        loop {
            if let Poll::Ready(outcome) = call.as_mut().poll(&mut Context::from_waker(&bell)) {
                return outcome;
            }
            // Cannot fail: `bell`, the sender, is alive here.
            let _ = rung.recv();
        }
    }

    /// Whether a call can be answered, and may block this thread.
    fn check(&self) -> Result<(), Error> {
        if std::process::id() != self.process {
            return Err(no_thread(FORKED));
        }
        if self.thread.is_finished() {
            return Err(no_thread(PANICKED));
        }
        match Handle::try_current() {
            Ok(_) => Err(no_thread(IN_RUNTIME)),
            Err(error) if error.is_thread_local_destroyed() => Err(no_thread(ENDING)),
            Err(_) => Ok(()),
        }
    }
}

/// The body of the thread.
async fn live<T, C: Future<Output = ()>>(
    opening: impl Future<Output = Result<T, Error>>,
    closing: impl FnOnce(&T) -> C,
    opened: SyncSender<Result<T, Error>>,
    not_needed: oneshot::Receiver<()>,
) {
    let outcome = opening.await;
    let closing = outcome.as_ref().map(closing).ok();
    // The caller waits for it.
    let _ = opened.send(outcome);
    let Some(closing) = closing else {
        return;
    };
    // The error is the signal: the other end was dropped.
    let _ = not_needed.await;
    if timeout(LAST_RELEASES, closing).await.is_err() {
        tracing::debug!("client shut down with releases still in flight");
    }
}

/// Wakes a thread without using the [`thread::park`] token of its owner.
struct Bell(SyncSender<()>);

fn bell() -> (Waker, Receiver<()>) {
    let (ring, rung) = sync_channel(1);
    (Waker::from(Arc::new(Bell(ring))), rung)
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Full: a wake-up is already pending. Disconnected: the call is over.
        let _ = self.0.try_send(());
    }
}

const FORKED: &str = "it was created before this process forked; create a client after the fork";
const PANICKED: &str = "its background thread has panicked";
const IN_RUNTIME: &str = "the thread belongs to an async runtime; await the request instead";
const ENDING: &str = "the thread is shutting down and can no longer block";
pub(crate) const NOT_BLOCKING: &str =
    "it lives on an async runtime; await the request, or make a blocking client";

pub(crate) fn no_thread(why: impl Into<String>) -> Error {
    Error::from(Cause::NoThread { why: why.into() })
}

fn not_started(error: std::io::Error) -> Error {
    no_thread(format!("cannot start its background thread ({error})"))
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn start() -> Background {
        let (_, background) = Background::start(async { Ok(()) }, |()| async {}).unwrap();
        background
    }

    fn why(outcome: Result<(), Error>) -> String {
        match outcome.unwrap_err().cause() {
            Cause::NoThread { why } => why.clone(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_thread_that_has_ended_is_an_error_and_not_a_hang() {
        let mut background = start();
        background.thread = thread::spawn(|| {});
        while !background.thread.is_finished() {
            thread::yield_now();
        }
        let outcome = background.run(std::future::pending());
        assert_eq!(why(outcome), PANICKED);
    }

    #[test]
    fn another_process_has_no_thread() {
        let mut background = start();
        background.process += 1;
        assert_eq!(why(background.run(std::future::pending())), FORKED);
    }

    #[test]
    fn a_thread_of_a_runtime_is_refused_instead_of_being_blocked() {
        let background = Arc::new(start());
        let (tell, told) = sync_channel(1);
        let clone = background.clone();
        background.runtime.spawn(async move {
            tell.send(clone.run(std::future::pending())).unwrap();
        });
        assert_eq!(why(told.recv().unwrap()), IN_RUNTIME);
        let runtime = runtime::Builder::new_current_thread().build().unwrap();
        let outcome = runtime.block_on(async { background.run(std::future::pending()) });
        assert_eq!(why(outcome), IN_RUNTIME);
    }

    #[test]
    fn a_panic_on_the_way_to_a_client_is_an_error() {
        let opening = async { panic!("as this test wants") };
        let outcome = Background::start(opening, |()| async {});
        assert_eq!(why(outcome.map(|_| ())), PANICKED);
    }

    #[test]
    fn a_bell_that_rings_before_anybody_listens_is_heard() {
        let (waker, rung) = bell();
        waker.wake_by_ref();
        waker.wake();
        assert_eq!(rung.try_recv(), Ok(()));
        assert!(rung.try_recv().is_err(), "and once is enough");
    }
}
