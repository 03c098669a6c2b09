//! [`Timeline`]: what may have gone wrong, kept for days: losses, near misses, steals, nodes that went
//! away; and when nobody watched.
//!
//! With a directory it is kept in a few files of bounded size, one line of JSON each entry; a line that
//! was cut off by a crash is left out. Without one it is kept in memory, since the process began.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::tracker::Event;

/// The largest size of one file, and how many there are.
const FILE_BYTES: u64 = 4 << 20;
const FILES: u32 = 8;
/// The most entries in memory, and the most intervals.
const MOST_EVENTS: usize = 50_000;
const MOST_SPANS: usize = 10_000;
/// The most events of one answer.
const MOST_SHOWN: usize = 2_000;
/// How much time may pass between two looks of one interval. Beyond it nobody watched.
const LONGEST_PAUSE_MS: u64 = 15_000;
/// How often the end of the current interval is written.
const WRITE_EVERY_MS: u64 = 30_000;
/// How far apart two replicas may see the same event: each looks when it can, by a clock of its own.
const SAME_MS: u64 = 5_000;

/// An interval in which the locks were watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Span {
    pub(crate) from_ms: u64,
    pub(crate) to_ms: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Line {
    Watched { watched: Span },
    Event(Box<Event>),
}

/// What is asked for.
#[derive(Debug, Default)]
pub(crate) struct Filter {
    pub(crate) since_ms: u64,
    pub(crate) name: Option<String>,
    pub(crate) owner: Option<String>,
    pub(crate) node: Option<String>,
}

impl Filter {
    /// The same, for another replica to answer by itself.
    pub(crate) fn query(&self) -> String {
        let since = self.since_ms.to_string();
        let mut words = vec![("only", "this"), ("since_ms", &since)];
        let texts = [
            ("name", &self.name),
            ("owner", &self.owner),
            ("node", &self.node),
        ];
        for (key, text) in texts {
            words.extend(text.as_deref().map(|text| (key, text)));
        }
        serde_urlencoded::to_string(words).unwrap_or_default()
    }

    fn fits(&self, event: &Event) -> bool {
        let same = |wanted: &Option<String>, is: &Option<String>| match (wanted, is) {
            (None, _) => true,
            (Some(wanted), Some(is)) => is.contains(wanted.as_str()),
            (Some(_), None) => false,
        };
        event.at_ms >= self.since_ms
            && same(&self.name, &event.name)
            && same(&self.owner, &event.owner)
            && same(&self.node, &event.node)
    }
}

/// What may have gone wrong, and when nobody watched.
pub(crate) struct Timeline {
    events: VecDeque<Event>,
    spans: VecDeque<Span>,
    file: Option<Files>,
    written_ms: u64,
    started_ms: u64,
}

impl Timeline {
    /// In memory alone.
    pub(crate) fn new(now_ms: u64) -> Self {
        Self {
            events: VecDeque::new(),
            spans: VecDeque::new(),
            file: None,
            written_ms: 0,
            started_ms: now_ms,
        }
    }

    /// In that directory, which is made if it is missing.
    pub(crate) fn open(directory: &Path, now_ms: u64) -> io::Result<Self> {
        fs::create_dir_all(directory)?;
        let mut this = Self::new(now_ms);
        for number in (0..FILES).rev() {
            let Ok(file) = File::open(path(directory, number)) else {
                continue;
            };
            for line in BufReader::new(file).lines() {
                match serde_json::from_str(&line?) {
                    Ok(Line::Watched { watched }) => this.saw(watched),
                    Ok(Line::Event(event)) => this.push(*event),
                    Err(_) => {}
                }
            }
        }
        this.file = Some(Files::open(directory)?);
        Ok(this)
    }

    pub(crate) fn is_kept(&self) -> bool {
        self.file.is_some()
    }

