//! [`Environment`]: what the command is told of what is held.
//!
//! It must never let the command take what an outer `fencepost run` has told for what we hold.

use std::ffi::OsString;

use crate::held::Held;
use crate::target::Target;
use crate::wait::deadline;

/// Variables for a command: what each is, or that it is not there.
#[derive(Clone, Debug)]
pub(super) struct Environment(Vec<(&'static str, Option<OsString>)>);

impl Environment {
    pub(super) fn of(target: &Target, held: &Held) -> Self {
        let tokens = held.tokens().map(|tokens| {
            let lines = tokens.map(|(name, token)| format!("{token} {name}"));
            lines.collect::<Vec<_>>().join("\n")
        });
        let token = held.token().map(|token| token.to_string());
        let slot = held.slot().map(|slot| slot.to_string());
        let deadline = deadline(held.remaining()).to_string();
        let mut all = vec![
            ("FENCEPOST_LOCK", Some(target.typed())),
            ("FENCEPOST_TOKEN", token),
            ("FENCEPOST_TOKENS", tokens),
            ("FENCEPOST_SLOT", slot),
            ("FENCEPOST_DEADLINE", Some(deadline)),
        ];
        // It is an option of ours, too: the command may have it from the user.
        if let Some(value) = held.proclaimed() {
            all.push(("FENCEPOST_ELECT_VALUE", Some(value.to_owned())));
        }
        let all = all.into_iter();
        Self(
            all.map(|(name, value)| (name, value.map(OsString::from)))
                .collect(),
        )
    }

    /// The same, and one more.
    pub(super) fn with(mut self, name: &'static str, value: &str) -> Self {
        self.0.push((name, Some(value.into())));
        self
    }

    pub(super) fn set_on(&self, command: &mut std::process::Command) {
        for (name, value) in &self.0 {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
    }
}
