//! Waiting for a lock in a file: other processes' releases and deaths are noticed promptly, though
//! nobody there can be told anything.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fencepost::Client;
use fencepost_tests::{is_prompt, until_somebody_waits};
use tempfile::TempDir;
use tokio::time::timeout;

/// How often a waiter looks by itself, at the most. What is much faster was noticed by the watch.
const POLL: Duration = Duration::from_millis(750);
const LATE: Duration = Duration::from_secs(30);

fn url(dir: &TempDir) -> String {
    format!("file:{}", dir.path().join("locks.db").display())
}

/// Two clients with a connection each are to each other what two processes are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_elsewhere_is_noticed_long_before_the_next_poll() {
    const TURNS: u32 = 20;
    let dir = tempfile::tempdir().unwrap();
    for fair in [false, true] {
        let clients = [
            Client::connect(url(&dir)).await.unwrap(),
            Client::connect(url(&dir)).await.unwrap(),
        ];
        let mut workers = Vec::new();
        let begin = Instant::now();
        for locks in clients {
            workers.push(tokio::spawn(async move {
                for _ in 0..TURNS {
                    let lease = locks.lock("job").fair(fair).timeout(LATE).await.unwrap();
                    tokio::time::sleep(Duration::from_millis(2)).await;
                    lease.release().await.unwrap();
                }
            }));
        }
        for worker in workers {
            timeout(LATE, worker).await.unwrap().unwrap();
        }
        let each = begin.elapsed() / (2 * TURNS);
        println!("{each:?} a turn, fair: {fair}");
        assert!(each < POLL / 5, "{each:?}");
    }
}

struct Doomed(Child);

impl Drop for Doomed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_death_of_a_holder_elsewhere_is_noticed_long_before_its_ttl() {
    let dir = tempfile::tempdir().unwrap();
    let locks = Client::connect(url(&dir)).await.unwrap();
    is_prompt(POLL / 2, async || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_holder"));
        command.arg(url(&dir)).arg("job").arg("60000");
        let mut holder = Doomed(command.stdout(Stdio::piped()).spawn().unwrap());
        let mut line = String::new();
        let out = holder.0.stdout.take().unwrap();
        BufReader::new(out).read_line(&mut line).unwrap();
        assert_eq!(line, "holding\n");

        let busy = locks.lock("job").timeout(Duration::from_millis(100)).await;
        assert!(busy.unwrap_err().is_timeout());
        let waiting = tokio::spawn(locks.lock("job").timeout(LATE).into_future());
        until_somebody_waits(&locks, "job").await;
        let begin = Instant::now();
        holder.0.kill().unwrap();
        holder.0.wait().unwrap();
        drop(timeout(LATE, waiting).await.unwrap().unwrap().unwrap());
        let took = begin.elapsed();
        println!("{took:?} after the holder's death");
        took
    })
    .await;
}
