//! [`HoldUps`]: how long a test holds up what is sent for a lock.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::sleep;

use fencepost_core::name::LockName;

/// By lock. Empty unless a test says otherwise.
#[derive(Default)]
pub(crate) struct HoldUps(Mutex<HashMap<String, Duration>>);

impl HoldUps {
    pub(crate) fn set(&self, name: &str, by: Duration) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match by.is_zero() {
            true => all.remove(name),
            false => all.insert(name.to_owned(), by),
        };
    }

    pub(super) async fn pass(&self, name: &LockName) {
        if let Some(by) = self.of(name) {
            sleep(by).await;
        }
    }

    fn of(&self, name: &LockName) -> Option<Duration> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(name.as_str()).copied()
    }
}
