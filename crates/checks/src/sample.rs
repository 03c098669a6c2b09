//! Small histories for the tests of the checkers, one line a step.

use crate::event::{Change, ClientId, Event, LeaseId, LeaseRef, Step, Time};
use crate::history::History;

/// A history in the making. Each client asks for the one lock `job` once.
pub(crate) struct Sample {
    pub(crate) events: Vec<Event>,
}

impl Sample {
    pub(crate) fn new() -> Self {
        let events = Vec::new();
        Self { events }
    }

    pub(crate) fn step(mut self, client: u32, at: u64, step: Step) -> Self {
        let of = LeaseRef {
            client: ClientId(client),
            lock: "job".into(),
            lease: LeaseId(1),
        };
        self.events.push(Event::lease(Time(at), &of, step));
        self
    }

    pub(crate) fn asked(self, client: u32, at: u64) -> Self {
        self.step(client, at, Step::Asked)
    }

    pub(crate) fn queued(self, client: u32, at: u64) -> Self {
        self.step(client, at, Step::Queued)
    }

    pub(crate) fn acquired(self, client: u32, at: u64, token: u64, until: u64) -> Self {
        let valid_until = Time(until);
        self.step(client, at, Step::Acquired { token, valid_until })
    }

    pub(crate) fn told(self, client: u32, at: u64) -> Self {
        let reason = "expired".into();
        self.step(client, at, Step::LossTold { reason })
    }

    pub(crate) fn failed(self, client: u32, at: u64, error: &str) -> Self {
        let error = error.into();
        self.step(client, at, Step::Failed { error })
    }

    pub(crate) fn releasing(self, client: u32, at: u64) -> Self {
        self.step(client, at, Step::Releasing)
    }

    pub(crate) fn dropped(self, client: u32, at: u64) -> Self {
        self.step(client, at, Step::Dropped)
    }

    pub(crate) fn wrote(self, client: u32, at: u64, item: u64, token: u64, accepted: bool) -> Self {
        let wrote = Step::Wrote {
            item,
            token,
            accepted,
        };
        self.step(client, at, wrote)
    }

    pub(crate) fn change(mut self, client: u32, at: u64, change: Change) -> Self {
        let event = Event::client(Time(at), ClientId(client), change);
        self.events.push(event);
        self
    }

    pub(crate) fn healed(mut self, at: u64) -> Self {
        self.events.push(Event::healed(Time(at)));
        self
    }

    pub(crate) fn found(mut self, at: u64, items: &[u64]) -> Self {
        self.events
            .push(Event::found(Time(at), "job", items.to_vec()));
        self
    }

    pub(crate) fn left(mut self, at: u64, keys: &[&str]) -> Self {
        let keys = keys.iter().map(|key| (*key).to_owned()).collect();
        self.events.push(Event::keys_left(Time(at), "a:1", keys));
        self
    }

    pub(crate) fn history(self) -> History {
        History::new(self.events)
    }
}