    fn push(&mut self, event: Event) {
        if self.events.len() == MOST_EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    fn saw(&mut self, span: Span) {
        join(&mut self.spans, span);
        if self.spans.len() > MOST_SPANS {
            self.spans.pop_front();
        }
    }

    /// The locks were looked at, and that has happened. A look that too few nodes answered has
    /// `seen` nothing: whatever happened to a lock then is not known.
    pub(crate) fn looked(&mut self, now_ms: u64, seen: bool, events: impl Iterator<Item = Event>) {
        let before = self.spans.back().map(|span| span.from_ms);
        if seen {
            self.saw(Span {
                from_ms: now_ms,
                to_ms: now_ms,
            });
        }
        let is_new = self.spans.back().map(|span| span.from_ms) != before;
        let mut lines = Vec::new();
        for event in events.filter(Event::is_notable) {
            lines.push(Line::Event(Box::new(event.clone())));
            self.push(event);
        }
        let due = now_ms.saturating_sub(self.written_ms) >= WRITE_EVERY_MS;
        if is_new || due || !lines.is_empty() {
            self.written_ms = now_ms;
            if let Some(last) = self.spans.back() {
                lines.push(Line::Watched { watched: *last });
            }
        }
        if let Some(files) = &mut self.file {
            for line in &lines {
                if let Err(error) = files.write(line) {
                    tracing::error!(%error, "the timeline cannot be written");
                    break;
                }
            }
        }
    }

    /// What fits, and may be seen: the latest first. And when it was watched.
    pub(crate) fn known(
        &self,
        filter: &Filter,
        now_ms: u64,
        sees: impl Fn(&Event) -> bool,
    ) -> Known {
        let fits = |event: &&Event| filter.fits(event) && sees(event);
        let mut found = self.events.iter().rev().filter(fits);
        let events = found.by_ref().take(MOST_SHOWN).map(|event| Seen {
            event: event.clone(),
            seen_by: Vec::new(),
        });
        let events: Vec<_> = events.collect();
        let since = self.spans.front().map(|span| span.from_ms);
        let watched = self.spans.iter().copied();
        Known {
            since_ms: since.unwrap_or(self.started_ms),
            now_ms,
            kept: self.is_kept(),
            more: found.next().is_some(),
            watched: watched
                .filter(|span| span.to_ms >= filter.since_ms)
                .collect(),
            events,
        }
    }
}

/// An event, and which replicas have seen it where there are several.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Seen {
    #[serde(flatten)]
    pub(crate) event: Event,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) seen_by: Vec<String>,
}

/// What one replica knows, or all of them together. The latest event comes first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Known {
    pub(crate) since_ms: u64,
    pub(crate) now_ms: u64,
    pub(crate) kept: bool,
    pub(crate) more: bool,
    pub(crate) watched: Vec<Span>,
    pub(crate) events: Vec<Seen>,
}

impl Known {
    /// When nobody watched, between the first look and now.
    pub(crate) fn gaps(&self) -> Vec<Span> {
        let next = self.watched.iter().skip(1).map(|span| span.from_ms);
        let next = next.chain([self.now_ms]);
        let gaps = self.watched.iter().zip(next).map(|(span, next)| Span {
            from_ms: span.to_ms,
            to_ms: next,
        });
        gaps.filter(|gap| gap.to_ms > gap.from_ms.saturating_add(LONGEST_PAUSE_MS))
            .collect()
    }

