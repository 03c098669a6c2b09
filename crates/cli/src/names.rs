//! Names of locks as they are typed: a comma separates them, and `\,` is a comma within a name.
//!
//! Every command reads names in this way, also those that take one only: otherwise `run a,b` and
//! `acquire a,b` would hold different locks without a word.

use fencepost::LockName;

/// The most names at once; the library takes no more.
const MOST: usize = 1000;
/// What all names may have together, in bytes, with their tokens: Linux takes no longer variable
/// than 128 KiB into an environment.
const MOST_BYTES: usize = 120 * 1024;
/// What a token and the signs around it add to a name.
const TOKEN_BYTES: usize = 20;

/// At least one name, sorted, each once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Names(Vec<LockName>);

impl Names {
    /// Reads one name or several.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let names = split(text).into_iter().map(LockName::new);
        let names = names.collect::<Result<Vec<_>, _>>();
        let mut names = names.map_err(|error| error.to_string())?;
        names.sort();
        names.dedup();
        let bytes: usize = names.iter().map(|name| name.as_str().len()).sum();
        if names.len() > MOST {
            let many = names.len();
            return Err(format!("expected at most {MOST} names, got {many}"));
        }
        if bytes + names.len() * TOKEN_BYTES > MOST_BYTES {
            return Err("these names together are too long for an environment variable".into());
        }
        Ok(Self(names))
    }

    /// Reads the name of one lock.
    pub(crate) fn parse_one(text: &str) -> Result<LockName, String> {
        Self::parse(text)?.only().map_err(|names| {
            format!(
                "expected one name, got {}; write a comma that is part of a name as \\,",
                names.0.len()
            )
        })
    }

    /// The name, if it is one.
    pub(crate) fn only(self) -> Result<LockName, Self> {
        match <[LockName; 1]>::try_from(self.0) {
            Ok([name]) => Ok(name),
            Err(names) => Err(Self(names)),
        }
    }

    pub(crate) fn iter(&self) -> std::slice::Iter<'_, LockName> {
        self.0.iter()
    }
}

/// As it is typed: what [`Names::parse`] reads back.
pub(crate) fn typed<'a>(names: impl IntoIterator<Item = &'a LockName>) -> String {
    let names = names.into_iter();
    let names: Vec<_> = names
        .map(|name| name.as_str().replace(',', "\\,"))
        .collect();
    names.join(",")
}

/// What stands for the name at the end of a variable's name, so that a script can hold several locks:
/// letters and digits as they are, `__` for a dash, and `_` and two hexadecimal digits for each byte
/// of everything else. No two names have the same.
pub(crate) fn suffix(name: &str) -> String {
    let mut suffix = String::new();
    for byte in name.bytes() {
        match byte {
            b'-' => suffix.push_str("__"),
            _ if byte.is_ascii_alphanumeric() => suffix.push(byte.into()),
            _ => suffix.push_str(&format!("_{byte:02X}")),
        }
    }
    suffix
}

fn split(text: &str) -> Vec<String> {
    let (mut names, mut name) = (Vec::new(), String::new());
    let mut rest = text.chars().peekable();
    while let Some(sign) = rest.next() {
        match sign {
            '\\' => name.push(rest.next_if_eq(&',').unwrap_or(sign)),
            ',' => names.push(std::mem::take(&mut name)),
            _ => name.push(sign),
        }
    }
    names.push(name);
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<String> {
        let names = Names::parse(text).unwrap();
        names.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_comma_separates_names_and_can_be_part_of_one() {
        assert_eq!(read("a"), ["a"]);
        assert_eq!(read("b,a,b"), ["a", "b"]);
        assert_eq!(read(r"a\,b,c"), ["a,b", "c"]);
        assert_eq!(read(r"C:\dir,x\"), [r"C:\dir", r"x\"]);
        for text in ["", ",", "a,", ",a", "a,,b", "a,b\nc"] {
            assert!(Names::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn what_is_typed_is_read_back() {
        for text in ["a", "a,b", r"a\,b,c", r"a\\,b"] {
            let names = Names::parse(text).unwrap();
            assert_eq!(Names::parse(&typed(names.iter())), Ok(names), "{text}");
        }
    }

    #[test]
    fn no_two_names_have_the_same_variable() {
        assert_eq!(suffix("nightly"), "nightly");
        assert_eq!(suffix("nightly-7"), "nightly__7");
        assert_eq!(suffix("a_b.c"), "a_5Fb_2Ec");
        let alike = ["a-b", "a_b", "a.b", "a--b", "a_5Fb", "A-b", "a__b", "a-5Fb"];
        let mut seen: Vec<_> = alike.map(suffix).to_vec();
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), alike.len());
    }

    #[test]
    fn there_are_a_thousand_names_at_the_most_and_not_too_long_ones() {
        let names = |count: usize, length: usize| {
            let names = (0..count).map(|n| format!("{n:0length$}"));
            names.collect::<Vec<_>>().join(",")
        };
        assert_eq!(read(&names(1000, 10)).len(), 1000);
        let error = Names::parse(&names(1001, 10)).unwrap_err();
        assert!(error.contains("got 1001"), "{error}");
        let error = Names::parse(&names(1000, 110)).unwrap_err();
        assert!(error.contains("too long"), "{error}");
        let error = Names::parse_one("a,b").unwrap_err();
        assert!(error.contains("got 2"), "{error}");
    }
}
