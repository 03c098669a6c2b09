//! What the kernel says of a process.

use std::time::Duration;

/// The unit of `/proc/PID/stat`: fixed on Linux, whatever the kernel's own tick is.
const TICKS_PER_SECOND: u64 = 100;

/// What one process has used so far.
pub(crate) struct Process {
    pub(crate) cpu: Duration,
    /// In bytes.
    pub(crate) resident: u64,
}

impl Process {
    pub(crate) fn ours() -> Self {
        Self::other(u64::from(std::process::id()))
    }

    /// # Panics
    /// When there is no such process, or no Linux around it.
    pub(crate) fn other(pid: u64) -> Self {
        let read = |file: &str| {
            std::fs::read_to_string(format!("/proc/{pid}/{file}")).expect("a process on Linux")
        };
        Self {
            cpu: cpu(&read("stat")).expect("two numbers of ticks"),
            resident: resident(&read("status")).expect("a number of kilobytes"),
        }
    }
}

fn cpu(stat: &str) -> Option<Duration> {
    // The program's name may have blanks and parentheses in it: the fields begin behind it.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut times = fields.split_whitespace().skip(11);
    let user: u64 = times.next()?.parse().ok()?;
    let system: u64 = times.next()?.parse().ok()?;
    Some(Duration::from_millis(
        (user + system) * 1000 / TICKS_PER_SECOND,
    ))
}

fn resident(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kilobytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_process_used_is_read_from_behind_its_name() {
        let stat = "1 (a) b) S 0 0 0 0 -1 4194560 1 2 3 4 150 50 0 0 20 0";
        assert_eq!(cpu(stat), Some(Duration::from_secs(2)));
        let status = "Name:\tx\nVmRSS:\t    2048 kB\nThreads:\t1\n";
        assert_eq!(resident(status), Some(2048 * 1024));
    }
}
