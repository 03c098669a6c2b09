//! Keeps the cores awake while contenders wait for each other.
//!
//! With one task everybody sleeps most of the time, and what is measured is how long an idle
//! (virtual) core takes to wake up: it hides the difference between contenders and changes by a
//! factor of three with whatever else the machine does. Spinners of the idle class, which give way
//! at once to anything else, take that out for all contenders alike.

use std::process::{Child, Command, Stdio};

/// Ends by itself when the benchmark is gone, however that came about.
const SPIN: &str = "while kill -0 $PPID 2>/dev/null; do \
                    i=0; while [ $i -lt 10000 ]; do i=$((i+1)); done; done";

/// One spinner per core, until it is dropped.
pub(crate) struct Awake(Vec<Child>);

impl Awake {
    /// Starts them; without `chrt` (util-linux) there are none.
    pub(crate) fn start() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let spinners: Vec<_> = (0..cores).map_while(|_| spinner()).collect();
        if spinners.is_empty() {
            eprintln!("chrt cannot be run: the cores fall asleep, and figures at one task jump");
        }
        Self(spinners)
    }
}

fn spinner() -> Option<Child> {
    let mut command = Command::new("chrt");
    command.args(["--idle", "0", "sh", "-c", SPIN]);
    command.stdin(Stdio::null()).spawn().ok()
}

impl Drop for Awake {
    fn drop(&mut self) {
        for spinner in &mut self.0 {
            // It may be gone already; then there is nothing to end.
            let _ = spinner.kill();
            let _ = spinner.wait();
        }
    }
}
