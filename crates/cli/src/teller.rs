//! Writes to stderr, from a thread of its own.
//!
//! A writer must never wait for a reader: between the grant of a lock and
//! the start of its command, a stderr without a reader would let the lock expire; while the command
//! runs, it would keep us from stopping it in time.

use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// What the thread is sent.
enum Said {
    Text(String),
    /// To be answered when all before it is written.
    Mark(Sender<()>),
}

/// How much may wait to be written. More than that is dropped: there has been no reader for long.
const MOST_PENDING: usize = 1000;

static TELLER: OnceLock<Option<Mutex<Sender<Said>>>> = OnceLock::new();
/// How much was sent and is not yet written.
static PENDING: AtomicUsize = AtomicUsize::new(0);

/// Has it written, some time, after all that was said before.
pub(crate) fn say(text: String) {
    if PENDING.fetch_add(1, Ordering::Relaxed) >= MOST_PENDING {
        PENDING.fetch_sub(1, Ordering::Relaxed);
        return;
    }
    if let Err(Said::Text(text)) = send(Said::Text(text)) {
        write(&text);
    }
}

/// The same, unless something else is still to be written: for what is out of date in a moment.
pub(crate) fn draw(text: String) {
    if PENDING.load(Ordering::Relaxed) == 0 {
        say(text);
    }
}

/// Returns when all is written, or the time is over.
pub(crate) fn finish(limit: Option<Duration>) {
    if TELLER.get().is_none() {
        return;
    }
    let (done, is_done) = mpsc::channel();
    if send(Said::Mark(done)).is_ok() {
        let _ = match limit {
            Some(limit) => is_done.recv_timeout(limit).ok(),
            None => is_done.recv().ok(),
        };
    }
}

/// Gives it back if there is no thread to take it.
fn send(said: Said) -> Result<(), Said> {
    let teller = TELLER.get_or_init(|| {
        let (sender, receiver) = mpsc::channel();
        let thread = std::thread::Builder::new().name("teller".into());
        let thread = thread.spawn(move || write_all(&receiver));
        thread.is_ok().then(|| Mutex::new(sender))
    });
    let Some(sender) = teller else {
        return Err(said);
    };
    let sender = sender.lock().unwrap_or_else(PoisonError::into_inner);
    sender.send(said).map_err(|unsent| unsent.0)
}

fn write_all(said: &Receiver<Said>) {
    for said in said {
        match said {
            Said::Text(text) => write(&text),
            // The caller may have gone on.
            Said::Mark(done) => drop(done.send(())),
        }
    }
}

fn write(text: &str) {
    // One write, so that lines of several processes do not mix. A terminal that was hung up must
    // not end us.
    let _ = std::io::stderr().write_all(text.as_bytes());
    PENDING.fetch_sub(1, Ordering::Relaxed);
}
