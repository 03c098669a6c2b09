//! [`Background`]: the thread that lives for one blocking client, and how other threads work with
//! it.
//!
//! It drives connections, timers, renewal and releases. A call itself is polled by the thread that
//! makes it, which sleeps in between: so a call borrows what it likes, ends nobody else when it
//! panics, and costs no way to another thread where there is nothing to wait for.

use std::pin::pin;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::runtime::{self, Handle};
use tokio::sync::oneshot;
use tokio::task::coop::unconstrained;
use tokio::time::timeout;

use crate::client::Client;
use crate::error::Error;

/// How long releases may still take after the last client and the last lease are gone. What has not
/// reached its node by then ends by its TTL.
const LAST_RELEASES: Duration = Duration::from_secs(2);

/// The thread, for as long as a client or a lease needs it. Nothing ever waits for its end.
pub(super) struct Background {
    runtime: Handle,
    thread: JoinHandle<()>,
    /// The process in which the thread runs.
    process: u32,
    /// Dropping it ends the thread.
    _needed: oneshot::Sender<()>,
}

impl Background {
    /// Starts the thread, and on it the client.
    pub(super) fn start(
        opening: impl Future<Output = Result<Client, Error>> + Send + 'static,
    ) -> Result<(Client, Arc<Self>), Error> {
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            // Those that look up addresses; the thread itself is ours.
            .thread_name("fencepost-dns")
            .build()
            .map_err(not_started)?;
        let handle = runtime.handle().clone();
        let (opened, outcome) = sync_channel(1);
        let (needed, not_needed) = oneshot::channel();
        let thread = thread::Builder::new()
            .name("fencepost".into())
            .spawn(move || {
                runtime.block_on(live(opening, opened, not_needed));
                // Does not wait for a look-up that hangs, as dropping it would.
                runtime.shutdown_background();
            })
            .map_err(not_started)?;
        let locks = outcome.recv().map_err(|_| no_thread(PANICKED))??;
        let background = Self {
            runtime: handle,
            thread,
            process: std::process::id(),
            _needed: needed,
        };
        Ok((locks, Arc::new(background)))
    }

    /// Carries out a call and blocks until it is done, also on a thread of another runtime.
    pub(super) fn run<T>(&self, call: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        self.check()?;
        let (bell, rung) = bell();
        // For the timers of the call.
        let _context = self.runtime.enter();
        // Unconstrained, because the share of time of a task that calls us does not come back
        // before that task returns: the call would be sent away for ever.
        let mut call = pin!(unconstrained(call));
        loop {
            if let Poll::Ready(outcome) = call.as_mut().poll(&mut Context::from_waker(&bell)) {
                return outcome;
            }
            // An error means that nobody can ring, which cannot be: `bell` is here.
            let _ = rung.recv();
        }
    }

    /// Whether a call would ever be answered.
    fn check(&self) -> Result<(), Error> {
        if std::process::id() != self.process {
            Err(no_thread(FORKED))
        } else if self.thread.is_finished() {
            Err(no_thread(PANICKED))
        } else if self.thread.thread().id() == thread::current().id() {
            Err(no_thread(OURSELVES))
        } else if Handle::try_current().is_err_and(|error| error.is_thread_local_destroyed()) {
            Err(no_thread(ENDING))
        } else {
            Ok(())
        }
    }
}

/// What the thread does.
async fn live(
    opening: impl Future<Output = Result<Client, Error>>,
    opened: SyncSender<Result<Client, Error>>,
    not_needed: oneshot::Receiver<()>,
) {
    let outcome = opening.await;
    // Only the nodes: the client itself would keep the leases' scheduler from ending.
    let coordinator = outcome
        .as_ref()
        .map(|locks| locks.core.coordinator.clone())
        .ok();
    // Whoever asked for it waits for it.
    let _ = opened.send(outcome);
    let Some(coordinator) = coordinator else {
        return;
    };
    // The error is what tells: the other end was dropped.
    let _ = not_needed.await;
    if timeout(LAST_RELEASES, coordinator.settled()).await.is_err() {
        tracing::debug!("the client ends before all its releases have been answered");
    }
}

/// Wakes a thread, without touching the one wake-up that its owner has by [`thread::park`].
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
        // Full: it has been rung and not been heard yet. Gone: the call is over.
        let _ = self.0.try_send(());
    }
}

const FORKED: &str = "it was not forked with this process; make the client after the fork";
const PANICKED: &str = "it has panicked";
const OURSELVES: &str = "this is that thread, and must not wait for itself";
const ENDING: &str = "this thread is ending, and cannot wait any more";

fn no_thread(why: impl Into<String>) -> Error {
    Error::NoThread { why: why.into() }
}

fn not_started(error: std::io::Error) -> Error {
    no_thread(format!("it cannot be started ({error})"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::memory::MemoryNode;

    fn start() -> (Client, Arc<Background>) {
        Background::start(async { Client::builder().node(MemoryNode::new()).build() }).unwrap()
    }

    fn why(outcome: Result<(), Error>) -> String {
        match outcome {
            Err(Error::NoThread { why }) => why,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_thread_that_has_ended_is_an_error_and_not_a_hang() {
        let (_locks, background) = start();
        let mut background = Arc::into_inner(background).unwrap();
        background.thread = thread::spawn(|| {});
        while !background.thread.is_finished() {
            thread::yield_now();
        }
        let outcome = background.run(std::future::pending());
        assert_eq!(why(outcome), PANICKED);
    }

    #[test]
    fn another_process_has_no_thread() {
        let (_locks, background) = start();
        let mut background = Arc::into_inner(background).unwrap();
        background.process += 1;
        assert_eq!(why(background.run(std::future::pending())), FORKED);
    }

    #[test]
    fn the_thread_itself_is_refused_instead_of_waiting_for_itself() {
        let (_locks, background) = start();
        let (tell, told) = sync_channel(1);
        let clone = background.clone();
        background.runtime.spawn(async move {
            tell.send(clone.run(std::future::pending())).unwrap();
        });
        assert_eq!(why(told.recv().unwrap()), OURSELVES);
    }

    #[test]
    fn a_panic_on_the_way_to_a_client_is_an_error() {
        let outcome = Background::start(async { panic!("as this test wants") });
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
