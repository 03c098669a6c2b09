//! [`History`]: the events of one run in the order of time, and what became of each request.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Write};

use crate::event::{Change, ClientId, Event, LeaseRef, Step, Time, What};

/// The events of one run, in the order of time.
#[derive(Clone, Debug, Default)]
pub struct History {
    events: Vec<Event>,
    turns: Vec<Turn>,
    pauses: BTreeMap<ClientId, Vec<(Time, Time)>>,
    healed: Option<Time>,
}

/// One request: what became of it, and of its lease.
#[derive(Clone, Debug)]
pub struct Turn {
    /// Which request.
    pub of: LeaseRef,
    /// When it began; when it was granted, if its beginning was not written down.
    pub asked: Time,
    /// When it had its place in line.
    pub queued: Option<Time>,
    /// When the lock was its own, if it ever was.
    pub acquired: Option<Time>,
    /// The token that it got. Zero before that.
    pub token: u64,
    /// The end of its validity as it was last written down, if nothing ends it before.
    pub valid_until: Time,
    /// When the holder was told of the loss.
    pub told: Option<Time>,
    /// How and when the request or the holder's use of the lock ended: by failure, release, drop or
    /// death, whichever was first.
    pub ended: Option<(Time, Ended)>,
    /// All its events.
    pub events: Vec<Event>,
}

/// How a request, or the use of its lease, ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It ended without the lock.
    Failed,
    /// The holder began to give it back.
    Releasing,
    /// The future or the lease was dropped.
    Dropped,
    /// Its process died.
    Died,
}

impl Turn {
    fn new(of: LeaseRef, asked: Time) -> Self {
        Self {
            of,
            asked,
            queued: None,
            acquired: None,
            token: 0,
            valid_until: Time(0),
            told: None,
            ended: None,
            events: Vec::new(),
        }
    }

    /// The time in which the lease was valid: from its return to the end of its validity, to the
    /// beginning of its release, or to the telling of its loss, whichever came first. `None` when
    /// it never was.
    #[must_use]
    pub fn validity(&self) -> Option<(Time, Time)> {
        let begin = self.acquired?;
        let ended = self.ended.map(|(at, _)| at);
        let ends = [Some(self.valid_until), self.told, ended];
        let end = ends.into_iter().flatten().min()?;
        (begin < end).then_some((begin, end))
    }

    /// The events that say when the lease was valid.
    #[must_use]
    pub fn shown_by(&self) -> Vec<Event> {
        let matters = |event: &&Event| match &event.what {
            What::Lease { step, .. } => !matches!(step, Step::Wrote { .. } | Step::Queued),
            _ => true,
        };
        let mut events: Vec<Event> = self.events.iter().filter(matters).cloned().collect();
        // A lease that was renewed for an hour shows what it is by its last renewals.
        let renewals = |event: &Event| {
            matches!(
                &event.what,
                What::Lease {
                    step: Step::Extended { .. },
                    ..
                }
            )
        };
        let mut too_many = events
            .iter()
            .filter(|e| renewals(e))
            .count()
            .saturating_sub(2);
        events.retain(|event| {
            let drop = too_many > 0 && renewals(event);
            too_many -= usize::from(drop);
            !drop
        });
        events
    }

    fn take(&mut self, event: &Event, step: &Step) {
        let at = event.at;
        match step {
            Step::Asked => self.asked = self.asked.min(at),
            Step::Queued => self.queued = self.queued.or(Some(at)),
            Step::Acquired { token, valid_until } => {
                self.acquired = self.acquired.or(Some(at));
                (self.token, self.valid_until) = (*token, *valid_until);
            }
            Step::Extended { valid_until } => self.valid_until = self.valid_until.max(*valid_until),
            Step::LossTold { .. } => self.told = self.told.or(Some(at)),
            Step::Failed { .. } => self.end(at, Ended::Failed),
            Step::Releasing | Step::Released { .. } => self.end(at, Ended::Releasing),
            Step::Dropped => self.end(at, Ended::Dropped),
            Step::Wrote { .. } => {}
        }
        self.events.push(event.clone());
    }

    fn end(&mut self, at: Time, how: Ended) {
        self.ended = self.ended.or(Some((at, how)));
    }
}

impl History {
    /// Puts events in the order of time; those of one moment stay in the order given.
    #[must_use]
    pub fn new(mut events: Vec<Event>) -> Self {
        events.sort_by_key(|event| event.at);
        let mut turns: Vec<Turn> = Vec::new();
        let mut places: BTreeMap<LeaseRef, usize> = BTreeMap::new();
        let mut pauses: BTreeMap<ClientId, Vec<(Time, Time)>> = BTreeMap::new();
        let mut healed = None;
        for event in &events {
            match &event.what {
                What::Lease { of, step } => {
                    let place = *places.entry(of.clone()).or_insert_with(|| {
                        turns.push(Turn::new(of.clone(), event.at));
                        turns.len() - 1
                    });
                    turns[place].take(event, step);
                }
                What::Client { client, change } => {
                    let of_client = pauses.entry(*client).or_default();
                    let open = Time(u64::MAX);
                    match (change, of_client.last_mut()) {
                        // Whoever stops in the moment in which it went on has not run.
                        (Change::Paused, Some((_, end))) if *end == event.at => *end = open,
                        (Change::Paused, Some((_, end))) if *end == open => {}
                        (Change::Paused, _) => of_client.push((event.at, open)),
                        (Change::Resumed, Some((_, end))) if *end == open => *end = event.at,
                        _ => {}
                    }
                    if *change == Change::Died {
                        for turn in turns.iter_mut().filter(|turn| turn.of.client == *client) {
                            turn.end(event.at, Ended::Died);
                        }
                    }
                }
                What::Healed {} => healed = healed.or(Some(event.at)),
                What::Found { .. } | What::KeysLeft { .. } => {}
            }
        }
        Self {
            events,
            turns,
            pauses,
            healed,
        }
    }

