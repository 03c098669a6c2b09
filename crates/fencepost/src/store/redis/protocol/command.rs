//! [`Cmd`]: a command, encoded while its arguments are added.
//!
//! Why by hand, and not by the `redis` crate: of that only its commands, its replies and its parser of URLs were of
//! use here. Measured on two cores, in turns: with it a build of the library for Redis alone was 71 crates and 30 to
//! 37 s, and without it 33 crates and 21 to 23 s.

/// A command, as it is sent but for its first line, which tells how many words there are.
#[derive(Clone, Debug)]
pub(crate) struct Cmd {
    words: Vec<u8>,
    count: u64,
}

impl Cmd {
    /// A command without arguments so far.
    pub(crate) fn new(verb: &str) -> Self {
        Self::with_capacity(verb, 0)
    }

    /// The same, with room for so many bytes.
    pub(crate) fn with_capacity(verb: &str, bytes: usize) -> Self {
        let mut words = Vec::with_capacity(bytes);
        text(&mut words, &[verb]);
        Self { words, count: 1 }
    }

    /// Adds an argument; or none, for an option that is none.
    pub(crate) fn arg(&mut self, arg: impl Arg) -> &mut Self {
        arg.add_to(self);
        self
    }

    /// Adds arguments.
    pub(crate) fn args<A: Arg>(&mut self, args: impl IntoIterator<Item = A>) -> &mut Self {
        args.into_iter().for_each(|arg| arg.add_to(self));
        self
    }

    /// Adds one argument, made of these parts.
    pub(crate) fn parts(&mut self, parts: &[&str]) {
        text(&mut self.words, parts);
        self.count += 1;
    }

    /// Appends it to what will be written.
    pub(crate) fn write_to(&self, out: &mut Vec<u8>) {
        line(out, b'*', self.count);
        out.extend_from_slice(&self.words);
    }

    /// As it is sent.
    pub(crate) fn encoded(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.words.len() + 8);
        self.write_to(&mut out);
        out
    }
}

/// What can be an argument.
pub(crate) trait Arg {
    fn add_to(&self, cmd: &mut Cmd);
}

impl Arg for str {
    fn add_to(&self, cmd: &mut Cmd) {
        cmd.parts(&[self]);
    }
}

impl Arg for String {
    fn add_to(&self, cmd: &mut Cmd) {
        cmd.parts(&[self]);
    }
}

impl<A: Arg + ?Sized> Arg for &A {
    fn add_to(&self, cmd: &mut Cmd) {
        (**self).add_to(cmd);
    }
}

impl<A: Arg> Arg for Option<A> {
    fn add_to(&self, cmd: &mut Cmd) {
        if let Some(arg) = self {
            arg.add_to(cmd);
        }
    }
}

macro_rules! numbers {
    ($($number:ty),+) => {$(
        impl Arg for $number {
            fn add_to(&self, cmd: &mut Cmd) {
                cmd.parts(&[itoa::Buffer::new().format(*self)]);
            }
        }
    )+};
}
numbers!(i32, u32, i64, u64, usize);

/// The beginning of a command of so many words, where they are known. The words are written as they are, without a
/// list of them in between: of all that an attempt costs its client this was the largest part.
pub(crate) fn begin(out: &mut Vec<u8>, verb: &str, words: u64) {
    line(out, b'*', words);
    text(out, &[verb]);
}

/// One word, made of these parts.
pub(crate) fn text(out: &mut Vec<u8>, parts: &[&str]) {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    line(out, b'$', length as u64);
    for part in parts {
        out.extend_from_slice(part.as_bytes());
    }
    out.extend_from_slice(b"\r\n");
}

fn line(out: &mut Vec<u8>, kind: u8, number: u64) {
    out.push(kind);
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::redis::protocol::resp;
    use crate::store::redis::protocol::value::Value;
    use proptest::prelude::*;

    #[test]
    fn numbers_options_and_parts_are_words_like_others() {
        let mut cmd = Cmd::new("SET");
        cmd.arg("k").arg(-7).arg(7_u64).arg(None::<&str>);
        cmd.arg(Some("x")).args(["", "é"]).parts(&["a", "", "b"]);
        let expected = "*8\r\n$3\r\nSET\r\n$1\r\nk\r\n$2\r\n-7\r\n$1\r\n7\r\n$1\r\nx\r\n$0\r\n\r\n\
                        $2\r\né\r\n$2\r\nab\r\n";
        assert_eq!(String::from_utf8(cmd.encoded()).unwrap(), expected);
        let mut behind = b"before".to_vec();
        cmd.write_to(&mut behind);
        assert_eq!(behind, [b"before", expected.as_bytes()].concat());
    }

    proptest! {
        /// A server reads a command as it reads any list of words.
        #[test]
        fn no_word_ends_before_its_end(words in prop::collection::vec(".{0,20}", 0..20)) {
            let mut cmd = Cmd::new("ECHO");
            cmd.args(&words);
            let bytes = cmd.encoded();
            let all = ["ECHO"].into_iter().chain(words.iter().map(String::as_str));
            let all = all.map(|word| Value::BulkString(word.into())).collect();
            prop_assert_eq!(resp::read(&bytes), Ok(Some((Value::Array(all), bytes.len()))));
        }
    }
}
