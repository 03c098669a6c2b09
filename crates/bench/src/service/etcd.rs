//! etcd's lock API, over its JSON gateway: what a program in any language would use.
//!
//! It runs as it comes: one member, and every write synced to its disk, which the stores beside it do
//! not do unless they are told to.

use std::time::Duration;

use fencepost_tests::EtcdServer;
use serde_json::{Value, json};

use super::http::Http;
use crate::contender::{Contender, TTL};

/// A client for each task.
pub(crate) async fn clients(etcd: &EtcdServer, tasks: usize) -> Vec<EtcdLock> {
    let mut clients = Vec::new();
    for task in 0..tasks {
        let mut http = Http::connect(etcd.address()).await;
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
