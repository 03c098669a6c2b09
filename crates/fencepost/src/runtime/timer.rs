//! [`BootTimer`]: a timer on the clock that deadlines are kept on.
//!
//! The runtime's timers use the monotonic clock, which stops while the machine is suspended: the
//! loss of a lease that ended meanwhile would be reported only after the rest of the timer. The
//! kernel wakes a `timerfd` on `CLOCK_BOOTTIME` as soon as the machine resumes.

use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::clock::{Moment, Timer};
use super::process::Process;

/// A `timerfd` that counts while the machine is suspended.
///
/// A forked child leaves it alone: to close it would take it out of the `epoll` that is shared with the parent, whose
/// renewer would never wake again, and to set or read it would be to do so for the parent.
pub(crate) struct BootTimer {
    /// Empty only while it is being dropped.
    file: Option<AsyncFd<OwnedFd>>,
    armed: Option<Moment>,
    process: Process,
}

impl BootTimer {
    /// `None` if the kernel has none, or the process has too many open files: the caller then polls
    /// with the runtime's timers. Needs a runtime with I/O enabled.
    pub(crate) fn new() -> Option<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let file = timerfd_create(TimerfdClockId::Boottime, flags).ok()?;
        // Deprecated for types that lie about their file; the successor needs `unsafe`, and an `OwnedFd`
        // does not lie.
        #[allow(deprecated)]
        let file = AsyncFd::with_interest(file, Interest::READABLE).ok()?;
        Some(Self {
            file: Some(file),
            armed: None,
            process: Process::this(),
        })
    }

    /// # Errors
    /// In a forked child.
    fn file(&self) -> io::Result<&AsyncFd<OwnedFd>> {
        let file = self.file.as_ref().filter(|_| self.process.is_this());
        file.ok_or_else(|| io::Error::other("the process has forked"))
    }

    fn arm(&mut self, when: Moment) -> io::Result<()> {
        let file = self.file()?;
        // Most waits are interrupted by a reply and continue to the same moment: that costs no
        // system call.
        if self.armed == Some(when) {
            return Ok(());
        }
        let since_boot = when.since_start();
        let mut at = Timespec {
            tv_sec: i64::try_from(since_boot.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: since_boot.subsec_nanos().into(),
        };
        if since_boot.is_zero() {
            // All zero would disarm it.
            at.tv_nsec = 1;
        }
        let once = Itimerspec {
            it_interval: Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            },
            it_value: at,
        };
        timerfd_settime(file, TimerfdTimerFlags::ABSTIME, &once)?;
        self.armed = Some(when);
        Ok(())
    }

    async fn wait(&mut self, when: Moment) -> io::Result<()> {
        self.arm(when)?;
        loop {
            let mut ready = self.file()?.readable().await?;
            self.file()?;
            let read = ready.try_io(|file| {
                let mut expirations = [0; 8];
                Ok(rustix::io::read(file, &mut expirations)?)
            });
            // Otherwise the readiness was that of an earlier setting.
            if let Ok(read) = read {
                self.armed = None;
                return read.map(drop);
            }
        }
    }
}

impl Drop for BootTimer {
    fn drop(&mut self) {
        if !self.process.is_this() {
            std::mem::forget(self.file.take());
        }
    }
}

impl Timer for BootTimer {
    fn until<'a>(
        &'a mut self,
        when: Moment,
    ) -> Pin<Box<dyn Future<Output = io::Result<()>> + Send + 'a>> {
        Box::pin(self.wait(when))
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::time::Duration;

    use super::*;
    use crate::runtime::clock::{Clock, SystemClock};

    /// `CLOCK_BOOTTIME`, as the kernel numbers it.
    const BOOTTIME: &str = "7";

    fn kernels_word(timer: &BootTimer, key: &str) -> String {
        let path = format!("/proc/self/fdinfo/{}", timer.file().unwrap().as_raw_fd());
        let text = std::fs::read_to_string(path).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(key));
        line.unwrap_or_else(|| panic!("no {key} in {text}"))
            .trim_start_matches(':')
            .trim()
            .to_owned()
    }

    /// No suspend can be had on a machine without one; that a timer on this clock ends when the machine
    /// resumes is the kernel's promise. That ours *is* on this clock, the kernel tells.
    #[tokio::test]
    async fn the_kernel_keeps_it_on_the_clock_that_runs_while_the_machine_sleeps() {
        let mut timer = BootTimer::new().unwrap();
        assert_eq!(kernels_word(&timer, "clockid"), BOOTTIME);
        let hour = SystemClock.now() + Duration::from_secs(3600);
        timer.arm(hour).unwrap();
        let left = kernels_word(&timer, "it_value");
        let seconds = left.trim_start_matches('(').split(',').next().unwrap();
        let seconds: u64 = seconds.parse().unwrap();
        assert!((3590..=3600).contains(&seconds), "armed for {left}");
    }

    #[tokio::test]
    async fn it_ends_at_its_moment_and_not_before() {
        let mut timer = BootTimer::new().unwrap();
        let start = SystemClock.now();
        for millis in [5, 1, 20] {
            let when = SystemClock.now() + Duration::from_millis(millis);
            timer.until(when).await.unwrap();
            assert!(SystemClock.now() >= when);
        }
        // What is past ends at once.
        timer.until(start).await.unwrap();
        timer
            .until(Moment::from_start(Duration::ZERO))
            .await
            .unwrap();
    }

    /// An earlier setting that has expired, and that was not read, ends no later wait.
    #[tokio::test]
    async fn a_wait_that_was_dropped_leaves_nothing_behind() {
        let mut timer = BootTimer::new().unwrap();
        let soon = SystemClock.now() + Duration::from_millis(200);
        assert!(
            tokio::time::timeout(Duration::ZERO, timer.until(soon))
                .await
                .is_err()
        );
        tokio::time::sleep(Duration::from_millis(210)).await;
        let later = SystemClock.now() + Duration::from_millis(30);
        timer.until(later).await.unwrap();
        assert!(SystemClock.now() >= later);
    }
}
