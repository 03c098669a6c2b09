//! A node that sends nonsense without end costs its own vote, and nothing else.
//!
//! What went wrong: one node of three that answered with `*400000000` and endless integers took 450 MB,
//! stalled the runtime for up to 1.9 s and cost a lease.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use fencepost::{Client, RestartPolicy};
use fencepost_tests::Cluster;

/// What one connection may take in before it is closed, and what the kernel holds on both sides.
const MOST_TAKEN_IN: usize = 24 * 1024 * 1024;

/// Answers every connection with the same words and then with others for ever, and counts what one of
/// them took at the most.
struct Hostile {
    port: u16,
    connections: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

impl Hostile {
    fn start(first: &'static [u8], then: &'static [u8]) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let (connections, most) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let counts = (Arc::clone(&connections), Arc::clone(&most));
        // Ends with the process, or when the client is gone.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (connections, most) = (Arc::clone(&counts.0), Arc::clone(&counts.1));
                connections.fetch_add(1, Ordering::SeqCst);
                std::thread::spawn(move || flood(stream.unwrap(), first, then, &most));
            }
        });
        Self {
            port,
            connections,
            most,
        }
    }

    fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }
}

fn flood(mut stream: TcpStream, first: &[u8], then: &[u8], most: &AtomicUsize) {
    let mut question = [0; 1024];
    if stream.read(&mut question).is_err() || stream.write_all(first).is_err() {
        return;
    }
    let block = then.repeat(64 * 1024 / then.len());
    let mut sent = 0;
    while sent < 40 * MOST_TAKEN_IN {
        match stream.write(&block) {
            Ok(bytes) if bytes > 0 => sent += bytes,
            _ => return,
        }
        most.fetch_max(sent, Ordering::SeqCst);
    }
}

async fn costs_nothing(first: &'static [u8], then: &'static [u8]) {
    let cluster = Cluster::start(2);
    let hostile = Hostile::start(first, then);
    let locks = Client::builder()
        .url(format!("{},{}", cluster.urls(), hostile.url()))
        .restart_policy(RestartPolicy::Trust)
        .connect()
        .await
        .unwrap();
    let ttl = Duration::from_secs(3);
    let lease = locks.lock("job").ttl(ttl).await.unwrap();
    let end = Instant::now() + ttl * 2;
    while Instant::now() < end {
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(lease.is_valid(), "{:?}", first.escape_ascii().to_string());
    }
    lease.release().await.unwrap();
    assert!(hostile.connections.load(Ordering::SeqCst) > 1, "not met");
    let most = hostile.most.load(Ordering::SeqCst);
    assert!(most <= MOST_TAKEN_IN, "{most} bytes taken in");
}

#[tokio::test]
async fn a_list_of_400_million_numbers_costs_no_lease() {
    costs_nothing(b"*400000000\r\n", b":1\r\n").await;
}

#[tokio::test]
async fn a_text_without_an_end_costs_no_lease() {
    costs_nothing(b"$536870912\r\n", b"xxxxxxxx").await;
}

#[tokio::test]
async fn a_line_without_an_end_costs_no_lease() {
    costs_nothing(b"+", b"xxxxxxxx").await;
}

#[tokio::test]
async fn lists_within_lists_without_an_end_cost_no_lease() {
    costs_nothing(b"*1\r\n", b"*1\r\n").await;
}
