//! [`Value`]: a server's reply, and what can be read from it.
//!
//! The third version of the protocol says some things by kinds of their own. They are kept as the second one says
//! them, so that nobody has to know which of the two a connection speaks.
//!
//! By hand for the reason that [`command`](super::command) gives.

use std::collections::HashMap;
use std::fmt;

use crate::store::redis::fault::{self, ServerError};

/// A reply, or a part of one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Value {
    #[default]
    Nil,
    /// Also true and false: 1 and 0.
    Int(i64),
    SimpleString(String),
    /// Also text whose format is told, and a fraction.
    BulkString(Vec<u8>),
    /// Also a set; and a map, whose values stand behind their keys.
    Array(Vec<Value>),
    ServerError(ServerError),
}

/// A reply that is not what was asked for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unexpected {
    wanted: &'static str,
    got: Value,
}

impl fmt::Display for Unexpected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected {}, got {}", self.wanted, self.got)
    }
}

/// The most that is shown of a list.
const MOST_SHOWN: usize = 4;

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nil => f.write_str("nothing"),
            Self::Int(number) => write!(f, "{number}"),
            Self::SimpleString(text) => write!(f, "\"{}\"", fault::printable(text)),
            Self::BulkString(bytes) => {
                let text = fault::text_or_hex(bytes);
                write!(f, "\"{}\"", fault::printable(&text))
            }
            Self::Array(items) => {
                f.write_str("[")?;
                for (n, item) in items.iter().take(MOST_SHOWN).enumerate() {
                    let comma = if n > 0 { ", " } else { "" };
                    match item {
                        Self::Array(items) => write!(f, "{comma}a list of {}", items.len())?,
                        item => write!(f, "{comma}{item}")?,
                    }
                }
                match items.len().saturating_sub(MOST_SHOWN) {
                    0 => f.write_str("]"),
                    more => write!(f, ", and {more} more]"),
                }
            }
            Self::ServerError(error) => write!(f, "the error {error}"),
        }
    }
}

/// What a reply can be read as.
pub(crate) trait FromValue: Sized {
    fn from_value(value: Value) -> Result<Self, Unexpected>;
}

impl Value {
    /// What it says, if it is of that kind.
    pub(crate) fn read<T: FromValue>(self) -> Result<T, Unexpected> {
        T::from_value(self)
    }

    /// A list of pairs, in the form of either version of the protocol: one after the other, or each a list of its own.
    pub(crate) fn pairs<A: FromValue, B: FromValue>(self) -> Result<Vec<(A, B)>, Unexpected> {
        match self {
            Self::Array(items) if !matches!(items.first(), Some(Self::Array(_))) => {
                if items.len() % 2 != 0 {
                    return Self::Array(items).unexpected("pairs");
                }
                let mut pairs = Vec::with_capacity(items.len() / 2);
                let mut items = items.into_iter();
                while let (Some(one), Some(other)) = (items.next(), items.next()) {
                    pairs.push((one.read()?, other.read()?));
                }
                Ok(pairs)
            }
            other => other.read(),
        }
    }

    fn unexpected<T>(self, wanted: &'static str) -> Result<T, Unexpected> {
        Err(Unexpected { wanted, got: self })
    }
}

impl FromValue for Value {
    fn from_value(value: Value) -> Result<Self, Unexpected> {
        Ok(value)
    }
}

impl FromValue for String {
    fn from_value(value: Value) -> Result<Self, Unexpected> {
        match value {
            Value::SimpleString(text) => Ok(text),
            Value::Int(number) => Ok(number.to_string()),
            Value::BulkString(bytes) => String::from_utf8(bytes)
                .or_else(|error| Value::BulkString(error.into_bytes()).unexpected("text")),
            other => other.unexpected("text"),
        }
    }
}

macro_rules! numbers {
    ($($number:ty),+) => {$(
        impl FromValue for $number {
            fn from_value(value: Value) -> Result<Self, Unexpected> {
                let number = match &value {
                    Value::Int(number) => <$number>::try_from(*number).ok(),
                    other => other.as_text().and_then(|text| text.parse().ok()),
                };
                number.map_or_else(|| value.unexpected("a number"), Ok)
            }
        }
    )+};
}
numbers!(u16, u32, u64, i64);

impl FromValue for f64 {
    fn from_value(value: Value) -> Result<Self, Unexpected> {
        let number = match &value {
            Value::Int(number) => Some(*number as f64),
            other => other.as_text().and_then(|text| text.parse().ok()),
        };
        number.map_or_else(|| value.unexpected("a number"), Ok)
    }
}

impl Value {
    fn as_text(&self) -> Option<&str> {
        match self {
            Self::SimpleString(text) => Some(text),
            Self::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
            _ => None,
        }
    }
}

impl<T: FromValue> FromValue for Option<T> {
    fn from_value(value: Value) -> Result<Self, Unexpected> {
        match value {
            Value::Nil => Ok(None),
            value => value.read().map(Some),
        }
    }
}

impl<T: FromValue> FromValue for Vec<T> {
    fn from_value(value: Value) -> Result<Self, Unexpected> {
        match value {
            Value::Array(items) => items.into_iter().map(T::from_value).collect(),
            other => other.unexpected("a list"),
        }
    }
}

