//! [`NamePattern`]: which locks a listing asks for; [`Names`]: what one node answers.

use super::name::LockName;

/// The most names that one node gives.
pub const MOST_NAMES: usize = 10_000;

/// Which names are wanted: a pattern in which `*` stands for anything and `?` for one character.
///
/// ```
/// use fencepost_core::NamePattern;
///
/// assert!(NamePattern::new("invoice-*").matches("invoice-42"));
/// assert!(!NamePattern::new("invoice-?").matches("invoice-42"));
/// assert!(NamePattern::all().matches("anything"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamePattern(Vec<char>);

impl NamePattern {
    /// A pattern.
    #[must_use]
    pub fn new(pattern: impl AsRef<str>) -> Self {
        Self(pattern.as_ref().chars().collect())
    }

    /// Every name.
    #[must_use]
    pub fn all() -> Self {
        Self::new("*")
    }

    /// Whether a name is wanted.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        let pattern = &self.0;
        let name: Vec<char> = name.chars().collect();
        let (mut p, mut n) = (0, 0);
        // Where the last star stands, and from where on it is to be tried again.
        let mut star = None;
        while n < name.len() {
            match pattern.get(p) {
                Some('*') => {
                    star = Some((p, n));
                    p += 1;
                }
                Some(c) if *c == '?' || *c == name[n] => {
                    p += 1;
                    n += 1;
                }
                _ => match &mut star {
                    Some((at, from)) => {
                        *from += 1;
                        (p, n) = (*at + 1, *from);
                    }
                    None => return false,
                },
            }
        }
        pattern[p..].iter().all(|c| *c == '*')
    }
}

/// The names that one node gives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// The names, in no order.
    pub names: Vec<LockName>,
    /// Whether it has more of them than it gives.
    pub more: bool,
}

impl Names {
    /// Puts a name in; whether there is room for another.
    pub fn push(&mut self, name: LockName) -> bool {
        if self.names.len() >= MOST_NAMES {
            self.more = true;
            return false;
        }
        self.names.push(name);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_and_question_marks_are_what_people_expect() {
        for (pattern, name, fits) in [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-b-b", false),
            ("?", "ä", true),
            ("job-?", "job-", false),
            ("*-night", "report-night", true),
            ("a**", "a", true),
        ] {
            let matches = NamePattern::new(pattern).matches(name);
            assert_eq!(matches, fits, "{pattern} {name}");
        }
    }
}
