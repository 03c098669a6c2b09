//! How long this machine lets nobody run: what is promised by the clock can be seen only while it
//! runs us in time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

/// How often it is looked at.
const NAP: Duration = Duration::from_millis(5);

/// A thread that naps, and sees by how much too late it is woken.
pub(crate) struct Stalls {
    is_over: Arc<AtomicBool>,
    watcher: JoinHandle<Duration>,
}

impl Stalls {
    /// Looks from now on.
    pub(crate) fn watch() -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&is_over);
        let watcher = spawn(move || {
            let mut longest = Duration::ZERO;
            while !until.load(Ordering::Relaxed) {
                let start = Instant::now();
                sleep(NAP);
                longest = longest.max(start.elapsed().saturating_sub(NAP));
            }
            longest
        });
        Self { is_over, watcher }
    }

    /// The longest stall so far. It ends the watch.
    pub(crate) fn longest(self) -> Duration {
        self.is_over.store(true, Ordering::Relaxed);
        self.watcher.join().expect("it does not panic")
    }
}
