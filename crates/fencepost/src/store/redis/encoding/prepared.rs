//! [`Prepared`]: a command as it is sent. Made once for all nodes: to write it is most of what a command costs
//! its client.

use std::sync::{Arc, OnceLock};

use super::keys::{Keys, Prefix};
use super::{plain, scripts};
use crate::error::NodeError;
use crate::store::Request;
use fencepost_core::lock::Command;
use fencepost_core::name::LockName;
use fencepost_core::token::FencingToken;

/// One command for one lock.
pub(crate) struct Prepared {
    /// Where its keys are made of one.
    prefix: Option<Prefix>,
    pub(crate) keys: Keys,
    pub(crate) command: Command,
    /// Of an awaited release: the token of the lease.
    held_with: Option<FencingToken>,
    /// Of an acquire: whether a refusal tells when the holder's time ends.
    pub(crate) needs_expiry: bool,
    plain: OnceLock<Option<(Vec<u8>, usize)>>,
    script: OnceLock<Vec<u8>>,
}

impl Prepared {
    /// # Errors
    /// For a name that has no keys behind this prefix.
    pub(crate) fn new(
        prefix: &Prefix,
        name: &LockName,
        command: Command,
    ) -> Result<Self, NodeError> {
        Ok(Self {
            prefix: Some(prefix.clone()),
            ..Self::with(prefix.keys(name)?, command)
        })
    }

    /// A command for the lock with these keys.
    pub(crate) fn with(keys: Keys, command: Command) -> Self {
        Self {
            prefix: None,
            keys,
            command,
            held_with: None,
            needs_expiry: true,
            plain: OnceLock::new(),
            script: OnceLock::new(),
        }
    }

    /// The same for one of several nodes, which all have one prefix. Whether it may be sent at all is checked
    /// by the first of them.
    pub(crate) fn once(
        prefix: &Prefix,
        request: &Request,
        check: impl FnOnce() -> Result<(), NodeError>,
    ) -> Result<Arc<Self>, NodeError> {
        let made = request.made::<Self>();
        if let Some(made) = made.filter(|made| made.prefix.as_ref() == Some(prefix)) {
            return Ok(made);
        }
        check()?;
        let made = Self::new(prefix, &request.name, request.command.clone())?;
        let made = Arc::new(Self {
            held_with: request.held_with,
            needs_expiry: request.needs_expiry,
            ..made
        });
        request.keep(Arc::clone(&made));
        Ok(made)
    }

    /// The short commands that carry it out in the usual case, and how many they are, if there are any.
    pub(crate) fn plain(&self) -> Option<(&[u8], usize)> {
        let plain = self
            .plain
            .get_or_init(|| plain::commands(&self.command, &self.keys, self.held_with));
        let (commands, count) = plain.as_ref()?;
        Some((commands, *count))
    }

    /// The script that carries it out, by its digest.
    pub(crate) fn script(&self) -> &[u8] {
        self.script
            .get_or_init(|| scripts::by_digest(&self.command, &self.keys).encoded())
    }
}
