//! Every variant by name: the sound ones, of which everything must hold, and the broken ones, of
//! each of which the checker must find that it is broken.
//!
//! One file for each model: its sound variants, and one rule after the other done wrong.

mod failover;
mod locks;
mod plain;
mod read_write;
mod release;
mod semaphore;
mod service;
mod service_slots;

use crate::failover::Failover;
use crate::plain::Plain;
use crate::read_write::ReadWrite;
use crate::release::OneRelease;
use crate::run::{Outcome, Reach, check};
use crate::semaphore::Semaphore;
use crate::service::Service;
use crate::service_slots::ServiceSlots;
use crate::setup::Setup;
use crate::steps::Locks;
use crate::story;

/// One model and what is expected of it.
#[derive(Clone, Debug)]
pub struct Variant {
    /// Its name, for the table and for `--show`.
    pub name: &'static str,
    /// What it is about, in a line.
    pub about: &'static str,
    /// What the checker must say of it.
    pub expected: Expected,
    /// How far to look.
    pub reach: Reach,
    /// Small enough for the tests that run at every change.
    pub quick: bool,
    subject: Subject,
}

/// What the checker must say of a variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Everything holds.
    Holds,
    /// This property does not, and the checker finds out.
    Breaks(&'static str),
}

#[derive(Clone, Debug)]
enum Subject {
    Locks(Setup),
    Semaphore(Semaphore),
    OneRelease(OneRelease),
    ReadWrite(ReadWrite),
    Plain(Plain),
    Service(Service),
    ServiceSlots(ServiceSlots),
    Failover(Failover),
}

/// How a variant did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Everything holds, as it must.
    Holds,
    /// It is broken, as it must be.
    Broken,
    /// Not what was expected.
    Unexpected,
}

impl Variant {
    /// Checks it.
    #[must_use]
    pub fn check(&self, threads: usize) -> Outcome {
        // With one thread, states are looked at in the order of their steps: the story stays short.
        let threads = match self.expected {
            Expected::Holds => threads,
            Expected::Breaks(_) => 1,
        };
        match self.subject.clone() {
            Subject::Locks(setup) => check(Locks::new(setup), self.reach, threads, story::tell),
            Subject::Semaphore(model) => check(model, self.reach, threads, crate::semaphore::tell),
            Subject::OneRelease(model) => check(model, self.reach, threads, crate::release::tell),
            Subject::ReadWrite(model) => check(model, self.reach, threads, crate::read_write::tell),
            Subject::Plain(model) => check(model, self.reach, threads, crate::plain::tell),
            Subject::Service(model) => check(model, self.reach, threads, crate::service::tell),
            Subject::ServiceSlots(model) => {
                check(model, self.reach, threads, crate::service_slots::tell)
            }
            Subject::Failover(model) => check(model, self.reach, threads, crate::failover::tell),
        }
    }

    /// Whether the outcome is what it must be.
    #[must_use]
    pub fn verdict(&self, outcome: &Outcome) -> Verdict {
        let found = outcome.fault.as_ref().map(|fault| fault.property);
        match self.expected {
            Expected::Holds if found.is_none() && outcome.missing.is_empty() => Verdict::Holds,
            Expected::Breaks(property) if found == Some(property) => Verdict::Broken,
            _ => Verdict::Unexpected,
        }
    }

    /// One of which everything must hold, in every order of events.
    fn sound(name: &'static str, about: &'static str, subject: Subject) -> Self {
        Self {
            name,
            about,
            expected: Expected::Holds,
            reach: Reach::Exhaustive,
            quick: false,
            subject,
        }
    }

    /// One in which the checker must find that this property does not hold.
    fn broken(
        name: &'static str,
        about: &'static str,
        property: &'static str,
        subject: Subject,
    ) -> Self {
        Self {
            expected: Expected::Breaks(property),
            quick: true,
            ..Self::sound(name, about, subject)
        }
    }

    /// Small enough for every change.
    fn quick(self) -> Self {
        Self {
            quick: true,
            ..self
        }
    }

    /// Too large to be looked at to the end.
    fn within(self, steps: usize) -> Self {
        Self {
            reach: Reach::Steps(steps),
            ..self
        }
    }
}

/// All variants, the sound ones first.
#[must_use]
pub fn all() -> Vec<Variant> {
    let sound = [
        plain::sound(),
        locks::sound(),
        failover::sound(),
        service::sound(),
        service_slots::sound(),
        release::sound(),
        read_write::sound(),
    ];
    let broken = [
        plain::broken(),
        locks::broken(),
        semaphore::broken(),
        read_write::broken(),
        failover::broken(),
        service::broken(),
        service_slots::broken(),
        release::broken(),
    ];
    sound.into_iter().chain(broken).flatten().collect()
}
