//! [`NamePattern`]: which locks to list; [`Names`]: one node's answer.

use super::name::LockName;

/// The maximum number of names from one node.
pub const MOST_NAMES: usize = 10_000;

/// A glob over lock names: `*` matches anything and `?` one character.
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

    /// Whether a name matches.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        let pattern = &self.0;
        let name: Vec<char> = name.chars().collect();
        let (mut p, mut n) = (0, 0);
        // The position of the last star, and where to retry from.
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

/// The names from one node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// The names, in no order.
    pub names: Vec<LockName>,
    /// Whether there are more than it returned.
    pub more: bool,
}

impl Names {
    /// Adds a name; returns whether there is room for another.
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
