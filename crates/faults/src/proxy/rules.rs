//! What a proxy does to what passes through it. Pure, but for the numbers it draws.

use std::time::Duration;

use crate::random::Random;

/// What a proxy does. All of it at once, if so set.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// Nothing passes from client to server, and nobody is told; all of it passes later, as it does
    /// when a network is mended.
    pub hold_requests: bool,
    /// The same from server to client.
    pub hold_replies: bool,
    /// How long each message is held up at the most; the order stays.
    pub delay: Duration,
    /// Messages go in pieces of a few bytes, with a moment between.
    pub torn: bool,
    /// One in so many scripts loses its reply after the server has carried it out.
    pub lose_reply_of_one_in: Option<u32>,
    /// One in so many messages ends in the middle, and the connection with it.
    pub cut_one_in: Option<u32>,
    /// One in so many replies is a list of hundreds of millions of numbers instead.
    pub endless_one_in: Option<u32>,
    /// Requests that contain these bytes are held up for that long, and what comes behind them on their
    /// connection; those of other connections pass them.
    pub late: Option<(&'static [u8], Duration)>,
}

/// What becomes of one request's reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TicketDisposition {
    /// It is delivered.
    Delivered,
    /// The server has carried the request out, and then the connection closes.
    Closed,
    /// The server has carried the request out, and then the connection is mute for ever.
    Mute,
}

impl Rules {
    /// What becomes of the reply to that command. Only scripts lose theirs: they are what changes
    /// a lock.
    pub fn fate(&self, command: &str, random: &mut Random) -> TicketDisposition {
        let is_script = matches!(command, "EVALSHA" | "EVAL");
        match self.lose_reply_of_one_in {
            Some(many) if is_script && random.one_in(many) => {
                if random.one_in(2) {
                    TicketDisposition::Closed
                } else {
                    TicketDisposition::Mute
                }
            }
            _ => TicketDisposition::Delivered,
        }
    }

    /// How long a request is held up for what is in it.
    pub fn late(&self, request: &[u8]) -> Option<Duration> {
        let (with, by) = self.late?;
        let is_in = request.windows(with.len()).any(|part| part == with);
        is_in.then_some(by)
    }

    /// The pieces in which a message of that many bytes goes.
    pub fn pieces(&self, len: usize, random: &mut Random) -> Vec<usize> {
        if !self.torn {
            return vec![len];
        }
        /// More pieces than this would only make it slow.
        const MOST: usize = 6;
        let mut pieces = Vec::new();
        let mut left = len;
        while left > 0 && pieces.len() + 1 < MOST {
            let piece = usize::try_from(1 + random.below(9)).unwrap_or(1).min(left);
            pieces.push(piece);
            left -= piece;
        }
        if left > 0 {
            pieces.push(left);
        }
        pieces
    }

    /// How long to hold up the next message.
    pub fn hold_up(&self, random: &mut Random) -> Duration {
        let most = u64::try_from(self.delay.as_micros()).unwrap_or(u64::MAX);
        Duration::from_micros(random.below(most.saturating_add(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_scripts_lose_their_replies() {
        let rules = Rules {
            lose_reply_of_one_in: Some(1),
            ..Rules::default()
        };
        let mut random = Random::from_seed(1);
        assert_eq!(
            rules.fate("INFO", &mut random),
            TicketDisposition::Delivered
        );
        assert_ne!(
            rules.fate("EVALSHA", &mut random),
            TicketDisposition::Delivered
        );
        let none = Rules::default();
        assert_eq!(
            none.fate("EVALSHA", &mut random),
            TicketDisposition::Delivered
        );
    }

    #[test]
    fn only_what_has_the_words_is_late() {
        let by = Duration::from_millis(300);
        let rules = Rules {
            late: Some((b"\r\n317\r\n", by)),
            ..Rules::default()
        };
        assert_eq!(rules.late(b"*1\r\n$3\r\n317\r\n"), Some(by));
        assert_eq!(rules.late(b"*1\r\n$4\r\n1317\r\n"), None);
        assert_eq!(Rules::default().late(b"\r\n317\r\n"), None);
    }

    #[test]
    fn a_torn_message_is_the_same_bytes_in_more_pieces() {
        let rules = Rules {
            torn: true,
            ..Rules::default()
        };
        let mut random = Random::from_seed(1);
        for len in [0, 1, 2, 30, 10_000] {
            let pieces = rules.pieces(len, &mut random);
            assert_eq!(pieces.iter().sum::<usize>(), len);
            assert!(len < 20 || pieces.len() > 1);
        }
        assert_eq!(Rules::default().pieces(30, &mut random), [30]);
    }
}
