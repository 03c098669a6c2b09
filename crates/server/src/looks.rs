//! [`Looks`]: what was seen of a lock a moment ago, for all requests that wait for it here.
//!
//! Each of them looks now and then whether another attempt of its lease holds the lock. Together they
//! ask the nodes a few times a second, however many they are. So do those who ask whether the nodes answer.

use std::collections::HashMap;
use std::sync::{Arc, Mutex as StdMutex, PoisonError, Weak};
use std::time::Duration;

use fencepost::internals::Replica as _;
use fencepost::leased::Places;
use fencepost::{Client, Error, Status};
use tokio::sync::Mutex;
use tokio::time::Instant;

/// How old a look may be that is shared. Much less than the time between two looks of one request, so
/// that it never sees the same one twice.
const FRESH: Duration = Duration::from_millis(250);
/// The same for who asks whether nodes answer: that is asked by machines, and by whoever likes to.
const PROBE_FRESH: Duration = Duration::from_secs(1);
/// The lock by which it is found out whether nodes answer. Nobody acquires it.
const PROBED: &str = "fencepost-readyz";
/// Below so many names it is not worth dropping those that nobody waits for.
const FEW: usize = 1024;

/// What a look saw, or why it saw nothing.
type Seen<T> = Result<Arc<T>, Error>;
/// When a look began, and what came of it.
type Last<T> = Mutex<Option<(Instant, Seen<T>)>>;

/// Of the locks, or of who waits for them.
pub(crate) struct Looks<T = Status>(StdMutex<Names<T>>);

impl<T> Default for Looks<T> {
    fn default() -> Self {
        Self(StdMutex::new(Names {
            last: HashMap::new(),
            room: 0,
        }))
    }
}

struct Names<T> {
    last: HashMap<String, Weak<Last<T>>>,
    /// How many may be known before the unused ones are dropped.
    room: usize,
}

/// The looks at one lock, for as long as somebody waits for it.
pub(crate) struct LooksAt<T = Status> {
    name: String,
    last: Arc<Last<T>>,
}

impl<T> Looks<T> {
    pub(crate) fn at(&self, name: &str) -> LooksAt<T> {
        // A panic while it was locked cannot have left it half changed.
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let last = names.last.get(name).and_then(Weak::upgrade);
        let last = last.unwrap_or_else(|| {
            if names.last.len() >= names.room {
                names.last.retain(|_, last| last.strong_count() > 0);
                names.room = (names.last.len() * 2).max(FEW);
            }
            let last = Arc::default();
            names.last.insert(name.to_owned(), Arc::downgrade(&last));
            last
        });
        LooksAt {
            name: name.to_owned(),
            last,
        }
    }
}

/// Looks by which it is found out whether nodes answer.
pub(crate) struct Probe(LooksAt);

impl Default for Probe {
    fn default() -> Self {
        Self(LooksAt {
            name: PROBED.to_owned(),
            last: Arc::default(),
        })
    }
}

impl Probe {
    pub(crate) async fn status(&self, client: &Client) -> Seen<Status> {
        let LooksAt { name, .. } = &self.0;
        let look = async || client.status(name).await;
        self.0.shared(PROBE_FRESH, look).await
    }
}

impl LooksAt {
    /// What the nodes said a moment ago, or say now.
    pub(crate) async fn status(&self, client: &Client) -> Seen<Status> {
        self.shared(FRESH, async || client.status(&self.name).await)
            .await
    }
}

impl LooksAt<Places> {
    /// Who waited a moment ago, or waits now.
    pub(crate) async fn places(&self, client: &Client) -> Seen<Places> {
        self.shared(FRESH, async || client.places(&self.name).await)
            .await
    }
}

impl<T> LooksAt<T> {
    /// All who come while one asks take its answer, also when that is an error and however long it took: asked one
    /// after the other, nodes that do not answer would keep the last of thousands waiting for hours.
    async fn shared(
        &self,
        fresh: Duration,
        ask: impl AsyncFnOnce() -> Result<T, Error>,
    ) -> Seen<T> {
        let came = Instant::now();
        let mut last = self.last.lock().await;
        if let Some((began, seen)) = &*last
            && *began + fresh > came
        {
            return seen.clone();
        }
        let began = Instant::now();
        let seen = ask().await.map(Arc::new);
        *last = Some((began, seen.clone()));
        seen
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn names_that_nobody_waits_for_are_forgotten() {
        let looks = Looks::<Status>::default();
        let kept = looks.at("kept");
        for n in 0..10 * FEW {
            drop(looks.at(&n.to_string()));
        }
        assert!(looks.0.lock().unwrap().last.len() <= FEW);
        assert!(Arc::ptr_eq(&kept.last, &looks.at("kept").last));
    }

    #[tokio::test]
    async fn those_who_wait_for_the_same_lock_share_a_look() {
        let (client, looks) = (Client::memory().unwrap(), Looks::<Status>::default());
        let (one, two, other) = (looks.at("job"), looks.at("job"), looks.at("other"));
        let seen = one.status(&client).await.unwrap();
        assert!(Arc::ptr_eq(&seen, &two.status(&client).await.unwrap()));
        assert!(!Arc::ptr_eq(&seen, &other.status(&client).await.unwrap()));
    }

    /// Each of them asked for itself, and waited for all before it.
    #[tokio::test(start_paused = true)]
    async fn nodes_that_do_not_answer_are_asked_once_for_all_who_wait() {
        const TIMEOUT: Duration = Duration::from_millis(500);
        let (client, looks) = (Client::memory().unwrap(), Looks::<Status>::default());
        let why = client.lock("").await.unwrap_err();
        let asked = std::sync::atomic::AtomicUsize::new(0);
        let (job, start) = (looks.at("job"), Instant::now());
        let look = async || {
            asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            tokio::time::sleep(TIMEOUT).await;
            Err(why.clone())
        };
        let all = futures_util::future::join_all((0..100).map(|_| job.shared(FRESH, &look))).await;
        assert!(all.iter().all(Result::is_err));
        assert_eq!(start.elapsed(), TIMEOUT);
        assert_eq!(asked.into_inner(), 1);
    }
}
