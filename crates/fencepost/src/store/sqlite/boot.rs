//! Which boot of the machine this is. Boot time restarts with every boot, so a row is valid only
//! together with the boot that it was written in.
//!
//! It must never report a reboot for a row that a process of this boot wrote: that would free a
//! held lock. If the boot cannot be identified, a holder keeps its TTL.

use std::time::Duration;

/// The id of a boot, or `None` if there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Boot(pub(super) Option<String>);

impl Boot {
    /// The current boot.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub(super) fn current() -> Self {
        /// `PROC_SUPER_MAGIC`
        const PROC: u64 = 0x9fa0;
        const FILE: &str = "/proc/sys/kernel/random/boot_id";
        // Container managers (systemd-nspawn, LXC) mount a file with a made-up id over it. By that
        // id, host and container would each take the other's rows for those of an earlier boot.
        let genuine = rustix::fs::statfs(FILE).is_ok_and(|fs| fs.f_type as u64 == PROC);
        let id = genuine.then(|| std::fs::read_to_string(FILE).ok());
        Self(id.flatten().map(|id| id.trim().to_owned()))
    }

    /// The current boot.
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    pub(super) fn current() -> Self {
        Self(None)
    }

    /// Whether a row was written in an earlier boot than this one: `written` is the boot time at
    /// which it was, `now` the boot time that was read after the row.
    pub(super) fn is_after(&self, row: &Self, written: Duration, now: Duration) -> bool {
        match (&self.0, &row.0) {
            (Some(ours), Some(theirs)) => ours != theirs,
            // Boot time does not run backwards. A reboot that this misses costs one TTL.
            _ => written > now,
        }
    }
}

/// Fails if this process sees a boot time that is not the machine's: in a time namespace it would
/// misread the deadlines of other processes, and they its.
pub(super) fn check_time_namespace() -> Result<(), String> {
    // Only Linux has the file.
    let offsets = std::fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
    if is_shifted(&offsets) {
        return Err(
            "this process runs in a time namespace whose boot time is shifted, so it \
                    cannot share deadlines with the other processes of this machine; start it \
                    without one"
                .into(),
        );
    }
    Ok(())
}

fn is_shifted(offsets: &str) -> bool {
    let mut lines = offsets.lines().map(str::split_whitespace);
    let boot_time = lines.find_map(|mut words| (words.next() == Some("boottime")).then_some(words));
    boot_time.is_some_and(|mut words| words.any(|number| number != "0"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const EARLY: Duration = Duration::from_secs(10);
    const LATE: Duration = Duration::from_secs(20);

    fn boot(name: &str) -> Boot {
        Boot(Some(name.into()))
    }

    #[test]
    fn another_boot_id_is_another_boot_whatever_the_times_say() {
        assert!(boot("b").is_after(&boot("a"), EARLY, LATE));
        assert!(boot("b").is_after(&boot("a"), LATE, EARLY));
        assert!(!boot("a").is_after(&boot("a"), EARLY, LATE));
        assert!(!boot("a").is_after(&boot("a"), LATE, EARLY));
    }

    #[test]
    fn without_a_boot_id_only_a_time_that_ran_backwards_proves_a_reboot() {
        for (ours, theirs) in [(None, None), (Some("a"), None), (None, Some("a"))] {
            let ours = Boot(ours.map(Into::into));
            let theirs = Boot(theirs.map(Into::into));
            assert!(!ours.is_after(&theirs, EARLY, LATE));
            assert!(!ours.is_after(&theirs, LATE, LATE));
            assert!(ours.is_after(&theirs, LATE, EARLY));
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_boot_has_a_name_that_stays() {
        assert_eq!(Boot::current(), Boot::current());
    }

    #[test]
    fn a_shifted_boot_time_is_seen() {
        let plain = "monotonic           0         0\nboottime            0         0\n";
        let shifted = "monotonic           0         0\nboottime      -86400         0\n";
        assert!(!is_shifted(plain));
        assert!(is_shifted(shifted));
        assert!(!is_shifted(""));
    }
}
