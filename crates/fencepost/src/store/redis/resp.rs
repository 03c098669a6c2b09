//! Reads what a server says, in the second version of its protocol: pure.
//!
//! It must never take a part of an answer for the whole, nor what was published for an answer.

use redis::{Value, parse_redis_value};

/// What is no answer of a Redis server.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Nonsense;

/// What was published on a channel that a connection has subscribed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct News<'b> {
    pub(super) channel: &'b [u8],
    pub(super) payload: &'b [u8],
}

/// What comes on a connection that may have subscribed.
#[derive(Debug, PartialEq)]
pub(super) enum Said<'b> {
    Answer(Value),
    News(News<'b>),
}

/// How news begin: a list of three, the kind, the channel and the payload.
const NEWS: &[u8] = b"*3\r\n$7\r\nmessage\r\n";
const NEWS_KIND: &[u8] = b"message";
/// How deep answers may be nested. Those to our commands are two deep.
const DEEPEST: usize = 8;
/// The longest text and the longest list that a server sends.
const LONGEST: usize = 512 * 1024 * 1024;

/// The first answer, and how many bytes it takes. `None` while it is not complete.
pub(super) fn read(bytes: &[u8]) -> Result<Option<(Value, usize)>, Nonsense> {
    let mut rest = bytes;
    let value = value(&mut rest, DEEPEST)?;
    Ok(value.map(|value| (value, bytes.len() - rest.len())))
}

/// The first answer or news, and how many bytes it takes. `None` while it is not complete. News are
/// not copied, for there may be many of them.
pub(super) fn read_also_news(bytes: &[u8]) -> Result<Option<(Said<'_>, usize)>, Nonsense> {
    let Some(mut rest) = bytes.strip_prefix(NEWS) else {
        return match read(bytes)? {
            // No command that may be sent on such a connection is answered like that.
            Some((Value::Array(items), _)) if begins_like_news(&items) => Err(Nonsense),
            answer => Ok(answer.map(|(value, taken)| (Said::Answer(value), taken))),
        };
    };
    let Some(channel) = bulk(&mut rest)? else {
        return Ok(None);
    };
    let Some(payload) = bulk(&mut rest)? else {
        return Ok(None);
    };
    let news = Said::News(News { channel, payload });
    Ok(Some((news, bytes.len() - rest.len())))
}

fn begins_like_news(items: &[Value]) -> bool {
    matches!(items.first(), Some(Value::BulkString(kind)) if kind == NEWS_KIND)
}

/// Takes one text off the front, which must be there.
fn bulk<'b>(rest: &mut &'b [u8]) -> Result<Option<&'b [u8]>, Nonsense> {
    let Some(line) = line(rest)? else {
        return Ok(None);
    };
    let (b'$', digits) = line.split_first().ok_or(Nonsense)? else {
        return Err(Nonsense);
    };
    text(rest, length(digits)?.ok_or(Nonsense)?)
}

/// Takes one value off the front.
fn value(rest: &mut &[u8], deepest: usize) -> Result<Option<Value>, Nonsense> {
    let Some(line) = line(rest)? else {
        return Ok(None);
    };
    let (kind, text) = line.split_first().ok_or(Nonsense)?;
    let value = match kind {
        b':' => Value::Int(number(text)?),
        b'+' if text == b"OK" => Value::Okay,
        b'+' => Value::SimpleString(String::from_utf8_lossy(text).into_owned()),
        b'-' => error(line)?,
        b'$' => match length(text)? {
            Some(length) => {
                let text = self::text(rest, length)?;
                return Ok(text.map(|text| Value::BulkString(text.to_vec())));
            }
            None => Value::Nil,
        },
        b'*' => match length(text)? {
            Some(length) => return list(rest, length, deepest),
            None => Value::Nil,
        },
        _ => return Err(Nonsense),
    };
    Ok(Some(value))
}

/// Takes a line off the front, without its end.
fn line<'b>(rest: &mut &'b [u8]) -> Result<Option<&'b [u8]>, Nonsense> {
    let Some(end) = rest.iter().position(|byte| *byte == b'\r') else {
        return Ok(None);
    };
    match rest.get(end + 1) {
        Some(b'\n') => {
            let line = &rest[..end];
            *rest = &rest[end + 2..];
            Ok(Some(line))
        }
        Some(_) => Err(Nonsense),
        None => Ok(None),
    }
}

fn number(text: &[u8]) -> Result<i64, Nonsense> {
    let text = std::str::from_utf8(text).map_err(|_| Nonsense)?;
    text.parse().map_err(|_| Nonsense)
}

/// `None` for what is not there.
fn length(text: &[u8]) -> Result<Option<usize>, Nonsense> {
    match number(text)? {
        -1 => Ok(None),
        length => match usize::try_from(length) {
            Ok(length) if length <= LONGEST => Ok(Some(length)),
            _ => Err(Nonsense),
        },
    }
}

/// Takes so many bytes off the front, and the end of the line behind them.
fn text<'b>(rest: &mut &'b [u8], length: usize) -> Result<Option<&'b [u8]>, Nonsense> {
    let Some((text, behind)) = rest.split_at_checked(length) else {
        return Ok(None);
    };
    match behind {
        [b'\r', b'\n', ..] => {
            *rest = &behind[2..];
            Ok(Some(text))
        }
        [] | [b'\r'] => Ok(None),
        _ => Err(Nonsense),
    }
}

