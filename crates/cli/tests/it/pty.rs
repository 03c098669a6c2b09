//! A terminal for the program to speak to.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use fencepost_tests::eventually;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{tcgetwinsize, tcsetwinsize};

use crate::bench::LIMIT;

/// Our end of a terminal, with the program at the other.
pub(crate) struct Terminal {
    ours: File,
    seen: Arc<Mutex<String>>,
    reader: JoinHandle<()>,
    pub(crate) child: Child,
}

impl Terminal {
    /// Starts the command with its stdin, stdout and stderr at a terminal.
    pub(crate) fn start(mut command: Command) -> Self {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&ours).expect("a terminal");
        unlockpt(&ours).expect("a terminal");
        let path = ptsname(&ours, Vec::new()).expect("its name");
        let path = path.to_str().expect("text");
        let theirs = || {
            Stdio::from(
                File::options()
                    .read(true)
                    .write(true)
                    .open(path)
                    .expect(path),
            )
        };
        command.stdin(theirs()).stdout(theirs()).stderr(theirs());
        let child = command.env("TERM", "xterm").spawn().expect("the program");
        // The command keeps its handles; the terminal ends with the last one.
        drop(command);
        let ours = File::from(ours);
        let mut end = ours.try_clone().expect("a second handle");
        let seen = Arc::new(Mutex::new(String::new()));
        let sink = Arc::clone(&seen);
        let reader = std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count) = end.read(&mut bytes)
                && count > 0
            {
                let text = String::from_utf8_lossy(&bytes[..count]);
                let mut sink = sink.lock().unwrap_or_else(PoisonError::into_inner);
                sink.push_str(&text);
            }
        });
        Self {
            ours,
            seen,
            reader,
            child,
        }
    }

    /// What it has written so far.
    pub(crate) fn seen(&self) -> String {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.clone()
    }

    /// Waits until it has written that.
    pub(crate) fn shows(&self, words: &str) {
        let what = format!("the terminal shows {words:?}");
        eventually(&what, LIMIT, || self.seen().contains(words));
    }

    /// Types something.
    pub(crate) fn type_in(&mut self, text: &str) {
        self.ours.write_all(text.as_bytes()).expect("a terminal");
    }

    /// Gives it another width.
    pub(crate) fn resize(&self, columns: u16) {
        let mut size = tcgetwinsize(&self.ours).expect("a terminal");
        (size.ws_row, size.ws_col) = (24, columns);
        tcsetwinsize(&self.ours, size).expect("a terminal");
    }

    /// Waits for its end, and returns its code and all that it wrote.
    pub(crate) fn end(mut self) -> (Option<i32>, String) {
        eventually("the program ends", LIMIT, || {
            self.child.try_wait().expect("our own child").is_some()
        });
        // The terminal ends with its last user, and not before all of it is read.
        eventually("the terminal ends", LIMIT, || self.reader.is_finished());
        let code = self.child.wait().expect("our own child").code();
        (code, self.seen())
    }
}
