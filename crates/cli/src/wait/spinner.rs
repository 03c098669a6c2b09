//! [`Spinner`]: one line at the terminal that moves while we wait.
//!
//! Nothing of it may be left when the wait is over, however it ends, and nothing of it may be
//! written where it is not a person who reads, or not our turn: a job in the background would draw
//! over the prompt.
//!
//! By hand and not by `indicatif`, which leaves the cursor behind the line and clears as many rows as
//! the line had when it was drawn: a terminal (tmux) that shrank from 110 to 50 columns kept two stale
//! rows of it for good (0.18.6). Here the cursor goes back to the first column, which keeps its place
//! when the terminal wraps the line anew, and everything from there on is cleared: none was left.

use std::convert::Infallible;
use std::io::IsTerminal;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::unistd::{getpgrp, tcgetpgrp};
use tokio::time::sleep;
use unicode_width::UnicodeWidthStr;

use super::progress::Told;
use crate::duration::whole_seconds;
use crate::exit::Failure;
use crate::fault;
use crate::majority::on_some_nodes;
use crate::table::{self, fitting};
use crate::target::Target;
use crate::teller;
use crate::voice::Voice;

const FRAMES: [char; 10] = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];
const EVERY: Duration = Duration::from_millis(100);
/// Back to the first column, and away with what is there and below.
const CLEAR: &str = "\r\x1b[J";
/// What is too long is cut off and not wrapped: the terminal may have shrunk since it was asked for its width, and the rows
/// below the first would stay.
const NO_WRAP: &str = "\x1b[?7l";
const WRAP: &str = "\x1b[?7h";
/// Where the terminal does not tell how wide it is.
const USUAL_WIDTH: usize = 80;

/// The line, for as long as this lives.
pub(super) struct Spinner {
    words: Words,
    began: Instant,
    board: Board,
    /// Whether a person wants to be told something, and the terminal knows how.
    may_draw: bool,
}

/// What is said of what is waited for.
struct Words {
    /// What it is.
    target: String,
    /// That others have it, before how long and who: `held`.
    taken: String,
    /// Why the first attempt failed: all that is known until the nodes tell more.
    why: String,
}

/// Where what is known is written for the spinner to read, from whatever thread.
#[derive(Clone, Default)]
pub(super) struct Board(Arc<Mutex<Option<(Told, Instant)>>>);

impl Board {
    /// Takes note of what is known.
    pub(super) fn tell(&self, told: Told) {
        let mut latest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *latest = Some((told, Instant::now()));
    }

    fn latest(&self) -> Option<(Told, Instant)> {
        let latest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        latest.clone()
    }
}

impl Spinner {
    /// It is drawn while a person looks at stderr and wants to be told something.
    pub(super) fn of(target: &Target, voice: Voice, why: &Failure) -> Self {
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        Self {
            words: Words {
                target: target.to_string(),
                taken: target.taken(),
                why: why.message.clone(),
            },
            began: Instant::now(),
            board: Board::default(),
            may_draw: voice == Voice::Plain && !dumb && std::io::stderr().is_terminal(),
        }
    }

    /// Whether it is drawn now: not while we are in the background.
    pub(super) fn is_drawn(&self) -> bool {
        self.may_draw && is_our_turn()
    }

    /// Takes note of what is known.
    pub(super) fn tell(&self, told: Told) {
        self.board.tell(told);
    }

    /// Where progress is reported.
    pub(super) fn board(&self) -> Board {
        self.board.clone()
    }

    /// Draws, again and again, until it is dropped.
    pub(super) async fn turn(&self) -> Infallible {
        for frame in FRAMES.into_iter().cycle().take_while(|_| self.may_draw) {
            if self.is_drawn() {
                let line = shortened(&format!("{frame} {}", self.line()), width());
                teller::draw(format!("{NO_WRAP}{CLEAR}{line}{WRAP}\r"));
            }
            sleep(EVERY).await;
        }
        std::future::pending().await
    }

    /// What is known, and when it was said.
    pub(super) fn latest(&self) -> Option<(Told, Instant)> {
        self.board.latest()
    }

    pub(super) fn line(&self) -> String {
        let latest = self.board.latest();
        let told = latest.as_ref().map(|(told, at)| (told, at.elapsed()));
        describe(&self.words, told, self.began.elapsed())
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        if self.is_drawn() {
            teller::say(CLEAR.to_owned());
        }
    }
}

/// Whether we are not in the background of the terminal. One that is not our session's does not tell.
fn is_our_turn() -> bool {
    let err = std::io::stderr();
    !tcgetpgrp(&err).is_ok_and(|group| group != getpgrp())
}

