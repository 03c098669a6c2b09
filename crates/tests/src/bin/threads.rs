//! A process without tokio that works with `fencepost::blocking`, for the tests to start.
//!
//! `threads return URL NAME` prints `holding` and returns from `main` with the lease in hand.
//! `threads leak URL NAME` does the same with a lease that is never dropped.
//! `threads shutdown URL NAME` drops its lease, shuts the client down, and leaves.
//! `threads alive URL NAME` checks how many background threads there are: with a client and its
//! clone, with nothing but a lease, and after that one is gone.
//! `threads farewell URL NAME` leaves the URL alone and drops a lease whose node never answers a
//! release: the thread must end all the same.

use std::error::Error;
use std::time::Duration;
use std::{fs, io};

use fencepost::LockName;
use fencepost::internals::memory::MemoryNode;
use fencepost::internals::{Call, Node};
use fencepost::{Client, blocking};
use fencepost_core::lock::Command;
use fencepost_tests::eventually;

const TTL: Duration = Duration::from_secs(60);
const SOON: Duration = Duration::from_secs(5);

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [mode, url, name] = &words[..] else {
        return Err("see the head of threads.rs".into());
    };
    let locks = blocking::connect(url)?;
    let lease = locks.block(locks.lock(name).ttl(TTL))?;
    match mode.as_str() {
        "return" => println!("holding"),
        "leak" => {
            println!("holding");
            std::mem::forget(lease);
        }
        "shutdown" => {
            drop(lease);
            locks.block(async {
                locks.clone().shutdown().await;
                Ok(())
            })?;
        }
        "alive" => {
            let second = blocking::connect(url)?;
            // A thread that one of them has started has its name, until it has taken its own.
            eventually("one for each client", SOON, || {
                background_threads().is_ok_and(|threads| threads == 2)
            });
            drop(second);
            eventually("the second client's thread has ended", SOON, || {
                background_threads().is_ok_and(|threads| threads == 1)
            });
            let clone = locks.clone();
            drop(locks);
            drop(clone);
            // Long enough for a thread that has been told to end: that it stays, only time can tell.
            std::thread::sleep(Duration::from_millis(200));
            assert_eq!(background_threads()?, 1, "a lease keeps it");
            assert!(lease.is_valid());
            drop(lease);
            eventually("the thread has ended", SOON, || {
                background_threads().is_ok_and(|threads| threads == 0)
            });
        }
        "farewell" => {
            drop(lease);
            drop(locks);
            let locks = Client::builder()
                .node(NeverReleases(MemoryNode::new()))
                .blocking()?;
            drop(locks.block(locks.lock(name).ttl(TTL))?);
            drop(locks);
            std::thread::sleep(Duration::from_secs(1));
            assert_eq!(background_threads()?, 1, "it waits for the answer");
            eventually("the thread has ended", SOON, || {
                background_threads().is_ok_and(|threads| threads == 0)
            });
        }
        _ => return Err("see the head of threads.rs".into()),
    }
    Ok(())
}

struct NeverReleases(MemoryNode);

impl Node for NeverReleases {
    fn call(&self, name: &LockName, command: Command) -> Call {
        match command {
            Command::Release { .. } => Box::pin(std::future::pending()),
            _ => self.0.call(name, command),
        }
    }

    fn address(&self) -> &str {
        self.0.address()
    }
}

fn background_threads() -> io::Result<usize> {
    let mut threads = 0;
    for task in fs::read_dir("/proc/self/task")? {
        // A thread may end between the two looks.
        let name = fs::read_to_string(task?.path().join("comm")).unwrap_or_default();
        threads += usize::from(name.trim_end() == "fencepost");
    }
    Ok(threads)
}
