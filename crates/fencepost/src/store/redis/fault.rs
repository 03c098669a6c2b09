//! What a server or a connection said, in the words of [`NodeError`].
//!
//! It must never call something a mere refusal that may have taken effect: what is not an answer
//! of the server is [`NodeError::Disconnected`].

use redis::{ErrorKind, RedisError, ServerErrorKind};

use crate::error::NodeError;

/// The codes that are looked for in the text of a script's failure.
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

/// Whether the server answered at all.
pub(super) fn is_answer(error: &RedisError) -> bool {
    !matches!(error.kind(), ErrorKind::Io | ErrorKind::Parse)
}

/// Whether the script is not there, which proves that nothing was done.
pub(super) fn is_no_script(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

/// The error in the words of a node.
pub(super) fn node_error(error: &RedisError) -> NodeError {
    if !is_answer(error) {
        return NodeError::Disconnected(error.to_string());
    }
    let detail = error.detail().unwrap_or_default();
    if error.kind() == ErrorKind::AuthenticationFailed {
        return NodeError::Auth(error.category().to_owned());
    }
    let code = error.code().unwrap_or_default();
    let text = if detail.is_empty() {
        error.to_string()
    } else {
        format!("{code} {detail}")
    };
    from_code(code, detail, text)
}

fn from_code(code: &str, detail: &str, text: String) -> NodeError {
    match code {
        "NOAUTH" | "WRONGPASS" => NodeError::Auth(text),
        "NOPERM" => NodeError::Permission(text),
        "READONLY" | "MISCONF" | "MASTERDOWN" | "NOREPLICAS" => NodeError::ReadOnly(text),
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
                "not a lock",
            ),
            ("Error running script: @user_script:1: nonsense", "nonsense"),
        ] {
            let error = from_code("ERR", text, text.to_owned()).to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn a_broken_connection_is_never_called_an_answer() {
        let broken = RedisError::from(std::io::Error::from(std::io::ErrorKind::BrokenPipe));
        assert!(!is_answer(&broken));
        assert!(matches!(node_error(&broken), NodeError::Disconnected(_)));
    }
}
