//! Parses RESP2 and RESP3. Pure.
//!
//! It must never take part of a reply for the whole, nor a published message for a reply.
//!
//! A server may be hostile: [`Frame`] finds the end of a reply while its bytes arrive, looks at
//! each byte once, and gives up at the limits below. Values are built only from a complete reply.

use super::value::Value;
use crate::store::redis::fault::ServerError;

/// Not a valid reply of a Redis server.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Nonsense;

/// A message published on a subscribed channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message<'b> {
    pub(crate) channel: &'b [u8],
    pub(crate) payload: &'b [u8],
}

/// What arrives on a connection that may have subscribed.
#[derive(Debug, PartialEq)]
pub(crate) enum Said<'b> {
    Answer(Value),
    Message(Message<'b>),
    /// The server no longer tracks a key for us, or the key was changed: `CLIENT TRACKING`.
    Invalidation,
}

/// The start of a message: an array of three, the kind, the channel and the payload. The second kind is published
/// in one shard of a Cluster.
const MESSAGES: [&[u8]; 2] = [b"*3\r\n$7\r\nmessage\r\n", b"*3\r\n$8\r\nsmessage\r\n"];
const MESSAGE_KINDS: [&[u8]; 2] = [b"message", b"smessage"];
/// Maximum nesting of replies. Replies to our commands are two deep.
const DEEPEST: usize = 8;
/// Maximum size of a reply. The largest to our commands is a step of SCAN, below a megabyte.
pub(crate) const MOST_BYTES: usize = 4 * 1024 * 1024;
/// Maximum number of values in a reply.
const MOST_ITEMS: usize = 64 * 1024;
/// Maximum length of a line: an error, or the header of a bulk string or array.
const LONGEST_LINE: usize = 64 * 1024;

/// Finds the end of the reply at the front of a buffer, incrementally.
#[derive(Debug, Default)]
pub(crate) struct Frame {
    /// Bytes that are known to belong to it.
    scanned: usize,
    /// Bytes after those without a line end.
    without_end: usize,
    /// The length of the bulk string that comes next.
    text: Option<usize>,
    /// The number of missing values of each open array.
    open: Vec<usize>,
    /// The number of values so far.
    items: usize,
}

impl Frame {
    /// The length of the reply. `None` while incomplete; call again with more bytes appended.
    pub(crate) fn end(&mut self, bytes: &[u8]) -> Result<Option<usize>, Nonsense> {
        loop {
            if self.scanned > MOST_BYTES {
                return Err(Nonsense);
            }
            let mut rest = &bytes[self.scanned..];
            let is_whole = match self.text {
                Some(length) => {
                    if text(&mut rest, length)?.is_none() {
                        return Ok(None);
                    }
                    self.text = None;
                    true
                }
                None => match self.line(&mut rest)? {
                    Some(is_whole) => is_whole,
                    None => return Ok(None),
                },
            };
            self.scanned = bytes.len() - rest.len();
            if is_whole && self.is_last() {
                return Ok(Some(self.scanned));
            }
        }
    }

    /// Consumes a line. Returns whether a value ends with it.
    fn line(&mut self, rest: &mut &[u8]) -> Result<Option<bool>, Nonsense> {
        let looked = self.without_end.min(rest.len());
        if !rest[looked..].contains(&b'\r') {
            self.without_end = rest.len();
            return match rest.len() > LONGEST_LINE {
                true => Err(Nonsense),
                false => Ok(None),
            };
        }
        let Some(line) = line(rest)? else {
            return Ok(None);
        };
        self.without_end = 0;
        self.items += 1;
        if self.items > MOST_ITEMS || line.len() > LONGEST_LINE {
            return Err(Nonsense);
        }
        let (kind, digits) = line.split_first().ok_or(Nonsense)?;
        let items = match kind {
            b'$' | b'=' => {
                self.text = length(digits)?;
                return Ok(Some(self.text.is_none()));
            }
            b'*' | b'~' | b'>' => length(digits)?.unwrap_or(0),
            b'%' => 2 * length(digits)?.unwrap_or(0),
            _ => 0,
        };
        if items > MOST_ITEMS || self.open.len() >= DEEPEST {
            return Err(Nonsense);
        }
        if items > 0 {
            self.open.push(items);
        }
        Ok(Some(items == 0))
    }