    /// Reads events, one JSON object a line; empty lines are skipped. The files of several
    /// processes may be read one after the other.
    ///
    /// # Errors
    /// What cannot be read, with its line.
    pub fn read(lines: impl BufRead) -> io::Result<Vec<Event>> {
        let mut events = Vec::new();
        for (number, line) in lines.lines().enumerate() {
            let line = line?;
            if line.trim().is_empty() {
                continue;
            }
            let event = serde_json::from_str(&line).map_err(|why| {
                let why = format!("line {}: {why}: {line}", number + 1);
                io::Error::new(io::ErrorKind::InvalidData, why)
            })?;
            events.push(event);
        }
        Ok(events)
    }

    /// Writes one event as one line of JSON, in one piece.
    ///
    /// # Errors
    /// Whatever the writer says.
    pub fn write(mut to: impl Write, event: &Event) -> io::Result<()> {
        let mut line = serde_json::to_vec(event)?;
        line.push(b'\n');
        to.write_all(&line)
    }

    /// All events.
    #[must_use]
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// All requests, in the order of their first events.
    #[must_use]
    pub fn turns(&self) -> &[Turn] {
        &self.turns
    }

    /// Goes through the leases that were ever valid, lock by lock and in the order of their grants,
    /// each with the beginning of its validity and those of the same lock that were valid then.
    pub(crate) fn with_those_beside<'a>(
        &'a self,
        mut visit: impl FnMut(&'a Turn, Time, &[&'a Turn]),
    ) {
        for turns in self.granted().into_values() {
            let mut valid: Vec<&Turn> = Vec::new();
            for turn in turns {
                let Some((begin, _)) = turn.validity() else {
                    continue;
                };
                valid.retain(|other| other.validity().is_some_and(|(_, end)| end > begin));
                visit(turn, begin, &valid);
                valid.push(turn);
            }
        }
    }

    /// What happened to some of the locks, and everything that happened to no lock at all.
    #[must_use]
    pub fn of_locks(&self, wanted: impl Fn(&str) -> bool) -> Self {
        let is_wanted = |event: &&Event| match &event.what {
            What::Lease { of, .. } => wanted(&of.lock),
            What::Found { lock, .. } => wanted(lock),
            _ => true,
        };
        Self::new(self.events.iter().filter(is_wanted).cloned().collect())
    }

    /// The requests that were granted, by lock, in the order of their grants.
    #[must_use]
    pub fn granted(&self) -> BTreeMap<&str, Vec<&Turn>> {
        let mut by_lock: BTreeMap<&str, Vec<&Turn>> = BTreeMap::new();
        for turn in self.turns.iter().filter(|turn| turn.acquired.is_some()) {
            by_lock.entry(&turn.of.lock).or_default().push(turn);
        }
        for turns in by_lock.values_mut() {
            turns.sort_by_key(|turn| turn.acquired);
        }
        by_lock
    }

    /// When all faults had ended.
    #[must_use]
    pub fn healed(&self) -> Option<Time> {
        self.healed
    }

    /// The end of the pause in which that client stood still at that moment, if it did.
    #[must_use]
    pub fn paused_until(&self, client: ClientId, at: Time) -> Option<Time> {
        let pauses = self.pauses.get(&client)?;
        let covering = pauses.iter().find(|(from, to)| *from <= at && at <= *to);
        covering.map(|(_, to)| *to)
    }

    /// The end of the history.
    #[must_use]
    pub fn end(&self) -> Time {
        self.events.last().map_or(Time(0), |event| event.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Sample;

    #[test]
    fn validity_ends_with_whatever_comes_first() {
        for (step, end) in [
            (
                Step::Extended {
                    valid_until: Time(300),
                },
                300,
            ),
            (
                Step::Extended {
                    valid_until: Time(90),
                },
                100,
            ),
            (Step::Releasing, 50),
            (Step::Dropped, 50),
            (
                Step::LossTold {
                    reason: "expired".into(),
                },
                50,
            ),
        ] {
            let history = Sample::new()
                .asked(1, 0)
                .acquired(1, 10, 7, 100)
                .step(1, 50, step);
            let history = history.history();
            assert_eq!(history.turns()[0].validity(), Some((Time(10), Time(end))));
        }
        let died = Sample::new()
            .acquired(1, 10, 7, 100)
            .change(1, 20, Change::Died)
            .history();
        assert_eq!(died.turns()[0].validity(), Some((Time(10), Time(20))));
    }

    #[test]
    fn a_history_is_written_and_read_line_by_line() {
        let sample = Sample::new().asked(1, 0).acquired(1, 10, 7, 100).events;
        let mut file = Vec::new();
        for event in &sample {
            History::write(&mut file, event).unwrap();
        }
        assert_eq!(History::read(&file[..]).unwrap(), sample);
        let error = History::read(&b"\n{}\n"[..]).unwrap_err();
        assert!(error.to_string().starts_with("line 2"), "{error}");
    }
}
