//! A second thread, while there are waiters: it notices changes of other processes, and wakes our
//! waiters whose turn it is.
//!
//! It must never write: it only reads, through a separate connection. Checking an unchanged file
//! costs a few microseconds.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

use super::holder::{Holder, HolderProcess};
use super::place::FileSpec;
use super::store::Store;
use crate::runtime::clock::Clock;
use crate::runtime::tasks;
use crate::store::WakeSink;
use crate::store::notice::{Audience, Listener};
use fencepost_core::name::LockName;
use fencepost_core::ticket::{ClientId, Wake};

/// The pauses between two checks: after a change, and when nothing has changed for a while.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(10);
/// How often the locks are checked although nothing has changed: a holder may have died.
const LOOK_ANYWAY: Duration = Duration::from_millis(50);
/// What each additional lock adds to that.
const LOOK_ANYWAY_FOR_EACH: Duration = Duration::from_millis(1);
/// How long a thread that cannot open the file waits before it retries.
const AFTER_FAILURE: Duration = Duration::from_millis(500);

/// What the worker, the watch and the node share.
#[derive(Clone)]
pub(super) struct Watch {
    audience: Audience,
    shared: Arc<Mutex<Shared>>,
    spec: FileSpec,
    clock: Arc<dyn Clock>,
    /// The process of the threads.
    pid: u32,
}

#[derive(Default)]
struct Shared {
    /// The locks that this process waits for, each with the end of its registration.
    names: HashMap<LockName, Instant>,
    /// The number of listeners.
    listeners: usize,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    pub(super) fn new(spec: FileSpec, clock: Arc<dyn Clock>) -> Self {
        Self {
            audience: Audience::default(),
            shared: Arc::default(),
            spec,
            clock,
            pid: std::process::id(),
        }
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        // A panic while it was locked cannot have left it half changed.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn listen(&self, client: &ClientId, sink: Arc<dyn WakeSink>) -> Listener {
        let heard = self.audience.join(client, sink);
        let mut shared = self.shared();
        shared.listeners += 1;
        let is_running = shared.thread.as_ref().is_some_and(|it| !it.is_finished());
        if !is_running {
            let watch = self.clone();
            // Without the thread the waiters notice their turn themselves, only later.
            shared.thread = tasks::thread("fencepost-watch", move || watch.run()).ok();
        }
        drop(shared);
        let watch = self.clone();
        Listener::until(move || {
            if std::process::id() != watch.pid {
                // Forked, perhaps while a thread that is not here had it locked.
                std::mem::forget(heard);
                return;
            }
            drop(heard);
            let mut shared = watch.shared();
            shared.listeners -= 1;
            shared.wake();
        })
    }

    /// Registers a waiter of this process for this lock until then, or renews that.
    pub(super) fn is_waited_for(&self, name: &LockName, lease: Duration) {
        let mut shared = self.shared();
        let until = Instant::now() + lease;
        if shared.names.insert(name.clone(), until).is_none() {
            shared.wake();
        }
    }

    /// Notifies the next waiters.
    pub(super) fn tell(&self, wake: Wake) {
        self.audience.tell(wake);
    }

    /// The locks to check, or `None` without listeners.
    fn names(&self) -> Option<Vec<LockName>> {
        let mut shared = self.shared();
        if shared.listeners == 0 {
            shared.thread = None;
            return None;
        }
        let now = Instant::now();
        shared.names.retain(|_, until| *until > now);
        Some(shared.names.keys().cloned().collect())
    }

    fn run(self) {
        let mut store = None;
        let mut told = HashMap::new();
        let mut version = None;
        let mut last_look = Instant::now();
        let mut pause = SHORTEST_PAUSE;
        while let Some(names) = self.names() {
            if names.is_empty() {
                told.clear();
                // A process that has it open and checks nothing would not notice that it was
                // deleted.
                store = None;
                std::thread::park();
                continue;
            }
            let Some(open) = self.open(&mut store) else {
                std::thread::park_timeout(AFTER_FAILURE);
                continue;
            };
            let Some(now) = open.version() else {
                std::thread::park_timeout(AFTER_FAILURE);
                continue;
            };
            let has_changed = version != Some(now);
            let anyway = LOOK_ANYWAY + LOOK_ANYWAY_FOR_EACH * names.len() as u32;
            if has_changed || last_look.elapsed() >= anyway {
                version = Some(now);
                last_look = Instant::now();
                for name in &names {
                    self.look(open, name, &mut told);
                }
            }
            pause = match has_changed {
                true => SHORTEST_PAUSE,
                false => (pause * 5 / 4).min(LONGEST_PAUSE),
            };
            std::thread::park_timeout(pause);
        }
    }

    fn open<'s>(&self, store: &'s mut Option<Store>) -> Option<&'s mut Store> {
        if store.is_none() {
            let us = Holder::find(HolderProcess::This).ok()?;
            *store = Store::open(self.spec.clone(), Arc::clone(&self.clock), us).ok();
        }
        store.as_mut()
    }

    /// Notifies the next waiters, once each time a lock becomes free.
    fn look(&self, store: &mut Store, name: &LockName, told: &mut HashMap<LockName, Vec<Wake>>) {
        // If the file is broken, the waiters' own commands report it.
        let next = store.next_waiters(name).unwrap_or_default();
        if told.get(name).is_some_and(|last| *last == next) {
            return;
        }
        for wake in &next {
            self.audience.tell(wake.clone());
        }
        told.insert(name.clone(), next);
    }
}

impl Shared {
    fn wake(&self) {
        if let Some(thread) = self.thread.as_ref().map(JoinHandle::thread) {
            Thread::unpark(thread);
        }
    }
}