    /// A value is complete. Returns whether the reply is.
    fn is_last(&mut self) -> bool {
        while let Some(missing) = self.open.last_mut() {
            *missing -= 1;
            if *missing > 0 {
                return false;
            }
            self.open.pop();
        }
        true
    }
}

/// The first reply and its length. `None` while incomplete.
pub(crate) fn read(bytes: &[u8]) -> Result<Option<(Value, usize)>, Nonsense> {
    let mut rest = bytes;
    let value = value(&mut rest, DEEPEST)?;
    Ok(value.map(|value| (value, bytes.len() - rest.len())))
}

/// The first reply or push and its length. `None` while incomplete. Messages are not copied,
/// because there may be many of them.
pub(crate) fn read_with_pushes(bytes: &[u8]) -> Result<Option<(Said<'_>, usize)>, Nonsense> {
    if bytes.first() == Some(&b'>') {
        return pushed(bytes);
    }
    let mut starts = MESSAGES.iter();
    let Some(mut rest) = starts.find_map(|start| bytes.strip_prefix(*start)) else {
        return match read(bytes)? {
            // No command that may be sent on such a connection has such a reply.
            Some((Value::Array(items), _)) if begins_like_message(&items) => Err(Nonsense),
            answer => Ok(answer.map(|(value, taken)| (Said::Answer(value), taken))),
        };
    };
    let Some(channel) = bulk(&mut rest)? else {
        return Ok(None);
    };
    let Some(payload) = bulk(&mut rest)? else {
        return Ok(None);
    };
    let message = Said::Message(Message { channel, payload });
    Ok(Some((message, bytes.len() - rest.len())))
}

/// A RESP3 push between replies, laid out like an array. Only expected kinds are valid.
fn pushed(bytes: &[u8]) -> Result<Option<(Said<'_>, usize)>, Nonsense> {
    let mut rest = bytes;
    let Some(line) = line(&mut rest)? else {
        return Ok(None);
    };
    let items = length(&line[1..])?.ok_or(Nonsense)?;
    match list(&mut rest, items, DEEPEST)?.as_deref() {
        Some([Value::BulkString(kind), ..]) if kind == b"invalidate" => {
            Ok(Some((Said::Invalidation, bytes.len() - rest.len())))
        }
        Some(_) => Err(Nonsense),
        None => Ok(None),
    }
}

fn begins_like_message(items: &[Value]) -> bool {
    matches!(items.first(), Some(Value::BulkString(kind)) if MESSAGE_KINDS.contains(&&**kind))
}

/// Consumes one bulk string, which must be present.
fn bulk<'b>(rest: &mut &'b [u8]) -> Result<Option<&'b [u8]>, Nonsense> {
    let Some(line) = line(rest)? else {
        return Ok(None);
    };
    let (b'$', digits) = line.split_first().ok_or(Nonsense)? else {
        return Err(Nonsense);
    };
    text(rest, length(digits)?.ok_or(Nonsense)?)
}

/// Consumes one value.
fn value(rest: &mut &[u8], deepest: usize) -> Result<Option<Value>, Nonsense> {
    let Some(line) = line(rest)? else {
        return Ok(None);
    };
    let (kind, text) = line.split_first().ok_or(Nonsense)?;
    let value = match kind {
        b':' => Value::Int(number(text)?),
        b'+' => Value::SimpleString(String::from_utf8_lossy(text).into_owned()),
        b'-' => Value::ServerError(ServerError::new(text)),
        b'$' => match length(text)? {
            Some(length) => {
                let text = self::text(rest, length)?;
                return Ok(text.map(|text| Value::BulkString(text.to_vec())));
            }
            None => Value::Nil,
        },
        b'*' => match length(text)? {
            Some(length) => return Ok(list(rest, length, deepest)?.map(Value::Array)),
            None => Value::Nil,
        },
        b'~' => {
            let length = length(text)?.ok_or(Nonsense)?;
            return Ok(list(rest, length, deepest)?.map(Value::Array));
        }
        b'%' => {
            let length = 2 * length(text)?.ok_or(Nonsense)?;
            return Ok(list(rest, length, deepest)?.map(Value::Array));
        }
        b'=' => return verbatim(rest, length(text)?.ok_or(Nonsense)?),
        b'_' if text.is_empty() => Value::Nil,
        b'#' if text == b"t" => Value::Int(1),
        b'#' if text == b"f" => Value::Int(0),
        b',' => match std::str::from_utf8(text).map(str::parse::<f64>) {
            Ok(Ok(_)) => Value::BulkString(text.to_vec()),
            _ => return Err(Nonsense),
        },
        _ => return Err(Nonsense),
    };
    Ok(Some(value))
}

