//! [`Info`]: the fields of an answer to INFO.

use std::collections::HashMap;

use crate::store::redis::fault;

/// The fields of an answer to INFO. A server that hides it has none.
pub(crate) struct Info<'a>(HashMap<&'a str, &'a str>);

impl<'a> Info<'a> {
    pub(crate) fn parse(info: &'a str) -> Self {
        let fields = info.lines();
        let fields = fields.filter_map(|line| line.trim_end().split_once(':'));
        Self(fields.collect())
    }

    /// The field as the server wrote it.
    pub(crate) fn raw(&self, key: &str) -> Option<&'a str> {
        self.0.get(key).copied()
    }

    /// The field, fit to be shown.
    pub(crate) fn text(&self, key: &str) -> Option<String> {
        self.raw(key).map(fault::printable)
    }

    pub(crate) fn number(&self, key: &str) -> Option<u64> {
        self.raw(key)?.parse().ok()
    }

    /// Whether the field is a number other than zero.
    pub(crate) fn is_set(&self, key: &str) -> bool {
        self.number(key).is_some_and(|number| number != 0)
    }
}
