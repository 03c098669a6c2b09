//! [`Violation`]: something that must not be, with the events that show it.

use std::fmt;

use crate::event::Event;

/// Something that must not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The checker that found it.
    pub checker: &'static str,
    /// What is wrong, in a sentence.
    pub what: String,
    /// The events that show it, in their order.
    pub events: Vec<Event>,
}

impl Violation {
    /// Puts the events in the order of time.
    #[must_use]
    pub fn new(checker: &'static str, what: impl Into<String>, mut events: Vec<Event>) -> Self {
        events.sort_by_key(|event| event.at);
        let what = what.into();
        Self {
            checker,
            what,
            events,
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.checker, self.what)?;
        for event in &self.events {
            write!(f, "\n  {event}")?;
        }
        Ok(())
    }
}
