//! The resource that a lock guards: a set of numbers that refuses tokens older than the newest it
//! has seen.
//!
//! It must look at the token of a read, too: otherwise a late write of an old holder could come
//! between a new holder's read and its write, and be overwritten.

use std::collections::BTreeSet;

/// One guarded set.
#[derive(Debug, Default)]
pub(crate) struct Resource {
    newest: u64,
    items: BTreeSet<u64>,
}

impl Resource {
    /// What is in it, for whoever has the newest token.
    pub(crate) fn read(&mut self, token: u64) -> Option<BTreeSet<u64>> {
        self.admits(token).then(|| self.items.clone())
    }

    /// Puts the whole set in place of the old one. Whether it was taken.
    pub(crate) fn write(&mut self, token: u64, items: BTreeSet<u64>) -> bool {
        let admitted = self.admits(token);
        if admitted {
            self.items = items;
        }
        admitted
    }

    pub(crate) fn items(&self) -> Vec<u64> {
        self.items.iter().copied().collect()
    }

    fn admits(&mut self, token: u64) -> bool {
        let admitted = token >= self.newest;
        self.newest = self.newest.max(token);
        admitted
    }
}
