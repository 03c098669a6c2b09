//! [`Stored`]: a value as a node stores it, with the token of its holder.

use super::token::FencingToken;
use super::value::{AttemptValue, is_our_uuid};

/// A value as stored, with the token of its holder: `random:token:label`, or `uuid:number:token`
/// for a reentrant lock. A foreign value has no token.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Stored {
    /// The holder's value.
    pub value: AttemptValue,
    /// The holder's own token.
    pub token: Option<FencingToken>,
}

impl Stored {
    /// Parses a stored value.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        Self::with_token(text).unwrap_or_else(|| Self {
            value: AttemptValue::reported(text),
            token: None,
        })
    }

    fn with_token(text: &str) -> Option<Self> {
        let (unique, rest) = text.split_once(':')?;
        let (first, second) = rest.split_once(':')?;
        let (label, token) = match is_our_uuid(unique) {
            true => (first, second),
            false => (second, first),
        };
        if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let value = AttemptValue::reported(format!("{unique}:{label}"));
        let token = token
            .parse()
            .map_or(FencingToken::MAX, FencingToken::saturating);
        value.has_token().then_some(Self {
            value,
            token: Some(token),
        })
    }

    /// The stored form.
    #[must_use]
    pub fn text(&self) -> String {
        match (self.token, self.value.as_str().split_once(':')) {
            (Some(token), Some((unique, label))) if self.value.is_labelled() => {
                format!("{unique}:{token}:{label}")
            }
            (Some(token), _) if self.value.is_reentrant() => {
                format!("{}:{token}", self.value.as_str())
            }
            _ => self.value.as_str().to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::value::SHARED;
    use super::*;

    #[test]
    fn a_stored_value_tells_the_holders_token_and_a_foreign_one_none() {
        let random = "0123456789abcdef0123456789abcdef";
        let uuid = "6f0829ed-bfd3-8e6f-bba3-6f3d66cd176c";
        for (value, token, text) in [
            (format!("{random}:me"), Some(7), format!("{random}:7:me")),
            (format!("{random}:"), Some(7), format!("{random}:7:")),
            (format!("{random}:8:b"), Some(7), format!("{random}:7:8:b")),
            (format!("{uuid}:5"), Some(7), format!("{uuid}:5:7")),
            (format!("{uuid}:5"), None, format!("{uuid}:5")),
            (format!("{random}:me"), None, format!("{random}:me")),
            ("theirs:7:x".into(), None, "theirs:7:x".into()),
            (random.into(), None, random.into()),
            (SHARED.into(), None, SHARED.into()),
        ] {
            let token = token.and_then(FencingToken::new);
            let value = AttemptValue::reported(value);
            let stored = Stored { value, token };
            assert_eq!(stored.text(), text);
            assert_eq!(Stored::parse(&text), stored);
        }
        let broken = format!("{random}:{}:me", "9".repeat(40));
        assert_eq!(Stored::parse(&broken).token, Some(FencingToken::MAX));
    }
}