/// Consumes a line, without its end.
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

/// `None` for a null.
fn length(text: &[u8]) -> Result<Option<usize>, Nonsense> {
    match number(text)? {
        -1 => Ok(None),
        length => match usize::try_from(length) {
            Ok(length) if length <= MOST_BYTES => Ok(Some(length)),
            _ => Err(Nonsense),
        },
    }
}

/// Consumes this many bytes and the line end after them.
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

fn list(rest: &mut &[u8], length: usize, deepest: usize) -> Result<Option<Vec<Value>>, Nonsense> {
    let deepest = deepest.checked_sub(1).ok_or(Nonsense)?;
    // Each item takes at least three bytes.
    let mut items = Vec::with_capacity(length.min(rest.len() / 3));
    for _ in 0..length {
        match value(rest, deepest)? {
            Some(item) => items.push(item),
            None => return Ok(None),
        }
    }
    Ok(Some(items))
}

/// A verbatim string: three letters of its format and a colon before the text.
fn verbatim(rest: &mut &[u8], length: usize) -> Result<Option<Value>, Nonsense> {
    let Some(text) = self::text(rest, length)? else {
        return Ok(None);
    };
    let text = text.split_at_checked(4).ok_or(Nonsense)?.1;
    Ok(Some(Value::BulkString(text.to_vec())))
}

