//! What a server says of itself, asked on a connection that stays open, so that asking costs next to
//! nothing.

use std::time::Duration;

use fencepost_tests::RedisServer;
use redis::Connection;

/// A connection to one server.
pub(crate) struct Probe(Connection);

impl Probe {
    /// # Panics
    /// When the server cannot be reached.
    pub(crate) fn of(server: &RedisServer) -> Self {
        let client = redis::Client::open(server.url()).expect("a good URL");
        Self(client.get_connection().expect("our own server"))
    }

    /// The processor time that the server has used so far.
    pub(crate) fn cpu(&mut self) -> Duration {
        let info = self.info("cpu");
        let seconds = |name| field::<f64>(&info, name).expect("every server tells");
        Duration::from_secs_f64(seconds("used_cpu_user:") + seconds("used_cpu_sys:"))
    }

    /// How many commands it has run so far, this question included.
    pub(crate) fn commands(&mut self) -> u64 {
        let info = self.info("stats");
        field(&info, "total_commands_processed:").expect("every server tells")
    }

    /// The bytes that it has allocated.
    pub(crate) fn memory(&mut self) -> u64 {
        let info = self.info("memory");
        field(&info, "used_memory:").expect("every server tells")
    }

    fn info(&mut self, section: &str) -> String {
        let info = redis::cmd("INFO").arg(section).query(&mut self.0);
        info.expect("our own server")
    }
}

/// The number behind this name, at the beginning of a line.
pub(crate) fn field<T: std::str::FromStr>(text: &str, name: &str) -> Option<T> {
    let value = text.lines().find_map(|line| line.strip_prefix(name))?;
    value.trim_end().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_the_number_behind_its_name() {
        let info = "# CPU\r\nused_cpu_sys:0.25\r\nused_cpu_user:1.5\r\n";
        assert_eq!(field(info, "used_cpu_user:"), Some(1.5));
        assert_eq!(field::<u64>(info, "missing:"), None);
    }
}
