//! Turns errors of a server or a connection into a [`NodeError`].
//!
//! It must never report a mere refusal for something that may have taken effect: whatever is not a
//! reply of the server is [`NodeError::Disconnected`].

use std::borrow::Cow;
use std::{fmt, io};

use crate::error::NodeError;

/// An error reply: its code, and the details behind that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServerError(pub(super) String);

impl ServerError {
    /// The line that the server has sent, without the sign of an error.
    pub(super) fn new(line: &[u8]) -> Self {
        Self(String::from_utf8_lossy(line).into_owned())
    }

    fn parts(&self) -> (&str, &str) {
        self.0.split_once(' ').unwrap_or((&self.0, ""))
    }

    /// Whether a script is missing, which proves that nothing ran.
    pub(super) fn is_no_script(&self) -> bool {
        self.parts().0 == "NOSCRIPT"
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&printable(&self.0))
    }
}

/// Why a command has no answer that counts.
#[derive(Debug)]
pub(super) enum RedisError {
    /// The server has refused it.
    Server(ServerError),
    /// The connection is of no use: whether it was carried out is unknown.
    Io(io::Error),
}

impl fmt::Display for RedisError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(error) => error.fmt(f),
            Self::Io(error) => error.fmt(f),
        }
    }
}

impl From<io::Error> for RedisError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// What becomes of a command that is sent.
pub(super) type RedisResult<T> = Result<T, RedisError>;

/// The codes to look for in the text of a script's failure.
const CODES: [&str; 8] = [
    "WRONGTYPE",
    "OOM",
    "READONLY",
    "MISCONF",
    "NOPERM",
    "LOADING",
    "MASTERDOWN",
    "NOREPLICAS",
];

/// Whether the server replied at all.
pub(super) fn is_answer(error: &RedisError) -> bool {
    matches!(error, RedisError::Server(_))
}

/// A foreign client's value may be any bytes: what is no text is shown as hex, so that two that differ
/// look different.
pub(super) fn text_or_hex(bytes: &[u8]) -> Cow<'_, str> {
    use std::fmt::Write;
    match std::str::from_utf8(bytes) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => {
            let mut hex = String::with_capacity(2 + 2 * bytes.len());
            hex.push_str("0x");
            for byte in bytes {
                // Writing to a string cannot fail.
                let _ = write!(hex, "{byte:02x}");
            }
            Cow::Owned(hex)
        }
    }
}

/// Whether the script is missing, which proves that nothing ran.
pub(super) fn is_no_script(error: &RedisError) -> bool {
    matches!(error, RedisError::Server(error) if error.is_no_script())
}

/// The error as a [`NodeError`].
pub(super) fn node_error(error: &RedisError) -> NodeError {
    match error {
        RedisError::Server(error) => refusal(error),
        RedisError::Io(error) => NodeError::Disconnected(printable(&error.to_string())),
    }
}

/// The same for what a server has refused.
pub(super) fn refusal(error: &ServerError) -> NodeError {
    let (code, detail) = error.parts();
    from_code(code, detail, error.to_string())
}

/// The maximum number of characters of a server's text that are passed on.
const MOST_WORDS: usize = 300;

/// A server's text, safe for a terminal and for one line of a log: a hostile server must not
/// control the terminal of its users.
pub(super) fn printable(text: &str) -> String {
    let shown = text.chars().map(|c| match is_shown(c) {
        true => c,
        false => '\u{fffd}',
    });
    shown.take(MOST_WORDS).collect()
}

/// No control characters, and none that change the direction of the text.
fn is_shown(c: char) -> bool {
    let turns =
        matches!(c, '\u{200e}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    !c.is_control() && !turns
}

fn from_code(code: &str, detail: &str, text: String) -> NodeError {
    match code {
        "NOAUTH" | "WRONGPASS" => NodeError::Auth(text),
        "NOPERM" => NodeError::Permission(text),
        "READONLY" | "MASTERDOWN" | "NOREPLICAS" => NodeError::ReadOnly(text),
        "MISCONF" => NodeError::CannotSave(text),
        // Nothing ran, and nothing will: this kind of server cannot store locks.
        "MOVED" | "ASK" | "CLUSTERDOWN" | "CROSSSLOT" => NodeError::Unsuitable(text),
        "ERR" if detail.starts_with("unknown command") => NodeError::Unsuitable(text),
        "OOM" => NodeError::OutOfMemory(text),
        "LOADING" => NodeError::Loading,
        "BUSY" => NodeError::Busy,
        "WRONGTYPE" => NodeError::WrongType(text),
        "ERR" if detail.contains("Authentication required") => NodeError::Auth(text),
        "ERR" if detail.contains("user_script") => match code_within(detail) {
            Some(code) => from_code(code, "", text),
            None => NodeError::Other(text),
        },
        _ => NodeError::Other(text),
    }
}

/// Before Redis 7, a command that fails inside a script hides its code in the text: `Error running
/// script (call to f_…): @user_script:1: WRONGTYPE Operation against …`
fn code_within(text: &str) -> Option<&'static str> {
    let words = text.split([' ', ':', '-']);
    words
        .into_iter()
        .find_map(|word| CODES.into_iter().find(|code| *code == word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_inside_a_script_of_redis_6_is_told_apart() {
        for (text, expected) in [
            (
                "Error running script (call to f_0123): @user_script:3: @user_script: 3: \
                 -OOM command not allowed when used memory > 'maxmemory'.",
                "out of memory",
            ),
            (
                "Error running script (call to f_0123): @user_script:1: WRONGTYPE Operation \
                 against a key holding the wrong kind of value",
                "other than a lock",
            ),
            ("Error running script: @user_script:1: nonsense", "nonsense"),
        ] {
            let error = from_code("ERR", text, text.to_owned()).to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn a_servers_words_cannot_steer_a_terminal() {
        let text = printable("\u{1b}[2J\rgone\n\u{202e}x \u{e4}\u{7}");
        assert_eq!(
            text,
            "\u{fffd}[2J\u{fffd}gone\u{fffd}\u{fffd}x \u{e4}\u{fffd}"
        );
        assert_eq!(printable(&"x".repeat(1000)).len(), MOST_WORDS);
    }

    #[test]
    fn what_will_never_be_done_is_told_apart_from_what_may_pass() {
        let of = |code: &str, detail: &str| from_code(code, detail, format!("{code} {detail}"));
        for never in [
            of("MOVED", "3999 127.0.0.1:6381"),
            of(
                "ERR",
                "unknown command 'EVALSHA', with args beginning with: ",
            ),
            of(
                "NOPERM",
                "User app has no permissions to run the 'evalsha' command",
            ),
            of(
                "WRONGTYPE",
                "Operation against a key holding the wrong kind of value",
            ),
            of(
                "MISCONF",
                "Errors writing to the AOF file: No space left on device",
            ),
        ] {
            assert!(never.is_permanent() && !never.may_pass(), "{never}");
        }
        for passes in [
            of("LOADING", ""),
            of("BUSY", ""),
            of("NOREPLICAS", "x"),
            of("READONLY", "x"),
        ] {
            assert!(!passes.is_permanent(), "{passes}");
        }
    }

    #[test]
    fn a_broken_connection_is_never_called_an_answer() {
        let broken = RedisError::from(std::io::Error::from(std::io::ErrorKind::BrokenPipe));
        assert!(!is_answer(&broken));
        assert!(matches!(node_error(&broken), NodeError::Disconnected(_)));
    }
}
