//! The signals that end a process, as they come to us.

use std::io;
use std::task::{Context, Poll};

use nix::sys::signal::Signal;
use tokio::signal::unix::{self, SignalKind};

/// What is passed on to the command.
const PASSED_ON: [Signal; 4] = [
    Signal::SIGINT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGQUIT,
];

/// The signals that came and have not been looked at.
pub(crate) struct Signals {
    listeners: Vec<(Signal, unix::Signal)>,
    children: unix::Signal,
}

impl Signals {
    /// Listens to what would end us, from now on. What we were started to ignore (by `nohup`, or by a shell without job
    /// control) stays ignored, by us and by the command: listening would undo it.
    pub(crate) fn listen() -> io::Result<Self> {
        let mut signals = Self {
            listeners: Vec::new(),
            children: unix::signal(SignalKind::child())?,
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
        if ignored() & bit(signal) == 0 {
            let listener = unix::signal(SignalKind::from_raw(signal as i32))?;
            self.listeners.push((signal, listener));
        }
        Ok(())
    }

    /// The next that would end us.
    pub(crate) async fn next(&mut self) -> Signal {
        std::future::poll_fn(|cx| first(&mut self.listeners, cx)).await
    }

    /// The next that is for us to see: `None` when it tells of a child.
    pub(crate) async fn next_or_child(&mut self) -> Option<Signal> {
        let Self {
            listeners,
            children,
        } = self;
        std::future::poll_fn(|cx| match first(listeners, cx) {
            Poll::Ready(signal) => Poll::Ready(Some(signal)),
            Poll::Pending => children.poll_recv(cx).map(|_| None),
        })
        .await
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
