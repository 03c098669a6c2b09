//! A real `etcd`, for what is measured and run beside it.

use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::free_port;

const START_LIMIT: Duration = Duration::from_secs(20);

/// A server of one member on free ports, gone when its handle is dropped.
pub struct EtcdServer {
    child: Child,
    address: String,
    _data: tempfile::TempDir,
}

impl EtcdServer {
    /// `None` where it is not installed. It may listen a moment before it has a leader.
    #[must_use]
    pub fn start() -> Option<Self> {
        let data = tempfile::tempdir().expect("a directory");
        let [client, peer] = [free_port(), free_port()].map(|port| format!("127.0.0.1:{port}"));
        let child = Command::new("etcd")
            .arg("--data-dir")
            .arg(data.path().join("data"))
            .args(["--listen-client-urls", &format!("http://{client}")])
            .args(["--advertise-client-urls", &format!("http://{client}")])
            .args(["--listen-peer-urls", &format!("http://{peer}")])
            .args(["--initial-advertise-peer-urls", &format!("http://{peer}")])
            .args(["--initial-cluster", &format!("default=http://{peer}")])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let server = Self {
            child,
            address: client,
            _data: data,
        };
        let end = Instant::now() + START_LIMIT;
        while TcpStream::connect(&server.address).is_err() {
            assert!(Instant::now() < end, "etcd does not listen");
            std::thread::sleep(Duration::from_millis(50));
        }
        Some(server)
    }

    /// Host and port for clients.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }
}

impl Drop for EtcdServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
