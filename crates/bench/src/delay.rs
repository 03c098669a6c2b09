//! A network that takes its time: a proxy that hands on every byte a fixed time after it came.
//!
//! On threads, because a sleep of tokio counts whole milliseconds, and the delay is one: the faults'
//! proxy, which is made for losing and tearing, would measure its own timer.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use fencepost_tests::RedisServer;

/// A proxy before one server. Dropping it lets nobody in any more; connections end with their client.
pub(crate) struct Delay {
    port: u16,
    closed: Arc<AtomicBool>,
}

impl Delay {
    /// Delays both directions by `each_way`.
    ///
    /// # Panics
    /// When there is no free port.
    pub(crate) fn before(server: &RedisServer, each_way: Duration) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let port = listener.local_addr().expect("its address").port();
        let closed = Arc::new(AtomicBool::new(false));
        let (server, over) = (server.port(), Arc::clone(&closed));
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                // A server that is gone looks like one: the client's connection is closed.
                if let Ok(server) = TcpStream::connect(("127.0.0.1", server)) {
                    connect(&client, &server, each_way);
                }
            }
        });
        Self { port, closed }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }
}

impl Drop for Delay {
    fn drop(&mut self) {
        self.closed.store(true, Ordering::Relaxed);
        // So that the thread that accepts sees it. If it is gone already, so much the better.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

fn connect(client: &TcpStream, server: &TcpStream, each_way: Duration) {
    for (from, to) in [(client, server), (server, client)] {
        from.set_nodelay(true).expect("a TCP socket");
        let (sender, later) = channel();
        let mut from = from.try_clone().expect("a second handle");
        let to = to.try_clone().expect("a second handle");
        thread::spawn(move || {
            let mut space = [0; 16 * 1024];
            while let Ok(length @ 1..) = from.read(&mut space) {
                let due = Instant::now() + each_way;
                if sender.send((due, space[..length].to_vec())).is_err() {
                    return;
                }
            }
        });
        thread::spawn(move || hand_on(&later, to));
    }
}

fn hand_on(later: &Receiver<(Instant, Vec<u8>)>, mut to: TcpStream) {
    for (due, bytes) in later {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        if to.write_all(&bytes).is_err() {
            break;
        }
    }
    // The other side may be gone already.
    let _ = to.shutdown(Shutdown::Both);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_takes_the_delay_of_both_ways() {
        let server = RedisServer::start();
        let delay = Delay::before(&server, Duration::from_millis(20));
        let client = redis::Client::open(delay.url()).expect("a good URL");
        let mut connection = client.get_connection().expect("a server");
        let begin = Instant::now();
        let pong: String = redis::cmd("PING")
            .query(&mut connection)
            .expect("an answer");
        assert!(begin.elapsed() >= Duration::from_millis(40));
        assert_eq!(pong, "PONG");
    }
}