fn list(rest: &mut &[u8], length: usize, deepest: usize) -> Result<Option<Value>, Nonsense> {
    let deepest = deepest.checked_sub(1).ok_or(Nonsense)?;
    // Each item takes three bytes at the least.
    let mut items = Vec::with_capacity(length.min(rest.len() / 3));
    for _ in 0..length {
        match value(rest, deepest)? {
            Some(item) => items.push(item),
            None => return Ok(None),
        }
    }
    Ok(Some(Value::Array(items)))
}

/// An error's words are taken apart by those who know all of them.
fn error(line: &[u8]) -> Result<Value, Nonsense> {
    let line = [line, b"\r\n"].concat();
    parse_redis_value(&line).map_err(|_| Nonsense)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    #[test]
    fn answers_are_read_one_after_the_other() {
        let bytes = b":42\r\n$4\r\nheld\r\n*2\r\n$-1\r\n:-1\r\n+OK\r\n+PONG\r\n*-1\r\n$0\r\n\r\n";
        let mut rest = &bytes[..];
        let mut values = Vec::new();
        while let Some((value, taken)) = read(rest).unwrap() {
            values.push(value);
            rest = &rest[taken..];
        }
        let expected = [
            Value::Int(42),
            bulk("held"),
            Value::Array(vec![Value::Nil, Value::Int(-1)]),
            Value::Okay,
            Value::SimpleString("PONG".into()),
            Value::Nil,
            bulk(""),
        ];
        assert_eq!(values, expected);
        assert!(rest.is_empty());
    }

    #[test]
    fn a_servers_error_keeps_its_code() {
        let (value, taken) = read(b"-NOSCRIPT No matching script.\r\n").unwrap().unwrap();
        assert_eq!(taken, 31);
        let error = value.extract_error().unwrap_err();
        assert_eq!(error.code(), Some("NOSCRIPT"));
    }

    #[test]
    fn what_no_server_says_is_nonsense() {
        for bytes in [
            &b"HTTP/1.1 400 Bad Request\r\n\r\n"[..],
            b"\r\n",
            b":\r\n",
            b":1x\r\n",
            b":1\rx",
            b"$-2\r\n",
            b"$99999999999\r\n",
            b"$1\r\nab\r\n",
            b"*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n",
        ] {
            assert_eq!(read(bytes), Err(Nonsense), "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn news_that_are_no_news_are_nonsense_and_other_lists_are_answers() {
        for bytes in [
            &b"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n:1\r\n"[..],
            b"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$-1\r\n",
            b"*3\r\n$7\r\nmessage\r\n$1\r\ncc\r\n",
            b"*2\r\n$7\r\nmessage\r\n$1\r\nc\r\n",
            b"*4\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\np\r\n:1\r\n",
        ] {
            let said = read_also_news(bytes);
            assert_eq!(said, Err(Nonsense), "{}", bytes.escape_ascii());
        }
        let subscribed = b"*3\r\n$9\r\nsubscribe\r\n$7\r\nmessage\r\n:1\r\n";
        let items = vec![bulk("subscribe"), bulk("message"), Value::Int(1)];
        let answer = Said::Answer(Value::Array(items));
        let whole = Ok(Some((answer, subscribed.len())));
        assert_eq!(read_also_news(subscribed), whole);
    }

    fn answers() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<i64>().prop_map(Value::Int),
            prop::collection::vec(any::<u8>(), 0..20).prop_map(Value::BulkString),
            Just(Value::Nil),
            Just(Value::Okay),
        ];
        leaf.prop_recursive(3, 20, 5, |inner| {
            prop::collection::vec(inner, 0..5).prop_map(Value::Array)
        })
    }

    fn write(value: &Value, bytes: &mut Vec<u8>) {
        match value {
            Value::Int(n) => bytes.extend(format!(":{n}\r\n").bytes()),
            Value::BulkString(text) => {
                bytes.extend(format!("${}\r\n", text.len()).bytes());
                bytes.extend(text);
                bytes.extend(b"\r\n");
            }
            Value::Array(items) => {
                bytes.extend(format!("*{}\r\n", items.len()).bytes());
                items.iter().for_each(|item| write(item, bytes));
            }
            Value::Okay => bytes.extend(b"+OK\r\n"),
            _ => bytes.extend(b"$-1\r\n"),
        }
    }

    proptest! {
        #[test]
        fn an_answer_is_read_whole_or_not_at_all(value in answers(), other in answers()) {
            let mut bytes = Vec::new();
            write(&value, &mut bytes);
            let length = bytes.len();
            for cut in 0..length {
                prop_assert_eq!(read(&bytes[..cut]), Ok(None));
            }
            write(&other, &mut bytes);
            prop_assert_eq!(read(&bytes), Ok(Some((value, length))));
        }

        #[test]
        fn news_are_read_whole_or_not_at_all(
            channel in prop::collection::vec(any::<u8>(), 0..20),
            payload in prop::collection::vec(any::<u8>(), 0..20),
            other in answers(),
        ) {
            let mut bytes = Vec::new();
            let texts = [NEWS_KIND, &channel, &payload];
            let items = texts.map(|text| Value::BulkString(text.to_vec()));
            write(&Value::Array(items.to_vec()), &mut bytes);
            let length = bytes.len();
            for cut in 0..length {
                prop_assert_eq!(read_also_news(&bytes[..cut]), Ok(None));
            }
            write(&other, &mut bytes);
            let news = Said::News(News { channel: &channel, payload: &payload });
            prop_assert_eq!(read_also_news(&bytes), Ok(Some((news, length))));
            let answer = Said::Answer(other);
            let behind = Ok(Some((answer, bytes.len() - length)));
            prop_assert_eq!(read_also_news(&bytes[length..]), behind);
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&bytes);
            let _ = read_also_news(&bytes);
            let _ = read_also_news(&[NEWS, &bytes].concat());
        }
    }
}
