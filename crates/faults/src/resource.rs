//! What the lock guards: a set that is read, changed and written back as a whole, and refuses tokens
//! older than the newest it has seen.
//!
//! Two holders at a time would overwrite each other's items, were it not for the tokens. It writes
//! down every decision itself, at the moment of the decision, so that no client's delay can blur
//! their order.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fencepost_checks::{Event, LeaseRef, Step};
use serde::{Deserialize, Serialize};

use crate::now::now;

/// What a client asks, one line of JSON.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Question {
    /// Register a token and read the set.
    Read {
        /// The token.
        token: u64,
    },
    /// Write the set back with one item more.
    Write {
        /// Whose lease it is.
        of: LeaseRef,
        /// The token.
        token: u64,
        /// What is new in the set.
        item: u64,
        /// The whole set.
        items: Vec<u64>,
    },
}

/// What the resource answers, one line of JSON.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The set, as it is now.
    Set(Vec<u64>),
    /// A newer token has been here.
    Refused {
        /// The newest.
        newest: u64,
    },
}

/// A resource behind a Unix socket. Its threads end with their connections.
#[derive(Debug)]
pub struct Resource {
    state: Arc<Mutex<State>>,
    socket: PathBuf,
}

#[derive(Debug, Default)]
struct State {
    newest: u64,
    items: Vec<u64>,
    events: Vec<Event>,
    refusals: usize,
    is_closed: bool,
}

impl State {
    fn decide(&mut self, question: Question) -> Answer {
        let token = match &question {
            Question::Read { token } | Question::Write { token, .. } => *token,
        };
        let accepted = token >= self.newest;
        self.newest = self.newest.max(token);
        self.refusals += usize::from(!accepted);
        if let Question::Write {
            of, item, items, ..
        } = question
        {
            let wrote = Step::Wrote {
                item,
                token,
                accepted,
            };
            self.events.push(Event::lease(now(), &of, wrote));
            if accepted {
                self.items = items;
            }
        }
        match accepted {
            true => Answer::Set(self.items.clone()),
            false => Answer::Refused {
                newest: self.newest,
            },
        }
    }
}

impl Resource {
    /// Opens it in that folder.
    ///
    /// # Errors
    /// When its socket cannot be made.
    pub fn open(folder: &Path) -> io::Result<Self> {
        let socket = folder.join("resource");
        let listener = UnixListener::bind(&socket)?;
        let state = Arc::new(Mutex::new(State::default()));
        let shared = state.clone();
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                let Ok(connection) = connection else { return };
                if lock(&shared).is_closed {
                    return;
                }
                let state = shared.clone();
                // A client that breaks off has nothing to be told.
                std::thread::spawn(move || drop(serve(&connection, &state)));
            }
        });
        Ok(Self { state, socket })
    }

    /// Where it listens.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// What it decided, and what it holds.
    #[must_use]
    pub fn testimony(&self, lock_name: &str) -> Vec<Event> {
        let state = lock(&self.state);
        let mut events = state.events.clone();
        events.push(Event::found(now(), lock_name, state.items.clone()));
        events
    }

    /// How often it has refused a token.
    #[must_use]
    pub fn refusals(&self) -> usize {
        lock(&self.state).refusals
    }
}

impl Drop for Resource {
    fn drop(&mut self) {
        lock(&self.state).is_closed = true;
        // One more connection ends the thread that waits for them.
        drop(UnixStream::connect(&self.socket));
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn serve(connection: &UnixStream, state: &Mutex<State>) -> io::Result<()> {
    let mut writer = connection;
    for line in BufReader::new(connection).lines() {
        let question = serde_json::from_str(&line?)?;
        let answer = lock(state).decide(question);
        let mut line = serde_json::to_vec(&answer)?;
        line.push(b'\n');
        writer.write_all(&line)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use fencepost_checks::{ClientId, LeaseId};

    use super::*;

    #[test]
    fn an_old_token_neither_reads_nor_writes() {
        let mut state = State::default();
        let of = LeaseRef {
            client: ClientId(1),
            lock: "job".into(),
            lease: LeaseId(1),
        };
        let write = |token, item| Question::Write {
            of: of.clone(),
            token,
            item,
            items: vec![item],
        };
        assert!(matches!(
            state.decide(Question::Read { token: 7 }),
            Answer::Set(_)
        ));
        assert!(matches!(state.decide(write(7, 1)), Answer::Set(_)));
        assert!(matches!(
            state.decide(Question::Read { token: 8 }),
            Answer::Set(_)
        ));
        let refused = state.decide(write(7, 2));
        assert!(matches!(refused, Answer::Refused { newest: 8 }));
        assert_eq!((state.items.as_slice(), state.refusals), (&[1][..], 1));
    }
}
