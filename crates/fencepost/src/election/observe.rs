//! [`Observer`]: a stream of leaders.
//!
//! It polls and does not enqueue: the head of the queue is woken to acquire the lock, and an observer
//! there would delay the candidates.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::stream::{Stream, StreamExt, unfold};
use tokio::time::{Instant, sleep_until};

use super::{Leader, view};
use crate::driver::shared::Shared;
use crate::inspect::look::look;
use fencepost_core::name::LockName;
use fencepost_core::value::AttemptValue;

/// The default maximum interval between two polls.
pub(super) const PACE: Duration = Duration::from_millis(500);
/// The allowed range of intervals.
const FASTEST: Duration = Duration::from_millis(10);
const SLOWEST: Duration = Duration::from_secs(24 * 60 * 60);

/// A stream of leaders: see [`Election::observe`](super::Election::observe).
///
/// # What is promised
/// - It yields the current leader first, then each new leader *once*.
/// - Tokens only grow: no leader is yielded again, and none that led before one already yielded.
/// - A leader is yielded within one poll of its election, if it still leads then. A shorter term may
///   be skipped, and so may all but the latest leader while the stream is not polled: nothing is
///   buffered.
/// - It yields nothing while there is no leader, or while fewer than a majority of the nodes answer.
///   It never ends by itself.
///
/// A leader may have resigned or died since: let the resource check the token. If nodes have lost
/// their data, a leader whose token is below an earlier one is not yielded.
///
/// It also implements [`Stream`]:
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), fencepost::Error> {
/// # let locks = fencepost::Client::memory()?;
/// use futures_util::StreamExt;
///
/// let election = locks.election("scheduler");
/// let _leadership = election.campaign("10.0.0.7:8080").await?;
/// let addresses = election.observe()?.map(|leader| leader.value);
/// # let first: Vec<String> = addresses.take(1).collect().await;
/// # assert_eq!(first, ["10.0.0.7:8080"]);
/// # Ok(()) }
/// ```
pub struct Observer {
    leaders: Pin<Box<dyn Stream<Item = Leader> + Send>>,
}

struct Watch {
    shared: Arc<Shared>,
    name: LockName,
    pace: Duration,
    next_look: Instant,
    last: Option<(AttemptValue, Leader)>,
}

impl Observer {
    pub(super) fn new(shared: Arc<Shared>, name: LockName, pace: Duration) -> Self {
        let watch = Watch {
            shared,
            name,
            pace: pace.clamp(FASTEST, SLOWEST),
            next_look: Instant::now(),
            last: None,
        };
        let leaders = unfold(watch, |mut watch| async move {
            let leader = watch.next().await;
            Some((leader, watch))
        });
        Self {
            leaders: Box::pin(leaders),
        }
    }

    /// Waits for the next leader. It may be dropped at any time without missing a leader.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), fencepost::Error> {
    /// # let locks = fencepost::Client::memory()?;
    /// # let election = locks.election("scheduler");
    /// # let _leadership = election.campaign("a").await?;
    /// let mut observer = election.observe()?;
    /// loop {
    ///     let leader = observer.next().await;
    ///     println!("{} leads with token {}", leader.value, leader.token);
    /// #   break;
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn next(&mut self) -> Leader {
        match self.leaders.next().await {
            Some(leader) => leader,
            // The stream never ends.
            None => std::future::pending().await,
        }
    }
}

impl Watch {
    async fn next(&mut self) -> Leader {
        loop {
            sleep_until(self.next_look).await;
            // Measured from the start of one poll to the start of the next, so that a slow node
            // does not stretch the interval.
            self.next_look = Instant::now() + self.shared.coordinator.spread(self.pace);
            if let Some(leader) = self.look().await {
                return leader;
            }
        }
    }

    /// Polls once: is there a new leader?
    async fn look(&mut self) -> Option<Leader> {
        let shared = &self.shared;
        let quorum = shared.coordinator.quorum;
        let names = std::slice::from_ref(&self.name);
        let seen = look(shared, names, |answers| view::is_clear(quorum, answers)).await;
        let last = self.last.as_ref();
        let newest = last.map(|(_, leader)| leader.token);
        let (value, leader) = view::leader(quorum, &seen[0], newest)?;
        if last.is_some_and(|(known, _)| *known == value) {
            return None;
        }
        self.last = Some((value, leader.clone()));
        Some(leader)
    }
}

impl Stream for Observer {
    type Item = Leader;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Leader>> {
        self.leaders.as_mut().poll_next(cx)
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer").finish_non_exhaustive()
    }
}