/// What the line says of what was told some time ago.
fn describe(words: &Words, told: Option<(&Told, Duration)>, waited: Duration) -> String {
    let Words { target, taken, why } = words;
    let waited = whole_seconds(waited);
    let Some((told, ago)) = told else {
        return format!("waiting for {target} ({waited}); first attempt: {why}");
    };
    // What changes comes first, and what may be long last: it is cut off where the line ends.
    let place = match told.place {
        Some(1) => ", next in queue".to_owned(),
        Some(place) => format!(", number {place} in queue"),
        None => String::new(),
    };
    let held = match (&told.by, told.remaining) {
        (Some(by), Some(time)) => {
            let left = whole_seconds(time.saturating_sub(ago));
            let expiry = format!("expires in {left} unless renewed");
            format!("{taken} {}", fault::by(by, told.since, &expiry))
        }
        (Some(by), None) => format!("{taken} {}", fault::by(by, told.since, "no expiry")),
        (None, _) if !told.split.is_empty() => on_some_nodes(&told.split),
        (None, _) => "being handed off".to_owned(),
    };
    format!("waiting for {target} ({waited}){place}: {held}")
}

/// What fits on one line, so that there is one line to clear.
fn shortened(line: &str, width: usize) -> String {
    let room = width.saturating_sub(1);
    match line.width() <= room {
        true => line.to_owned(),
        false => format!("{}…", fitting(line, room.saturating_sub(1))),
    }
}

fn width() -> usize {
    table::width_of(&std::io::stderr()).unwrap_or(USUAL_WIDTH)
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn the_line_says_who_has_it_for_how_long_and_our_place() {
        let mut progress = Told {
            by: Some("web-3:7:sh".into()),
            split: Vec::new(),
            since: None,
            remaining: Some(Duration::from_secs(20)),
            place: Some(2),
        };
        let (ago, waited) = (Duration::from_millis(4500), Duration::from_secs(65));
        let words = Words {
            target: "lock \"job\"".into(),
            taken: "held".into(),
            why: "no quorum".into(),
        };
        let line = describe(&words, Some((&progress, ago)), waited);
        assert_eq!(
            line,
            "waiting for lock \"job\" (1m 5s), number 2 in queue: held by web-3:7:sh (expires in 15s unless \
             renewed)"
        );
        progress.since = Some(SystemTime::now() - Duration::from_secs(125));
        let line = describe(&words, Some((&progress, ago)), waited);
        assert!(
            line.contains("held by web-3:7:sh since about ")
                && line.ends_with("Z (2m 5s), expires in 15s unless renewed"),
            "{line}"
        );
        progress.since = None;
        progress.place = Some(1);
        progress.remaining = None;
        let line = describe(&words, Some((&progress, ago)), waited);
        assert!(
            line.ends_with("next in queue: held by web-3:7:sh (no expiry)"),
            "{line}"
        );
        progress.by = None;
        let line = describe(&words, Some((&progress, ago)), waited);
        assert!(line.ends_with("next in queue: being handed off"), "{line}");
        progress.split = ["a", "b"].map(str::to_owned).into();
        let line = describe(&words, Some((&progress, ago)), waited);
        assert!(
            line.ends_with("next in queue: split between a and b"),
            "{line}"
        );
        progress.split.clear();
        assert_eq!(
            describe(&words, None, Duration::ZERO),
            "waiting for lock \"job\" (0s); first attempt: no quorum"
        );
        let words = Words {
            target: "a slot of \"pool\"".into(),
            taken: "all 3 are taken, one".into(),
            why: "no quorum".into(),
        };
        progress.by = Some("web-3:7:sh".into());
        progress.remaining = Some(Duration::from_secs(20));
        let line = describe(&words, Some((&progress, ago)), waited);
        assert_eq!(
            line,
            "waiting for a slot of \"pool\" (1m 5s), next in queue: all 3 are taken, one by \
             web-3:7:sh (expires in 15s unless renewed)"
        );
    }

    #[test]
    fn a_line_is_never_longer_than_the_terminal_is_wide() {
        assert_eq!(shortened("abc", 4), "abc");
        assert_eq!(shortened("abcd", 4), "ab…");
        assert_eq!(shortened("äöüß", 3), "ä…");
        assert_eq!(shortened("abc", 0), "…");
        // Each of these takes two columns.
        assert_eq!(shortened("日本語", 7), "日本語");
        assert_eq!(shortened("日本語", 6), "日本…");
    }
}
