//! Identifies a process, and whether it is dead: by pid, start time and pid namespace.
//!
//! It must never report a living process as dead: that would give its lock to another holder.
//! Whatever cannot be determined counts as alive, and the lock's TTL decides.

use std::fs;

/// The unique identity of a process, while the machine is up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) pid: u32,
    /// In clock ticks since boot. Distinguishes processes that reuse a pid.
    pub(super) started: u64,
    /// The inode of the pid namespace: a pid means nothing outside it.
    pub(super) namespace: u64,
}

impl Process {
    /// This process, or `None` if `/proc` is not available.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub(super) fn current() -> Option<Self> {
        use std::os::unix::fs::MetadataExt;

        let stat = Stat::parse(&fs::read_to_string("/proc/self/stat").ok()?)?;
        // Another namespace's /proc may be mounted here. Its pids are not ours, so no process is
        // judged.
        (stat.pid == std::process::id()).then_some(())?;
        Some(Self {
            pid: stat.pid,
            started: stat.started,
            namespace: fs::metadata("/proc/self/ns/pid").ok()?.ino(),
        })
    }

    /// This process, or `None` if `/proc` is not available.
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    pub(super) fn current() -> Option<Self> {
        None
    }

    /// The process with this id, or `None` if it does not exist or `/proc` is not available.
    pub(super) fn of(pid: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let stat = Stat::parse(&stat).filter(|stat| stat.pid == pid && !stat.is_dead())?;
        Some(Self {
            pid,
            started: stat.started,
            namespace: Self::current()?.namespace,
        })
    }

    /// Whether this process is known to be dead, as `observer` sees it.
    pub(super) fn is_gone(&self, observer: &Self) -> bool {
        if self == observer || self.namespace != observer.namespace {
            return false;
        }
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid));
        match stat.ok().as_deref().and_then(Stat::parse) {
            Some(stat) => stat.started != self.started || stat.is_dead(),
            // Missing, or hidden from us (`hidepid`): signal 0 tells which.
            None => !exists(self.pid),
        }
    }
}

fn exists(pid: u32) -> bool {
    use rustix::process::{Pid, test_kill_process};

    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| test_kill_process(pid) != Err(rustix::io::Errno::SRCH))
}

/// What `/proc/PID/stat` says.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    pid: u32,
    state: char,
    threads: u32,
    started: u64,
}

impl Stat {
    fn parse(line: &str) -> Option<Self> {
        // The second field is the program's name in parentheses. It may contain spaces and
        // parentheses; no later field does.
        let (pid, rest) = line.split_once(' ')?;
        let (_, rest) = rest.rsplit_once(") ")?;
        let mut fields = rest.split_ascii_whitespace(); // the first of them is field 3
        Some(Self {
            pid: pid.parse().ok()?,
            state: fields.next()?.chars().next()?,
            threads: fields.nth(20 - 4)?.parse().ok()?,
            started: fields.nth(22 - 21)?.parse().ok()?,
        })
    }

    fn is_dead(&self) -> bool {
        // A main thread that ended before its siblings is a zombie too, but its process is alive.
        matches!(self.state, 'Z' | 'X' | 'x') && self.threads <= 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "4711 (a) b (c) S 1 4711 4711 0 -1 4194560 100 0 0 0 5 6 7 8 20 0 3 0 \
                        987654 1000000 200 18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 17 1 0 0\n";

    #[test]
    fn a_program_name_with_spaces_and_parentheses_misleads_nobody() {
        let stat = Stat::parse(LINE).unwrap();
        let expected = Stat {
            pid: 4711,
            state: 'S',
            threads: 3,
            started: 987_654,
        };
        assert_eq!(stat, expected);
        assert_eq!(Stat::parse(""), None);
        assert_eq!(Stat::parse("1 (init) S 0"), None);
    }

    #[test]
    fn a_zombie_is_dead_unless_other_threads_of_it_run() {
        let mut stat = Stat::parse(LINE).unwrap();
        assert!(!stat.is_dead());
        stat.state = 'Z';
        assert!(!stat.is_dead());
        stat.threads = 1;
        assert!(stat.is_dead());
    }

    #[cfg(target_os = "linux")]
    mod on_linux {
        use super::*;
        use std::process::{Child, Command};

        fn child() -> (Child, Process) {
            let child = Command::new("sleep").arg("60").spawn().unwrap();
            let line = fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
            let process = Process {
                pid: child.id(),
                started: Stat::parse(&line).unwrap().started,
                namespace: Process::current().unwrap().namespace,
            };
            (child, process)
        }

        #[test]
        fn a_process_is_alive_until_it_is_killed_and_gone_before_it_is_reaped() {
            let us = Process::current().unwrap();
            let (mut child, process) = child();
            assert!(!process.is_gone(&us));
            child.kill().unwrap();
            let line = || fs::read_to_string(format!("/proc/{}/stat", process.pid)).unwrap();
            while !Stat::parse(&line()).unwrap().is_dead() {
                std::thread::yield_now();
            }
            assert!(process.is_gone(&us), "a zombie");
            child.wait().unwrap();
            assert!(process.is_gone(&us), "no such pid");
        }

        #[test]
        fn a_pid_with_another_start_time_is_another_process() {
            let us = Process::current().unwrap();
            let (mut child, mut process) = child();
            process.started += 1;
            assert!(process.is_gone(&us));
            child.kill().unwrap();
            child.wait().unwrap();
        }

        #[test]
        fn a_process_of_another_namespace_is_never_judged() {
            let us = Process::current().unwrap();
            let mut other = us;
            other.namespace += 1;
            other.started += 1;
            assert!(!other.is_gone(&us));
        }

        #[test]
        fn we_are_alive() {
            let us = Process::current().unwrap();
            assert_eq!(us.pid, std::process::id());
            assert!(!us.is_gone(&us));
            assert!(exists(us.pid));
        }
    }
}
