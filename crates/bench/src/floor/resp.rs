//! As much of the Redis protocol as the floor needs.

use std::io::Write as _;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A script that the servers know, by its digest.
#[derive(Clone)]
pub(crate) struct Script {
    digest: String,
}

impl Script {
    pub(crate) async fn load(stream: &mut TcpStream, source: &str) -> Self {
        let length = source.len();
        let command = format!("*3\r\n$6\r\nSCRIPT\r\n$4\r\nLOAD\r\n${length}\r\n{source}\r\n");
        stream.write_all(command.as_bytes()).await.expect("sent");
        let mut reply = [0; "$40\r\n".len() + 40 + "\r\n".len()];
        stream.read_exact(&mut reply).await.expect("an answer");
        let reply = String::from_utf8_lossy(&reply);
        let digest = reply.strip_prefix("$40\r\n").expect("a digest").trim_end();
        Self {
            digest: digest.to_owned(),
        }
    }
}

/// One command.
#[derive(Default)]
pub(crate) struct Request(Vec<u8>);

impl Request {
    /// A plain `SET NX PX`.
    pub(crate) fn set_nx(&mut self, key: &str, value: &str, ttl_millis: u64) -> &mut Self {
        self.0.clear();
        self.0.extend_from_slice(b"*6\r\n$3\r\nSET\r\n");
        self.text(key).text(value);
        self.text("NX").text("PX").number(ttl_millis)
    }

    /// Begins an EVALSHA with these keys; exactly `args` arguments must follow.
    pub(crate) fn begin(&mut self, script: &Script, keys: &[&str], args: usize) -> &mut Self {
        self.0.clear();
        let _ = write!(self.0, "*{}\r\n$7\r\nEVALSHA\r\n", 3 + keys.len() + args);
        self.text(&script.digest).number(keys.len() as u64);
        for key in keys {
            self.text(key);
        }
        self
    }

    pub(crate) fn text(&mut self, text: &str) -> &mut Self {
        let _ = write!(self.0, "${}\r\n{text}\r\n", text.len());
        self
    }

    pub(crate) fn number(&mut self, number: u64) -> &mut Self {
        let digits = number.checked_ilog10().unwrap_or(0) + 1;
        let _ = write!(self.0, "${digits}\r\n{number}\r\n");
        self
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// How the answers begin that are lists: a place in line, a channel that is heard, a wake-up.
const NEWS: [&[u8]; 3] = [
    b"*7\r\n$4\r\nline",
    b"*3\r\n$9\r\nsubscribe",
    b"*3\r\n$7\r\nmessage",
];

/// What has arrived and not been read yet.
#[derive(Default)]
pub(crate) struct Inbox(Vec<u8>);

impl Inbox {
    /// Takes more bytes and returns how many answers are complete with them.
    ///
    /// # Panics
    /// When an answer is not the one that a lock gives whose turn it is.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> usize {
        self.0.extend_from_slice(bytes);
        let (mut answers, mut at) = (0, 0);
        while let Some(end) = end_of_value(&self.0, at) {
            let answer = &self.0[at..end];
            let good = answer == b"$8\r\nreleased\r\n"
                || answer == b"+OK\r\n"
                || NEWS.iter().any(|news| answer.starts_with(news))
                || answer.starts_with(b":") && answer != b":0\r\n";
            assert!(good, "unexpected: {}", String::from_utf8_lossy(answer));
            answers += 1;
            at = end;
        }
        self.0.drain(..at);
        answers
    }
}

/// Where the value that begins at `at` ends, if all of it is there.
fn end_of_value(bytes: &[u8], at: usize) -> Option<usize> {
    let rest = bytes.get(at..)?;
    let line = rest.windows(2).position(|pair| pair == b"\r\n")?;
    let after = at + line + 2;
    let number = || {
        std::str::from_utf8(&rest[1..line])
            .ok()?
            .parse::<i64>()
            .ok()
    };
    match rest[0] {
        b'$' => {
            // A missing string has a length of -1 and no body.
            let Ok(length) = usize::try_from(number()?) else {
                return Some(after);
            };
            let end = after + length + 2;
            (bytes.len() >= end).then_some(end)
        }
        b'*' => (0..number()?).try_fold(after, |at, _| end_of_value(bytes, at)),
        _ => Some(after),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_counts_once_all_of_it_has_arrived() {
        let answers = b":12\r\n$8\r\nreleased\r\n";
        for cut in 0..answers.len() {
            let mut inbox = Inbox::default();
            let all = inbox.take(&answers[..cut]) + inbox.take(&answers[cut..]);
            assert_eq!(all, 2, "cut at {cut}");
        }
    }

    #[test]
    #[should_panic(expected = "NOSCRIPT")]
    fn an_error_is_not_an_answer() {
        Inbox::default().take(b"-NOSCRIPT No matching script.\r\n");
    }
}