impl<A: FromValue, B: FromValue> FromValue for (A, B) {
    fn from_value(value: Value) -> Result<Self, Unexpected> {
        match value {
            Value::Array(items) => match <[Value; 2]>::try_from(items) {
                Ok([one, other]) => Ok((one.read()?, other.read()?)),
                Err(items) => Value::Array(items).unexpected("a pair"),
            },
            other => other.unexpected("a pair"),
        }
    }
}

impl FromValue for HashMap<String, String> {
    fn from_value(value: Value) -> Result<Self, Unexpected> {
        value.pairs().map(|pairs| pairs.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::redis::protocol::resp;
    use proptest::prelude::*;

    fn said(bytes: &[u8]) -> Value {
        let (value, taken) = resp::read(bytes).unwrap().unwrap();
        assert_eq!(taken, bytes.len());
        value
    }

    #[test]
    fn both_versions_of_the_protocol_say_the_same() {
        let map = |bytes: &[u8]| said(bytes).read::<HashMap<String, String>>().unwrap();
        let config = map(b"*2\r\n$4\r\nsave\r\n$0\r\n\r\n");
        assert_eq!(config, HashMap::from([("save".to_owned(), String::new())]));
        assert_eq!(map(b"%1\r\n$4\r\nsave\r\n$0\r\n\r\n"), config);
        assert_eq!(map(b"*0\r\n"), HashMap::new());
        let scores = vec![("a".to_owned(), 1.5), ("b".to_owned(), 2.0)];
        for bytes in [
            &b"*4\r\n$1\r\na\r\n$3\r\n1.5\r\n$1\r\nb\r\n$1\r\n2\r\n"[..],
            b"*2\r\n*2\r\n$1\r\na\r\n,1.5\r\n*2\r\n$1\r\nb\r\n,2\r\n",
        ] {
            assert_eq!(said(bytes).pairs(), Ok(scores.clone()));
        }
        for nil in [&b"$-1\r\n"[..], b"*-1\r\n", b"_\r\n"] {
            assert_eq!(said(nil).read::<Option<String>>(), Ok(None));
        }
        for text in [
            &b"$2\r\n17\r\n"[..],
            b"=6\r\ntxt:17\r\n",
            b"+17\r\n",
            b":17\r\n",
        ] {
            assert_eq!(said(text).read::<String>().unwrap(), "17");
            assert_eq!(said(text).read::<u16>(), Ok(17));
            assert_eq!(said(text).read::<Option<f64>>(), Ok(Some(17.0)));
        }
    }

    #[test]
    fn what_does_not_fit_is_said_to_be_so_and_never_cut() {
        fn why<T: FromValue + fmt::Debug>(bytes: &[u8]) -> String {
            said(bytes).read::<T>().unwrap_err().to_string()
        }
        assert_eq!(why::<u16>(b":65536\r\n"), "expected a number, got 65536");
        assert_eq!(why::<u64>(b":-1\r\n"), "expected a number, got -1");
        assert_eq!(why::<i64>(b"$1\r\nx\r\n"), "expected a number, got \"x\"");
        assert_eq!(
            why::<String>(b"$1\r\n\xff\r\n"),
            "expected text, got \"0xff\""
        );
        assert_eq!(
            why::<(u64, u64)>(b"*1\r\n:1\r\n"),
            "expected a pair, got [1]"
        );
        assert_eq!(why::<Vec<u64>>(b"_\r\n"), "expected a list, got nothing");
        let odd = b"*7\r\n:1\r\n:2\r\n:3\r\n:4\r\n:5\r\n:6\r\n-ERR no \x1b[2J\r\n";
        let expected = "expected pairs, got [1, 2, 3, 4, and 3 more]";
        assert_eq!(why::<HashMap<String, String>>(odd), expected);
        let refused = b"-ERR no \x1b[2J\r\n";
        assert_eq!(
            why::<String>(refused),
            "expected text, got the error ERR no \u{fffd}[2J"
        );
    }

    proptest! {
        /// Whatever a server answers to whatever was asked, and what is made of it stays short and on one line.
        #[test]
        fn no_reply_makes_it_panic(bytes in resp::tests::replies()) {
            let value = said(&bytes);
            let mut refusals = vec![
                value.clone().read::<String>().err(),
                value.clone().read::<u16>().err(),
                value.clone().read::<u32>().err(),
                value.clone().read::<i64>().err(),
                value.clone().read::<f64>().err(),
                value.clone().read::<(u64, u64)>().err(),
                value.clone().read::<(String, Vec<Value>)>().err(),
                value.clone().read::<Vec<Option<f64>>>().err(),
                value.clone().read::<Vec<HashMap<String, String>>>().err(),
                value.clone().read::<HashMap<String, String>>().err(),
            ];
            refusals.push(value.pairs::<String, f64>().err());
            for refusal in refusals.into_iter().flatten() {
                let text = refusal.to_string();
                prop_assert!(!text.chars().any(char::is_control), "{text:?}");
            }
        }
    }
}
