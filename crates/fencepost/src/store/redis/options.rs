//! How a Redis node behaves: plain settings with their defaults.

use std::fmt;
use std::time::Duration;

use fencepost_core::lock::COUNTER_RETENTION;

/// How a [`RedisNode`](super::RedisNode) behaves.
#[derive(Clone, Debug)]
pub struct RedisOptions {
    /// What stands before every key. Empty unless set.
    pub prefix: String,
    /// How long a connection may take until it can be used: TCP, TLS, login and handshake
    /// together. One second unless set.
    pub connect_timeout: Duration,
    /// How long a connection may leave a PING unanswered before it is replaced. One second unless
    /// set.
    pub mute_timeout: Duration,
    /// The longest TTL of any client: a server that was started less than this ago, and may have
    /// forgotten locks, does not vote. `None` trusts it at once.
    pub quarantine: Option<Duration>,
    /// How long the fence register of a name is kept after it was last raised. A day unless set.
    pub retention: Duration,
    /// What to do about a server that evicts keys.
    pub eviction: Eviction,
    /// What to do about a server that hides what it is.
    pub hidden: Hidden,
    /// Certificates, for `rediss://`.
    pub tls: TlsOptions,
}

impl Default for RedisOptions {
    fn default() -> Self {
        Self {
            prefix: String::new(),
            connect_timeout: Duration::from_secs(1),
            mute_timeout: Duration::from_secs(1),
            quarantine: None,
            retention: COUNTER_RETENTION,
            eviction: Eviction::default(),
            hidden: Hidden::default(),
            tls: TlsOptions::default(),
        }
    }
}

/// What to do about a server that may evict keys to make room: an evicted key is a lost lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Eviction {
    /// It does not vote.
    #[default]
    Refuse,
    /// It votes, and a warning is logged.
    Warn,
}

/// What to do about a server whose ACL hides INFO from this user, so that it cannot be checked whether it is
/// a master, and whether it is the same as another node's.
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
    /// The authorities to trust, in place of those of the operating system.
    pub ca_pem: Option<Vec<u8>>,
    /// Our own certificate chain and its private key, for a server that asks for them.
    pub client_pem: Option<(Vec<u8>, Vec<u8>)>,
}

impl fmt::Debug for TlsOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The private key must not show up in a log.
        f.debug_struct("TlsOptions")
            .field("ca_pem", &self.ca_pem.is_some())
            .field("client_pem", &self.client_pem.is_some())
            .finish()
    }
}