#[cfg(test)]
pub(crate) mod tests {
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
            Value::SimpleString("OK".into()),
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
        assert!(matches!(value, Value::ServerError(error) if error.is_no_script()));
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
            let said = read_with_pushes(bytes);
            assert_eq!(said, Err(Nonsense), "{}", bytes.escape_ascii());
        }
        let subscribed = b"*3\r\n$9\r\nsubscribe\r\n$7\r\nmessage\r\n:1\r\n";
        let items = vec![bulk("subscribe"), bulk("message"), Value::Int(1)];
        let answer = Said::Answer(Value::Array(items));
        let whole = Ok(Some((answer, subscribed.len())));
        assert_eq!(read_with_pushes(subscribed), whole);
    }

    #[test]
    fn the_third_version_of_the_protocol_is_read_too() {
        let invalidated = b">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n";
        let whole = Ok(Some((Said::Invalidation, invalidated.len())));
        assert_eq!(read_with_pushes(invalidated), whole);
        let flushed = b">2\r\n$10\r\ninvalidate\r\n_\r\n";
        let whole = Ok(Some((Said::Invalidation, flushed.len())));
        assert_eq!(read_with_pushes(flushed), whole);
        let message = b">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\np\r\n";
        assert_eq!(
            read_with_pushes(message),
            Err(Nonsense),
            "nobody subscribed"
        );
        let bytes = b"%1\r\n$1\r\na\r\n,1.5\r\n=5\r\ntxt:b\r\n~1\r\n#t\r\n_\r\n";
        let mut rest = &bytes[..];
        let mut values = Vec::new();
        while !rest.is_empty() {
            let end = Frame::default().end(rest).unwrap().unwrap();
            let (value, taken) = read(rest).unwrap().unwrap();
            assert_eq!(end, taken);
            values.push(value);
            rest = &rest[taken..];
        }
        let expected = [
            Value::Array(vec![bulk("a"), bulk("1.5")]),
            bulk("b"),
            Value::Array(vec![Value::Int(1)]),
            Value::Nil,
        ];
        assert_eq!(values, expected);
    }

    #[test]
    fn a_reply_beyond_its_limits_is_nonsense_before_it_is_read() {
        for bytes in [
            &b"*400000000\r\n"[..],
            b"%40000\r\n",
            b"$536870912\r\n",
            &[b"+", "x".repeat(LONGEST_LINE + 1).as_bytes()].concat(),
            &b"*1\r\n".repeat(DEEPEST + 1),
            &b"*60000\r\n"
                .repeat(2)
                .into_iter()
                .chain(b":1\r\n".repeat(MOST_ITEMS))
                .collect::<Vec<_>>(),
        ] {
            let mut frame = Frame::default();
            let outcome = frame.end(bytes);
            assert_eq!(outcome, Err(Nonsense), "{}", bytes.escape_ascii());
        }
    }

    fn answers() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<i64>().prop_map(Value::Int),
            prop::collection::vec(any::<u8>(), 0..20).prop_map(Value::BulkString),
            Just(Value::Nil),
            "[^\r\n]{0,20}".prop_map(Value::SimpleString),
            "[^\r\n]{0,20}".prop_map(|line| Value::ServerError(ServerError::new(line.as_bytes()))),
        ];
        leaf.prop_recursive(3, 20, 5, |inner| {
            prop::collection::vec(inner, 0..5).prop_map(Value::Array)
        })
    }

    /// Replies of all kinds, as a server sends them.
    pub(crate) fn replies() -> impl Strategy<Value = Vec<u8>> {
        answers().prop_map(|value| {
            let mut bytes = Vec::new();
            write(&value, &mut bytes);
            bytes
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
            Value::SimpleString(text) => bytes.extend(format!("+{text}\r\n").bytes()),
            Value::ServerError(error) => bytes.extend(format!("-{}\r\n", error.0).bytes()),
            Value::Nil => bytes.extend(b"$-1\r\n"),
        }
    }

    proptest! {
        #[test]
        fn an_answer_is_read_whole_or_not_at_all(value in answers(), other in answers()) {
            let mut bytes = Vec::new();
            write(&value, &mut bytes);
            let length = bytes.len();
            let mut frame = Frame::default();
            for cut in 0..length {
                prop_assert_eq!(read(&bytes[..cut]), Ok(None));
                prop_assert_eq!(frame.end(&bytes[..cut]), Ok(None));
            }
            write(&other, &mut bytes);
            prop_assert_eq!(frame.end(&bytes), Ok(Some(length)));
            prop_assert_eq!(read(&bytes), Ok(Some((value, length))));
        }

        #[test]
        fn news_are_read_whole_or_not_at_all(
            kind in prop::sample::select(&MESSAGE_KINDS[..]),
            channel in prop::collection::vec(any::<u8>(), 0..20),
            payload in prop::collection::vec(any::<u8>(), 0..20),
            other in answers(),
        ) {
            let mut bytes = Vec::new();
            let texts = [kind, &channel, &payload];
            let items = texts.map(|text| Value::BulkString(text.to_vec()));
            write(&Value::Array(items.to_vec()), &mut bytes);
            let length = bytes.len();
            for cut in 0..length {
                prop_assert_eq!(read_with_pushes(&bytes[..cut]), Ok(None));
            }
            write(&other, &mut bytes);
            let message = Said::Message(Message { channel: &channel, payload: &payload });
            prop_assert_eq!(read_with_pushes(&bytes), Ok(Some((message, length))));
            let answer = Said::Answer(other);
            let behind = Ok(Some((answer, bytes.len() - length)));
            prop_assert_eq!(read_with_pushes(&bytes[length..]), behind);
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&bytes);
            let mut frame = Frame::default();
            for cut in 0..bytes.len() {
                let _ = frame.end(&bytes[..cut]);
            }
            let _ = read_with_pushes(&bytes);
            for message in MESSAGES {
                let _ = read_with_pushes(&[message, &bytes].concat());
            }
        }
    }
}
