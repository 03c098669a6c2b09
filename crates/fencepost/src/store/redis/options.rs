//! Settings of a Redis node, with their defaults.

use std::fmt;
use std::time::Duration;

use fencepost_core::lock::REGISTER_RETENTION;

/// Settings of a [`RedisNode`](super::RedisNode).
#[derive(Clone, Debug)]
pub struct RedisOptions {
    /// The prefix of every key. Empty by default.
    pub prefix: String,
    /// How long connecting may take: TCP, TLS, login and handshake together. One second by default.
    pub connect_timeout: Duration,
    /// How long a PING may stay unanswered before the connection is replaced. One second by
    /// default.
    pub mute_timeout: Duration,
    /// The maximum TTL of any client: a server that was started less than this ago, and may have
    /// forgotten locks, does not vote. `None` trusts it at once.
    pub quarantine: Option<Duration>,
    /// How long a fence register is kept after it was last raised. A day by default.
    pub retention: Duration,
    /// What to do about a server that evicts keys.
    pub eviction: Eviction,
    /// What to do about a server that hides its role.
    pub hidden: Hidden,
    /// Certificates, for `rediss://`.
    pub tls: TlsOptions,
    /// Acquire by scripts also where plain commands would do: what older servers get.
    pub scripts_only: bool,
}

impl Default for RedisOptions {
    fn default() -> Self {
        Self {
            prefix: String::new(),
            connect_timeout: Duration::from_secs(1),
            mute_timeout: Duration::from_secs(1),
            quarantine: None,
            retention: REGISTER_RETENTION,
            eviction: Eviction::default(),
            hidden: Hidden::default(),
            tls: TlsOptions::default(),
            scripts_only: false,
        }
    }
}

/// What to do about a server that may evict keys: an evicted key is a lost lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Eviction {
    /// It does not vote.
    #[default]
    Refuse,
    /// It votes, and a warning is logged.
    Warn,
}

/// What to do about a server whose ACL hides INFO from this user, so that neither its role nor
/// duplicates can be checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hidden {
    /// It votes, and a warning is logged.
    #[default]
    Warn,
    /// It does not vote.
    Refuse,
}

/// Certificates for `rediss://`, in PEM. Without the feature `tls` they are not used.
#[derive(Clone, Default)]
pub struct TlsOptions {
    /// The trusted CA certificates, instead of those of the operating system.
    pub ca_pem: Option<Vec<u8>>,
    /// The client certificate chain and its private key, for mutual TLS.
    pub client_pem: Option<(Vec<u8>, Vec<u8>)>,
}

impl fmt::Debug for TlsOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The private key must not appear in a log.
        f.debug_struct("TlsOptions")
            .field("ca_pem", &self.ca_pem.is_some())
            .field("client_pem", &self.client_pem.is_some())
            .finish()
    }
}
