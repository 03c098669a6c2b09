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

/// Commands that are sent in one write.
#[derive(Clone, Default)]
pub(crate) struct Request {
    bytes: Vec<u8>,
    /// How many replies it gets.
    pub(crate) replies: usize,
}

impl Request {
    /// A request of one command that somebody else has encoded.
    pub(crate) fn encoded(bytes: Vec<u8>) -> Self {
        Self { bytes, replies: 1 }
    }

    pub(crate) fn clear(&mut self) -> &mut Self {
        self.bytes.clear();
        self.replies = 0;
        self
    }

    /// Begins a command of so many words.
    pub(crate) fn command(&mut self, words: usize) -> &mut Self {
        let _ = write!(self.bytes, "*{words}\r\n");
        self.replies += 1;
        self
    }

    /// Begins an EVALSHA with these keys; exactly `args` arguments must follow.
    pub(crate) fn script(&mut self, script: &Script, keys: &[&str], args: usize) -> &mut Self {
        self.command(3 + keys.len() + args).text("EVALSHA");
        self.text(&script.digest).number(keys.len() as u64);
        for key in keys {
            self.text(key);
        }
        self
    }

    pub(crate) fn text(&mut self, text: &str) -> &mut Self {
        let _ = write!(self.bytes, "${}\r\n{text}\r\n", text.len());
        self
    }

    pub(crate) fn number(&mut self, number: u64) -> &mut Self {
        let digits = number.checked_ilog10().unwrap_or(0) + 1;
        let _ = write!(self.bytes, "${digits}\r\n{number}\r\n");
        self
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// How a refusal begins, alone or at the head of a list: an error, a lock that another holds, a
/// command that changed nothing.
const REFUSALS: [&[u8]; 4] = [b"-", b":0\r\n", b"$4\r\nheld", b"$8\r\nnot held"];

/// What has arrived and not been read yet.
#[derive(Default)]
pub(crate) struct Inbox(Vec<u8>);

impl Inbox {
    /// Takes more bytes and returns how many answers are complete with them.
    ///
    /// # Panics
    /// When an answer is a refusal: every lock here is free when it is asked for.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> usize {
        self.0.extend_from_slice(bytes);
        let (mut answers, mut at) = (0, 0);
        while let Some(end) = end_of_value(&self.0, at) {
            let answer = &self.0[at..end];
            let word = match answer.strip_prefix(b"*") {
                Some(list) => list.splitn(2, |byte| *byte == b'\n').nth(1).unwrap_or(b""),
                None => answer,
            };
            let good = !REFUSALS.iter().any(|refusal| word.starts_with(refusal));
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
    #[should_panic(expected = "held")]
    fn a_refusal_in_a_list_is_noticed() {
        Inbox::default().take(b"*2\r\n$4\r\nheld\r\n$1\r\nx\r\n");
    }

    #[test]
    #[should_panic(expected = "NOSCRIPT")]
    fn an_error_is_not_an_answer() {
        Inbox::default().take(b"-NOSCRIPT No matching script.\r\n");
    }
}
