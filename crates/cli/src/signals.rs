//! The signals that end a process, as they come to us.

use std::io;
use std::task::{Context, Poll};

use nix::sys::signal::{Signal, raise};
use tokio::signal::unix::{self, SignalKind};

use crate::orphans;

/// What is passed on to the command.
const PASSED_ON: [Signal; 4] = [
    Signal::SIGINT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGQUIT,
];

/// What tells us that nothing more is to be begun. Not HUP, by which daemons are told to read their
/// settings again.
const ENDING: [Signal; 3] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGQUIT];

/// The signals that came and have not been looked at.
pub(crate) struct Signals {
    listeners: Vec<(Signal, unix::Signal)>,
    children: unix::Signal,
    told_to_end: bool,
}

impl Signals {
    /// Listens to what would end us, from now on. What we were started to ignore (by `nohup`, or by
    /// a shell without job control) stays ignored, by us and by the command: listening would undo it.
    pub(crate) fn listen() -> io::Result<Self> {
        let mut signals = Self {
            listeners: Vec::new(),
            children: unix::signal(SignalKind::child())?,
            told_to_end: false,
        };
        for signal in PASSED_ON {
            signals.add(signal)?;
        }
        Ok(signals)
    }

    /// Listens to ^Z too.
    pub(crate) fn listen_to_stop(&mut self) -> io::Result<()> {
        self.add(Signal::SIGTSTP)
    }

    fn add(&mut self, signal: Signal) -> io::Result<()> {
        let is_new = self.listeners.iter().all(|(known, _)| *known != signal);
        if is_new && ignored() & bit(signal) == 0 {
            let listener = unix::signal(SignalKind::from_raw(signal as i32))?;
            self.listeners.push((signal, listener));
        }
        Ok(())
    }

    /// Whether one has come after which nothing more is to be begun.
    pub(crate) fn told_to_end(&self) -> bool {
        self.told_to_end
    }

    /// The next that would end us, while there is no command. ^Z stops us, as long as there is
    /// nothing but us to stop. Orphans that became our children are reaped.
    pub(crate) async fn next(&mut self) -> Signal {
        loop {
            match self.next_or_child().await {
                // It cannot fail.
                Some(Signal::SIGTSTP) => drop(raise(Signal::SIGSTOP)),
                Some(signal) => return signal,
                None => drop(orphans::reap(|_| false)),
            }
        }
    }

    /// The next that is for us to see: `None` when it tells of a child.
    pub(crate) async fn next_or_child(&mut self) -> Option<Signal> {
        std::future::poll_fn(|cx| match self.poll(cx) {
            Poll::Ready(signal) => Poll::Ready(Some(signal)),
            Poll::Pending => self.children.poll_recv(cx).map(|_| None),
        })
        .await
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Signal> {
        let came = first(&mut self.listeners, cx);
        if let Poll::Ready(signal) = came {
            self.told_to_end |= ENDING.contains(&signal);
        }
        came
    }
}

fn first(listeners: &mut [(Signal, unix::Signal)], cx: &mut Context<'_>) -> Poll<Signal> {
    for (signal, listener) in listeners {
        if listener.poll_recv(cx).is_ready() {
            return Poll::Ready(*signal);
        }
    }
    Poll::Pending
}

fn bit(signal: Signal) -> u64 {
    1 << (signal as u32 - 1)
}

/// The set of signals that this process ignores, as far as the system tells: asking it directly
/// takes `unsafe`.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let set = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok())
        .unwrap_or(0)
}
