//! etcd's lock API, over its JSON gateway: what a program in any language would use.
//!
//! It runs as it comes: one member, and every write synced to its disk, which the stores beside it do
//! not do unless they are told to.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fencepost_tests::free_port;
use serde_json::{Value, json};

use super::http::Http;
use crate::contender::{Contender, TTL};

/// A server of our own.
pub(crate) struct Etcd {
    child: Child,
    address: String,
    _data: tempfile::TempDir,
}

impl Etcd {
    /// `None` where it is not installed.
    pub(crate) fn start() -> Option<Self> {
        let data = tempfile::tempdir().expect("a directory");
        let [client, peer] = [free_port(), free_port()].map(|port| format!("127.0.0.1:{port}"));
        let child = Command::new("etcd")
            .args([
                "--data-dir",
                &data.path().join("data").display().to_string(),
            ])
            .args(["--listen-client-urls", &format!("http://{client}")])
            .args(["--advertise-client-urls", &format!("http://{client}")])
            .args(["--listen-peer-urls", &format!("http://{peer}")])
            .args(["--initial-advertise-peer-urls", &format!("http://{peer}")])
            .args(["--initial-cluster", &format!("default=http://{peer}")])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let end = Instant::now() + Duration::from_secs(20);
        while std::net::TcpStream::connect(&client).is_err() {
            assert!(Instant::now() < end, "etcd does not listen");
            std::thread::sleep(Duration::from_millis(50));
        }
        Some(Self {
            child,
            address: client,
            _data: data,
        })
    }

    pub(crate) async fn clients(&self, tasks: usize) -> Vec<EtcdLock> {
        let mut clients = Vec::new();
        for task in 0..tasks {
            let mut http = Http::connect(&self.address).await;
            // It may listen before it has a leader.
            let lease = loop {
                let body = json!({ "TTL": TTL.as_secs() * 60 });
                let (status, answer) = http.post("/v3/lease/grant", &body).await;
                if status == 200 {
                    break answer["ID"].clone();
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            };
            clients.push(EtcdLock {
                http,
                lease,
                name: base64(format!("bench-{task:04}").as_bytes()),
            });
        }
        clients
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One task's session: a lease that outlasts the measurement, as its own client keeps one.
pub(crate) struct EtcdLock {
    http: Http,
    lease: Value,
    name: String,
}

impl Contender for EtcdLock {
    type Held = Value;

    async fn acquire(&mut self) -> Value {
        let body = json!({ "name": self.name, "lease": self.lease });
        let (status, answer) = self.http.post("/v3/lock/lock", &body).await;
        assert_eq!(status, 200, "{answer}");
        answer["key"].clone()
    }

    async fn release(&mut self, key: Value) {
        let body = json!({ "key": key });
        let (status, answer) = self.http.post("/v3/lock/unlock", &body).await;
        assert_eq!(status, 200, "{answer}");
    }
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for part in bytes.chunks(3) {
        let bits = part
            .iter()
            .chain(&[0; 2])
            .take(3)
            .fold(0_usize, |bits, byte| bits << 8 | usize::from(*byte));
        for place in 0..4 {
            match place <= part.len() {
                true => text.push(char::from(DIGITS[bits >> (18 - 6 * place) & 63])),
                false => text.push('='),
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_what_the_gateway_takes() {
        for (text, encoded) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
        ] {
            assert_eq!(base64(text.as_bytes()), encoded);
        }
    }
}
