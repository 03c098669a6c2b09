//! A process of ours: stopped, continued, killed, and gone with its handle.

use std::io;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_process};

use crate::reaper::{self, Trace, as_pid};

/// How often to look whether it has ended.
const LOOK: Duration = Duration::from_millis(5);

/// A process of ours. Dropping it kills it.
#[derive(Debug)]
pub struct Process {
    child: Child,
    trace: Trace,
}

impl Process {
    /// Starts it.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(command: &mut Command) -> io::Result<Self> {
        let child = command.spawn()?;
        let trace = Trace::of_process(child.id());
        reaper::expect(&trace);
        Ok(Self { child, trace })
    }

    /// The standard input, once.
    pub fn take_input(&mut self) -> Option<std::process::ChildStdin> {
        self.child.stdin.take()
    }

    /// Stops it in its tracks (SIGSTOP).
    ///
    /// # Errors
    /// When it is gone.
    pub fn freeze(&self) -> io::Result<()> {
        self.signal(Signal::STOP)
    }

    /// Lets it go on (SIGCONT).
    ///
    /// # Errors
    /// When it is gone.
    pub fn thaw(&self) -> io::Result<()> {
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> io::Result<()> {
        let pid = as_pid(self.child.id()).ok_or(io::ErrorKind::InvalidInput)?;
        Ok(kill_process(pid, signal)?)
    }

    /// Kills it with -9 and waits until it is gone.
    ///
    /// # Errors
    /// When it cannot be waited for.
    pub fn kill(&mut self) -> io::Result<()> {
        // It may be gone already; then there is nothing to kill.
        let _ = self.child.kill();
        self.child.wait()?;
        reaper::forget(&self.trace);
        Ok(())
    }

    /// How it ended, if it has.
    ///
    /// # Errors
    /// When it cannot be asked for.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Waits for its end, for so long.
    ///
    /// # Errors
    /// When it does not end in time.
    pub fn wait(&mut self, limit: Duration) -> io::Result<ExitStatus> {
        let end = Instant::now() + limit;
        loop {
            if let Some(status) = self.ended()? {
                return Ok(status);
            }
            if Instant::now() >= end {
                return Err(io::Error::from(io::ErrorKind::TimedOut));
            }
            std::thread::sleep(LOOK);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Nobody is left to be told that it failed.
        let _ = self.kill();
    }
}
