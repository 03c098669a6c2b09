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
use serde_json::{Value, json};

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

/// An interval in which the locks were watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Span {
    from_ms: u64,
    to_ms: u64,
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
        match self.spans.back_mut() {
            Some(last) if span.from_ms <= last.to_ms.saturating_add(LONGEST_PAUSE_MS) => {
                last.to_ms = last.to_ms.max(span.to_ms);
            }
            _ => {
                if self.spans.len() == MOST_SPANS {
                    self.spans.pop_front();
                }
                self.spans.push_back(span);
            }
        }
    }

    /// The locks were looked at, and that has happened.
    pub(crate) fn looked(&mut self, now_ms: u64, events: impl Iterator<Item = Event>) {
        let span = Span {
            from_ms: now_ms,
            to_ms: now_ms,
        };
        let before = self.spans.len();
        self.saw(span);
        let mut lines = Vec::new();
        for event in events.filter(Event::is_notable) {
            lines.push(Line::Event(Box::new(event.clone())));
            self.push(event);
        }
        let due = now_ms.saturating_sub(self.written_ms) >= WRITE_EVERY_MS;
        if self.spans.len() != before || due || !lines.is_empty() {
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

    /// What fits, and may be seen: the latest first. And the gaps.
    pub(crate) fn shown(
        &self,
        filter: &Filter,
        now_ms: u64,
        sees: impl Fn(&Event) -> bool,
    ) -> Value {
        let fits = |event: &&Event| filter.fits(event) && sees(event);
        let mut found = self.events.iter().rev().filter(fits);
        let events: Vec<_> = found.by_ref().take(MOST_SHOWN).collect();
        let more = found.next().is_some();
        let mut gaps = Vec::new();
        let mut spans = self.spans.iter().peekable();
        while let Some(span) = spans.next() {
            let next = spans.peek().map_or(now_ms, |next| next.from_ms);
            let is_gap = next > span.to_ms.saturating_add(LONGEST_PAUSE_MS);
            if is_gap && next >= filter.since_ms {
                gaps.push(Span {
                    from_ms: span.to_ms,
                    to_ms: next,
                });
            }
        }
        let since = self
            .spans
            .front()
            .map_or(self.started_ms, |span| span.from_ms);
        json!({
            "since_ms": since, "now_ms": now_ms, "kept": self.is_kept(), "more": more,
            "gaps": gaps, "events": events,
        })
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

    #[test]
    fn what_was_written_is_there_after_a_restart_and_the_time_between_is_a_gap() {
        let dir = tempfile::tempdir().unwrap();
        let mut timeline = Timeline::open(dir.path(), 0).unwrap();
        timeline.looked(1_000, [event(1_000, "job")].into_iter());
        timeline.looked(40_000, std::iter::empty());
        drop(timeline);
        let mut half = OpenOptions::new()
            .append(true)
            .open(path(dir.path(), 0))
            .unwrap();
        half.write_all(b"{\"event\":\"lo").unwrap();
        let mut timeline = Timeline::open(dir.path(), 100_000).unwrap();
        timeline.looked(100_000, [event(100_000, "job")].into_iter());
        drop(timeline);
        let timeline = Timeline::open(dir.path(), 101_000).unwrap();
        let shown = timeline.shown(&Filter::default(), 101_000, |_| true);
        assert_eq!(shown["events"].as_array().unwrap().len(), 2, "{shown}");
        assert_eq!(shown["since_ms"], 1_000);
        // Nobody looked between 1 s and 40 s either.
        let gaps = json!([
            { "from_ms": 1_000, "to_ms": 40_000 }, { "from_ms": 40_000, "to_ms": 100_000 },
        ]);
        assert_eq!(shown["gaps"], gaps);
    }

    #[test]
    fn it_is_found_by_name_and_by_owner_and_only_by_who_may_see_it() {
        let mut timeline = Timeline::new(0);
        timeline.looked(10, [event(10, "a"), event(10, "secret")].into_iter());
        let count = |filter: &Filter| {
            let sees = |event: &Event| event.name.as_deref() != Some("secret");
            let shown = timeline.shown(filter, 20, sees);
            shown["events"].as_array().unwrap().len()
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
