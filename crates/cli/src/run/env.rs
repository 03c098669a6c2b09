//! [`Environment`]: the variables that tell the command what is held.
//!
//! It must never let the command take what an outer `fencepost run` has told for what we hold. What
//! the outer one holds stays visible under the lock's name: `FENCEPOST_TOKEN_NAME`.

use std::ffi::OsString;

use fencepost::FencingToken;

use crate::held::Held;
use crate::names::suffix;
use crate::target::Target;
use crate::wait::deadline;

/// Variables for a command: what each is, or that it is not there.
#[derive(Clone, Debug)]
pub(super) struct Environment(Vec<(String, Option<OsString>)>);

impl Environment {
    pub(super) fn of(target: &Target, held: &Held) -> Self {
        let tokens = held.tokens().map(|tokens| {
            let lines = tokens.map(|(name, token)| format!("{token} {name}"));
            lines.collect::<Vec<_>>().join("\n")
        });
        let token = held.token().map(|token| token.to_string());
        let slot = held.slot().map(|slot| slot.to_string());
        let deadline = deadline(held.remaining()).to_string();
        let mut all: Vec<(String, _)> = [
            ("FENCEPOST_LOCK", Some(target.typed())),
            ("FENCEPOST_TOKEN", token),
            ("FENCEPOST_TOKENS", tokens),
            ("FENCEPOST_SLOT", slot),
            ("FENCEPOST_DEADLINE", Some(deadline)),
            (
                "FENCEPOST_ELECT_VALUE",
                held.proclaimed().map(str::to_owned),
            ),
            // That of a lock which a script around us acquired; it is known by the lock's name.
            ("FENCEPOST_VALUE", None),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .to_vec();
        let mut add = |name: &str, token: FencingToken| {
            let variable = format!("FENCEPOST_TOKEN_{}", suffix(name));
            all.push((variable, Some(token.to_string())));
        };
        for (name, token) in held.tokens().into_iter().flatten() {
            add(name, token);
        }
        if let (Some(name), Some(token)) = (target.name(), held.token()) {
            add(name.as_str(), token);
        }
        let all = all.into_iter();
        Self(
            all.map(|(name, value)| (name, value.map(OsString::from)))
                .collect(),
        )
    }

    /// The same, and one more.
    pub(super) fn with(mut self, name: &str, value: &str) -> Self {
        self.0.push((name.to_owned(), Some(value.into())));
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
