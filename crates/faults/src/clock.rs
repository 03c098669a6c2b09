//! The wall clock of one server: where it stands and how fast it runs.
//!
//! It works by a library that the server is started with: `crates/clockbend`, which build.rs builds.
//! Only the wall clock is bent, never what a server measures time with.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const LIBRARY: &str = env!("CLOCKBEND_LIBRARY");
/// Nanoseconds that a clock which is not bent shows to pass in a second.
const STEADY: f64 = 1e9;

/// A server's wall clock.
#[derive(Debug)]
pub struct BentClock {
    path: PathBuf,
    file: File,
    sequence: u64,
    bend: Bend,
}

/// Where the clock stands at a real moment, and how fast it runs from there.
#[derive(Clone, Copy, Debug)]
struct Bend {
    anchor: i64,
    offset: i64,
    rate: i64,
}

impl BentClock {
    /// Whether a clock can be bent on this machine.
    #[must_use]
    pub const fn is_possible() -> bool {
        !LIBRARY.is_empty()
    }

    /// A clock that is right, until it is told otherwise.
    ///
    /// # Errors
    /// When its file cannot be written.
    pub fn new(path: &Path) -> io::Result<Self> {
        let file = File::create(path)?;
        let mut clock = Self {
            path: path.to_owned(),
            file,
            sequence: 0,
            bend: Bend {
                anchor: 0,
                offset: 0,
                rate: STEADY as i64,
            },
        };
        clock.write()?;
        Ok(clock)
    }

    /// Lets a program live by this clock.
    pub fn give_to(&self, command: &mut Command) {
        command
            .env("LD_PRELOAD", LIBRARY)
            .env("CLOCKBEND_FILE", &self.path);
    }

    /// Moves it forward, or back.
    ///
    /// # Errors
    /// When its file cannot be written.
    pub fn jump(&mut self, by: Jump) -> io::Result<()> {
        self.settle();
        let nanos = |time: Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
        self.bend.offset = match by {
            Jump::Ahead(time) => self.bend.offset.saturating_add(nanos(time)),
            Jump::Back(time) => self.bend.offset.saturating_sub(nanos(time)),
        };
        self.write()
    }

    /// Lets it run at `rate` from now on: 1.0 is right, 2.0 twice as fast.
    ///
    /// # Errors
    /// When its file cannot be written.
    pub fn run_at(&mut self, rate: f64) -> io::Result<()> {
        self.settle();
        self.bend.rate = (rate * STEADY) as i64;
        self.write()
    }

    /// Makes it right again, at once.
    ///
    /// # Errors
    /// When its file cannot be written.
    pub fn set_right(&mut self) -> io::Result<()> {
        self.bend.offset = 0;
        self.bend.rate = STEADY as i64;
        self.write()
    }

    /// How far ahead of the real time it is; back is negative. In seconds, for people.
    #[must_use]
    pub fn ahead(&self) -> f64 {
        self.offset_at(real_nanos()) as f64 / STEADY
    }

    fn offset_at(&self, now: i64) -> i64 {
        let Bend {
            anchor,
            offset,
            rate,
        } = self.bend;
        let gained = (now - anchor) as f64 * (rate as f64 / STEADY - 1.0);
        offset.saturating_add(gained as i64)
    }

    /// Counts what it has gained so far into the offset.
    fn settle(&mut self) {
        let now = real_nanos();
        self.bend.offset = self.offset_at(now);
        self.bend.anchor = now;
    }

    fn write(&mut self) -> io::Result<()> {
        let Bend {
            anchor,
            offset,
            rate,
        } = self.bend;
        self.file
            .write_all_at(&(self.sequence + 1).to_ne_bytes(), 0)?;
        for (place, number) in [(8, anchor), (16, offset), (24, rate)] {
            self.file.write_all_at(&number.to_ne_bytes(), place)?;
        }
        self.sequence += 2;
        self.file.write_all_at(&self.sequence.to_ne_bytes(), 0)
    }
}

/// A sudden change of a clock.
#[derive(Clone, Copy, Debug)]
pub enum Jump {
    /// It shows a later time.
    Ahead(Duration),
    /// It shows an earlier time.
    Back(Duration),
}

fn real_nanos() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let nanos = since.map_or(0, |time| time.as_nanos());
    i64::try_from(nanos).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds_by(clock: &BentClock) -> f64 {
        let mut date = Command::new("date");
        clock.give_to(date.arg("+%s.%N"));
        let said = String::from_utf8(date.output().unwrap().stdout).unwrap();
        said.trim().parse::<f64>().unwrap() - real_nanos() as f64 / STEADY
    }

    #[test]
    fn another_program_sees_the_clock_jump_and_run() {
        if !BentClock::is_possible() {
            println!("skipped: no clock can be bent here");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let mut clock = BentClock::new(&folder.path().join("clock")).unwrap();
        assert!(seconds_by(&clock).abs() < 5.0);
        clock.jump(Jump::Ahead(Duration::from_secs(3600))).unwrap();
        assert!((seconds_by(&clock) - 3600.0).abs() < 5.0);
        clock.jump(Jump::Back(Duration::from_secs(7200))).unwrap();
        assert!((seconds_by(&clock) + 3600.0).abs() < 5.0);
        clock.set_right().unwrap();
        clock.run_at(1000.0).unwrap();
        std::thread::sleep(Duration::from_millis(100));
        assert!(seconds_by(&clock) > 90.0, "{}", seconds_by(&clock));
        let by_file = clock.ahead();
        clock.run_at(1.0).unwrap();
        assert!(clock.ahead() >= by_file, "what it gained stays");
    }
}
