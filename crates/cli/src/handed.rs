//! [`Handed`]: a lock that is handed to a script, as it is printed.

use std::time::Duration;

use fencepost::DetachedLock;
use serde_json::{Value, json};

use crate::args::Form;
use crate::duration::{Readable, millis};
use crate::names::{suffix, typed};
use crate::table::aligned;
use crate::wait::deadline;

/// A lock that is ours for a while, and what it takes to keep it.
pub(crate) struct Handed<'a> {
    pub(crate) receipt: &'a DetachedLock,
    /// How long it is ours, counted from now.
    pub(crate) remaining: Duration,
}

impl Handed<'_> {
    pub(crate) fn print(&self, form: Form) -> String {
        match form {
            Form::Table => self.table(),
            Form::Export => self.export(),
            Form::Json => format!("{:#}\n", self.json()),
        }
    }

    fn table(&self) -> String {
        let Self { receipt, remaining } = self;
        aligned(&[
            ["lock".into(), receipt.name().to_string()],
            ["value".into(), receipt.value().to_owned()],
            ["token".into(), receipt.token().to_string()],
            ["valid for".into(), Readable(*remaining).to_string()],
        ])
    }

    fn export(&self) -> String {
        let receipt = self.receipt;
        let (lock, of_name) = (typed([receipt.name()]), suffix(receipt.name().as_str()));
        let deadline = deadline(self.remaining).to_string();
        let lines = [
            ("FENCEPOST_LOCK", lock.as_str()),
            ("FENCEPOST_VALUE", receipt.value()),
            ("FENCEPOST_TOKEN", &receipt.token().to_string()),
            ("FENCEPOST_DEADLINE", &deadline),
            // A script may acquire another lock before it releases this one.
            (&format!("FENCEPOST_VALUE_{of_name}"), receipt.value()),
            (
                &format!("FENCEPOST_TOKEN_{of_name}"),
                &receipt.token().to_string(),
            ),
        ];
        let lines = lines.map(|(name, value)| format!("export {name}={}\n", quoted(value)));
        lines.concat()
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "lock": self.receipt.name().as_str(),
            "value": self.receipt.value(),
            "token": self.receipt.token().get(),
            "remaining_ms": millis(self.remaining),
            "deadline_ms": deadline(self.remaining),
        })
    }
}

/// As a POSIX shell reads it back, whatever is in it.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_back_whatever_is_in_a_value() {
        for text in ["plain", "it's", "$(touch x)`y`", "", "a\\b\"c", "'"] {
            let line = format!("printf %s {}", quoted(text));
            let out = std::process::Command::new("sh")
                .args(["-c", &line])
                .output();
            assert_eq!(out.unwrap().stdout, text.as_bytes());
        }
    }
}