    /// Together with what others know: of each event once, with who has seen it, and watched is what
    /// any of them has watched.
    pub(crate) fn merged(self, name: &str, others: Vec<(String, Self)>) -> Self {
        let mut all = Self {
            watched: Vec::new(),
            events: Vec::new(),
            ..self
        };
        let mut events = Vec::new();
        let own = (name.to_owned(), self);
        for (replica, known) in [own].into_iter().chain(others) {
            all.since_ms = all.since_ms.min(known.since_ms);
            all.kept |= known.kept;
            all.more |= known.more;
            all.watched.extend(known.watched);
            events.extend(
                known
                    .events
                    .into_iter()
                    .map(|it| (replica.clone(), it.event)),
            );
        }
        all.watched.sort_by_key(|span| span.from_ms);
        let mut watched: VecDeque<Span> = VecDeque::new();
        for span in all.watched.drain(..) {
            join(&mut watched, span);
        }
        all.watched = watched.into();
        events.sort_by_key(|(_, event)| event.at_ms);
        for (replica, event) in events {
            let late = |it: &&mut Seen| it.event.at_ms.saturating_add(SAME_MS) >= event.at_ms;
            let mut recent = all.events.iter_mut().rev().take_while(late);
            let twin =
                |it: &&mut Seen| is_same(&it.event, &event) && !it.seen_by.contains(&replica);
            match recent.find(twin) {
                Some(twin) => twin.seen_by.push(replica),
                None => all.events.push(Seen {
                    event,
                    seen_by: vec![replica],
                }),
            }
        }
        all.events.reverse();
        all.more |= all.events.len() > MOST_SHOWN;
        all.events.truncate(MOST_SHOWN);
        all
    }
}

/// Whether two replicas mean the same by these, if they were seen at about the same time.
fn is_same(one: &Event, other: &Event) -> bool {
    let what = |it: &Event| (it.event.clone(), it.name.clone(), it.node.clone());
    let whose = |it: &Event| (it.owner.clone(), it.token);
    what(one) == what(other) && whose(one) == whose(other)
}

/// Adds an interval that begins no earlier than the last one.
fn join(spans: &mut VecDeque<Span>, span: Span) {
    match spans.back_mut() {
        Some(last) if span.from_ms <= last.to_ms.saturating_add(LONGEST_PAUSE_MS) => {
            last.to_ms = last.to_ms.max(span.to_ms);
        }
        _ => spans.push_back(span),
    }
}

fn path(directory: &Path, number: u32) -> PathBuf {
    directory.join(format!("timeline.{number}.jsonl"))
}

/// Files of bounded size: 0 is written to, and the largest number is the oldest.
struct Files {
    directory: PathBuf,
    current: File,
    size: u64,
}

impl Files {
    fn open(directory: &Path) -> io::Result<Self> {
        let options = OpenOptions::new().create(true).append(true).clone();
        let current = options.open(path(directory, 0))?;
        let mut this = Self {
            directory: directory.to_owned(),
            size: current.metadata()?.len(),
            current,
        };
        // A line that a crash has cut off must not spoil the next one.
        if this.size > 0 {
            this.current.write_all(b"\n")?;
        }
        Ok(this)
    }

