//! The least HTTP/1.1 that a client needs: one connection, one request at a time.

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

pub(crate) struct Http {
    stream: TcpStream,
    host: String,
    /// What was read beyond the last answer: nothing, between two requests.
    bytes: Vec<u8>,
}

impl Http {
    pub(crate) async fn connect(host: &str) -> Self {
        let stream = TcpStream::connect(host).await.expect("our own server");
        stream.set_nodelay(true).expect("a socket");
        Self {
            stream,
            host: host.to_owned(),
            bytes: Vec::new(),
        }
    }

    /// # Panics
    /// When the connection breaks.
    pub(crate) async fn post(&mut self, path: &str, body: &Value) -> (u16, Value) {
        self.send("POST", path, &body.to_string()).await;
        self.answer().await
    }

    pub(crate) async fn send(&mut self, method: &str, path: &str, body: &str) {
        let (host, length) = (&self.host, body.len());
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n\
             content-length: {length}\r\n\r\n{body}"
        );
        let sent = self.stream.write_all(request.as_bytes()).await;
        sent.expect("our own server");
    }

    pub(crate) async fn answer(&mut self) -> (u16, Value) {
        let head_end = loop {
            if let Some(at) = find(&self.bytes, b"\r\n\r\n") {
                break at + 4;
            }
            self.read().await;
        };
        let head = String::from_utf8_lossy(&self.bytes[..head_end]).to_ascii_lowercase();
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length:"))
            .and_then(|length| length.trim().parse().ok())
            .unwrap_or(0);
        while self.bytes.len() < head_end + length {
            self.read().await;
        }
        let body = serde_json::from_slice(&self.bytes[head_end..head_end + length]);
        self.bytes.drain(..head_end + length);
        (status.expect("a status"), body.unwrap_or(Value::Null))
    }

    /// Reads whatever comes, and forgets it.
    pub(crate) async fn drain(&mut self) {
        self.read().await;
        self.bytes.clear();
    }

    async fn read(&mut self) {
        let read = self.stream.read_buf(&mut self.bytes).await;
        assert!(read.expect("our own server") > 0, "the connection broke");
    }
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|part| part == what)
}
