//! A real Consul, for the guide from it.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fencepost_tests::free_port;

const START_LIMIT: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(100);

/// An agent in development mode on free ports, gone when its handle is dropped.
pub(crate) struct Consul {
    child: Child,
    address: String,
}

impl Consul {
    /// `None` where it is not installed. It has a leader then.
    pub(crate) fn start() -> Option<Self> {
        let mut agent = Command::new("consul");
        agent.args([
            "agent",
            "-dev",
            "-bind",
            "127.0.0.1",
            "-client",
            "127.0.0.1",
        ]);
        agent.args(["-dns-port", "-1", "-grpc-port", "-1"]);
        let http = free_port();
        agent.args(["-http-port", &http.to_string()]);
        for ports in ["-server-port", "-serf-lan-port", "-serf-wan-port"] {
            agent.args([ports, &free_port().to_string()]);
        }
        let agent = agent.stdin(Stdio::null()).stdout(Stdio::null());
        let child = agent.stderr(Stdio::null()).spawn().ok()?;
        let consul = Self {
            child,
            address: format!("127.0.0.1:{http}"),
        };
        let end = Instant::now() + START_LIMIT;
        while !consul.takes_writes() {
            assert!(Instant::now() < end, "consul has no leader");
            std::thread::sleep(PAUSE);
        }
        Some(consul)
    }

    /// Host and port for its clients.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    fn takes_writes(&self) -> bool {
        let mut put = Command::new("consul");
        put.args(["kv", "put", "ready", "1"]);
        put.env("CONSUL_HTTP_ADDR", &self.address);
        put.output().is_ok_and(|put| put.status.success())
    }
}

impl Drop for Consul {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