    fn write(&mut self, line: &Line) -> io::Result<()> {
        if self.size >= FILE_BYTES {
            for number in (0..FILES - 1).rev() {
                let _ = fs::rename(
                    path(&self.directory, number),
                    path(&self.directory, number + 1),
                );
            }
            *self = Self::open(&self.directory)?;
        }
        let mut text = serde_json::to_string(line)?;
        text.push('\n');
        self.current.write_all(text.as_bytes())?;
        self.size += text.len() as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(at_ms: u64, name: &str) -> Event {
        Event {
            event: "lost".into(),
            at_ms,
            name: Some(name.into()),
            ..Event::default()
        }
    }

    fn span(from_ms: u64, to_ms: u64) -> Span {
        Span { from_ms, to_ms }
    }

    #[test]
    fn what_was_written_is_there_after_a_restart_and_the_time_between_is_a_gap() {
        let dir = tempfile::tempdir().unwrap();
        let mut timeline = Timeline::open(dir.path(), 0).unwrap();
        timeline.looked(1_000, true, [event(1_000, "job")].into_iter());
        timeline.looked(40_000, true, std::iter::empty());
        drop(timeline);
        let mut half = OpenOptions::new()
            .append(true)
            .open(path(dir.path(), 0))
            .unwrap();
        half.write_all(b"{\"event\":\"lo").unwrap();
        let mut timeline = Timeline::open(dir.path(), 100_000).unwrap();
        timeline.looked(100_000, true, [event(100_000, "job")].into_iter());
        drop(timeline);
        let timeline = Timeline::open(dir.path(), 101_000).unwrap();
        let known = timeline.known(&Filter::default(), 101_000, |_| true);
        assert_eq!(known.events.len(), 2, "{known:?}");
        assert_eq!(known.since_ms, 1_000);
        // Nobody looked between 1 s and 40 s either.
        assert_eq!(known.gaps(), [span(1_000, 40_000), span(40_000, 100_000)]);
    }

    #[test]
    fn a_look_that_too_few_nodes_answered_is_no_look() {
        let mut timeline = Timeline::new(0);
        for at in 0..60 {
            let seen = !(20..50).contains(&at);
            let down = (at == 20).then(|| event(at * 1_000, "n"));
            timeline.looked(at * 1_000, seen, down.into_iter());
        }
        let known = timeline.known(&Filter::default(), 60_000, |_| true);
        assert_eq!(known.gaps(), [span(19_000, 50_000)]);
        assert_eq!(known.events.len(), 1, "what was noticed is kept");
    }

    #[test]
    fn what_two_replicas_saw_is_there_once_and_a_gap_is_when_neither_watched() {
        let seen = |event| Seen {
            event,
            seen_by: Vec::new(),
        };
        let known = |watched: &[Span], events: &[Event]| Known {
            since_ms: watched[0].from_ms,
            now_ms: 300_000,
            kept: true,
            more: false,
            watched: watched.to_vec(),
            events: events.iter().rev().cloned().map(seen).collect(),
        };
        let a = known(
            &[span(10_000, 60_000), span(200_000, 300_000)],
            &[
                event(20_000, "both"),
                event(50_000, "a"),
                event(210_000, "both"),
            ],
        );
        let b = known(
            &[
                span(0, 30_000),
                span(50_000, 100_000),
                span(290_000, 300_000),
            ],
            &[
                event(22_000, "both"),
                event(90_000, "b"),
                event(230_000, "both"),
            ],
        );
        let all = a.merged("a", vec![("b".into(), b)]);
        assert_eq!(all.since_ms, 0);
        assert_eq!(all.gaps(), [span(100_000, 200_000)]);
        let found = all.events.iter().rev().map(|it| {
            let name = it.event.name.clone().unwrap_or_default();
            (it.event.at_ms, name, it.seen_by.join("+"))
        });
        let found: Vec<_> = found.collect();
        let expected = [
            (20_000, "both", "a+b"),
            (50_000, "a", "a"),
            (90_000, "b", "b"),
            // The same again, later: another one.
            (210_000, "both", "a"),
            (230_000, "both", "b"),
        ];
        let expected = expected.map(|(at, name, by)| (at, name.to_owned(), by.to_owned()));
        assert_eq!(found, expected);
    }

    #[test]
    fn it_is_found_by_name_and_by_owner_and_only_by_who_may_see_it() {
        let mut timeline = Timeline::new(0);
        timeline.looked(10, true, [event(10, "a"), event(10, "secret")].into_iter());
        let count = |filter: &Filter| {
            let sees = |event: &Event| event.name.as_deref() != Some("secret");
            timeline.known(filter, 20, sees).events.len()
        };
        let named = |name: &str| Filter {
            name: Some(name.into()),
            ..Filter::default()
        };
        assert_eq!(count(&Filter::default()), 1);
        assert_eq!((count(&named("a")), count(&named("secret"))), (1, 0));
        let owned = Filter {
            owner: Some("x".into()),
            ..Filter::default()
        };
        assert_eq!(count(&owned), 0);
    }

    #[test]
    fn files_are_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let mut files = Files::open(dir.path()).unwrap();
        let line = Line::Event(Box::new(event(1, "job")));
        for _ in 0..FILES + 3 {
            files.size = FILE_BYTES;
            files.write(&line).unwrap();
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), FILES as usize);
    }
}
