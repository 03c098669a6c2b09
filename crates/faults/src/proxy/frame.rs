//! Where one RESP message ends and the next begins. Pure.
//!
//! It reads no more of a message than its shape and the name of a command; the bytes go on as they
//! are.

use std::io;

/// What nests deeper than this is not a message of ours.
const DEEPEST: usize = 16;

/// The length of the first message in `bytes`, if all of it is there.
///
/// # Errors
/// When it is no message.
pub(super) fn first_message(bytes: &[u8]) -> io::Result<Option<usize>> {
    end_of(bytes, 0, 0)
}

fn end_of(bytes: &[u8], from: usize, depth: usize) -> io::Result<Option<usize>> {
    let Some((line, after)) = line(bytes, from) else {
        return Ok(None);
    };
    if depth > DEEPEST {
        return Err(broken("too deep"));
    }
    let (kind, rest) = line.split_first().ok_or_else(|| broken("an empty line"))?;
    let parts = match kind {
        b'+' | b'-' | b':' | b'_' | b'#' | b',' | b'(' => return Ok(Some(after)),
        b'$' | b'!' | b'=' => {
            let end = match number(rest)? {
                -1 => after,
                len => after + usize::try_from(len).map_err(|_| broken("a length"))? + 2,
            };
            return Ok((end <= bytes.len()).then_some(end));
        }
        b'*' | b'~' | b'>' => number(rest)?.max(0),
        b'%' | b'|' => 2 * number(rest)?.max(0),
        _ => return Err(broken("an unknown kind of message")),
    };
    let mut at = after;
    for _ in 0..parts {
        match end_of(bytes, at, depth + 1)? {
            Some(end) => at = end,
            None => return Ok(None),
        }
    }
    Ok(Some(at))
}

fn line(bytes: &[u8], from: usize) -> Option<(&[u8], usize)> {
    let rest = bytes.get(from..)?;
    let end = rest.windows(2).position(|pair| pair == b"\r\n")?;
    Some((&rest[..end], from + end + 2))
}

fn number(digits: &[u8]) -> io::Result<i64> {
    let text = std::str::from_utf8(digits).map_err(|_| broken("a number"))?;
    text.parse().map_err(|_| broken("a number"))
}

fn broken(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("not RESP: {what}"))
}

/// The name of the command that a whole message asks for, in capitals.
#[must_use]
pub(super) fn command_name(message: &[u8]) -> String {
    let name = line(message, 0)
        .and_then(|(_, after)| line(message, after))
        .and_then(|(_, after)| line(message, after));
    name.map_or(String::new(), |(name, _)| {
        String::from_utf8_lossy(name).to_uppercase()
    })
}

/// Whether the message belongs to no request.
#[must_use]
pub(super) fn is_push(message: &[u8]) -> bool {
    message.first() == Some(&b'>')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_ends_where_it_ends_and_not_before() {
        let messages: [&[u8]; 8] = [
            b"+OK\r\n",
            b":42\r\n",
            b"$3\r\na\r\n\r\n",
            b"$-1\r\n",
            b"*2\r\n$1\r\na\r\n:1\r\n",
            b"*-1\r\n",
            b"%1\r\n+a\r\n*1\r\n_\r\n",
            b">2\r\n+m\r\n#t\r\n",
        ];
        for message in messages {
            for part in 0..message.len() {
                assert_eq!(first_message(&message[..part]).unwrap(), None);
            }
            let two = [message, message].concat();
            assert_eq!(first_message(&two).unwrap(), Some(message.len()));
        }
    }

    #[test]
    fn what_is_no_message_is_refused() {
        assert!(first_message(b"GET a\r\n").is_err());
        assert!(first_message(b"$x\r\n").is_err());
        assert!(first_message(&b"*1\r\n".repeat(30)).is_err());
    }

    #[test]
    fn a_command_is_known_by_its_name() {
        assert_eq!(
            command_name(b"*2\r\n$7\r\nevalsha\r\n$1\r\na\r\n"),
            "EVALSHA"
        );
        assert_eq!(command_name(b"+OK\r\n"), "");
        assert!(is_push(b">1\r\n+a\r\n") && !is_push(b"*1\r\n+a\r\n"));
    }
}
