//! [`Tracker`]: from one look at all locks to the next: what has happened in between. Pure.
//!
//! It says what was seen and nothing more. A holder that is gone before its expiry has released, or
//! was stolen from by somebody outside of this service, which nodes do not tell apart: where another
//! holds the lock at once, the event names it (`next`).

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::contention::Contention;
use crate::view::{HolderView, LockView, is_near_its_end};

/// How many ended holds of one name are remembered, and of how many names.
const MOST_HOLDS: usize = 16;
const MOST_NAMES: usize = 5_000;
/// How long a steal waits to be seen on the nodes.
const STEAL_MS: u64 = 60_000;
/// What a look and the nodes' clocks may be apart by when an expiry is judged.
const SLACK_MS: u64 = 100;

/// Something that has happened.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Event {
    /// `acquired`, `released`, `expired`, `stolen`, `lost`, `near_miss`, `node_down`, `node_up`,
    /// `quarantined`, `voting`.
    pub(crate) event: String,
    pub(crate) at_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) node: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) owner: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) token: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) held_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) waited_ms: Option<u64>,
    /// What was left when it was last seen before it was renewed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) left_ms: Option<u64>,
    /// Who held the lock when this one was seen gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<String>,
    /// Which principal stole it, and why; what a node says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) by: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
}

impl Event {
    /// Whether it is kept for days: not what happens all the time.
    pub(crate) fn is_notable(&self) -> bool {
        !matches!(self.event.as_str(), "acquired" | "released")
    }
}

/// A hold that has ended.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct PastHold {
    pub(crate) owner: String,
    pub(crate) token: Option<u64>,
    pub(crate) since_ms: u64,
    pub(crate) ended_ms: u64,
    pub(crate) ended: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
}

/// A steal that was made through this service.
#[derive(Clone, Debug)]
pub(crate) struct Steal {
    pub(crate) name: String,
    pub(crate) token: u64,
    pub(crate) by: String,
    pub(crate) reason: String,
    pub(crate) at_ms: u64,
}

/// What changed between two looks.
#[derive(Debug, Default)]
pub(crate) struct Diff {
    pub(crate) events: Vec<Event>,
    pub(crate) changed: Vec<Arc<LockView>>,
    /// What there is nothing to be seen of any more.
    pub(crate) removed: Vec<String>,
}

/// What all looks so far have shown.
#[derive(Default)]
pub(crate) struct Tracker {
    pub(crate) locks: BTreeMap<String, Arc<LockView>>,
    pub(crate) contention: Contention,
    past: HashMap<String, VecDeque<PastHold>>,
    /// Holders that a majority has no more and some node still has: lost, unless a release is on
    /// its way. The next look tells.
    doubtful: HashMap<(String, String), (HolderView, Option<String>)>,
    /// What was last known of locks of which nothing is known now.
    known: HashMap<String, Arc<LockView>>,
    steals: Vec<Steal>,
    looked_ms: Option<u64>,
}

impl Tracker {
    pub(crate) fn stolen(&mut self, steal: Steal) {
        self.steals.push(steal);
    }

    /// The last holders of that name, the latest first.
    pub(crate) fn past(&self, name: &str) -> Vec<PastHold> {
        let past = self.past.get(name).into_iter().flatten();
        past.rev().cloned().collect()
    }

    /// Forgets what it compares with: nobody looked for a while, and what happened then is not known.
    pub(crate) fn interrupted(&mut self) {
        self.locks.clear();
        self.doubtful.clear();
        self.known.clear();
        self.looked_ms = None;
    }

    /// Takes a look at all locks.
    pub(crate) fn look(&mut self, mut views: Vec<LockView>, now_ms: u64) -> Diff {
        let mut diff = Diff::default();
        let passed = self.looked_ms.map_or(0, |then| now_ms.saturating_sub(then));
        let first = self.looked_ms.is_none();
        self.looked_ms = Some(now_ms);
        self.contention.watched(passed);
        let before = std::mem::take(&mut self.locks);
        for mut view in views.drain(..) {
            let then = before.get(&view.name);
            if let Some(then) = then {
                view.continued(then);
            }
            view.warn_of_the_end(now_ms);
            if view.waiting > 0 {
                self.contention.waiting(&view.name, view.waiting, passed);
            }
            // Where too few nodes answer, nothing is known to have happened: what was known last is
            // compared with what is known next.
            let known = then.filter(|then| then.held.is_some()).cloned();
            match view.held {
                Some(_) => {
                    let known = known.or_else(|| self.known.remove(&view.name));
                    if !first {
                        self.compare(known.as_deref(), &view, now_ms, &mut diff.events);
                    }
                }
                None => {
                    if let Some(known) = known {
                        self.known.insert(view.name.clone(), known);
                    }
                }
            }
            let is_new = then.is_none_or(|then| **then != view);
            let view = match (then, is_new) {
                (Some(then), false) => Arc::clone(then),
                _ => Arc::new(view),
            };
            if is_new {
                match (view.is_busy(), then.is_some_and(|then| then.is_busy())) {
                    (true, _) => diff.changed.push(Arc::clone(&view)),
                    (false, true) => diff.removed.push(view.name.clone()),
                    (false, false) => {}
                }
            }
            self.locks.insert(view.name.clone(), view);
        }
        for (name, then) in &before {
            if !self.locks.contains_key(name) && then.is_busy() {
                diff.removed.push(name.clone());
            }
        }
        self.steals
            .retain(|steal| now_ms.saturating_sub(steal.at_ms) < STEAL_MS);
        self.doubtful
            .retain(|(name, _), _| self.locks.contains_key(name));
        self.known.retain(|name, _| self.locks.contains_key(name));
        diff
    }

    fn compare(
        &mut self,
        before: Option<&LockView>,
        now: &LockView,
        now_ms: u64,
        events: &mut Vec<Event>,
    ) {
        let name = &now.name;
        let next = now.holders().next().map(|next| next.owner.clone());
        let still = |key: &str| now.holders().any(|it| it.key == key);
        let doubtful: Vec<_> = self
            .doubtful
            .keys()
            .filter(|(of, _)| of == name)
            .cloned()
            .collect();
        for id in doubtful {
            let Some((gone, next)) = self.doubtful.remove(&id) else {
                continue;
            };
            if still(&gone.key) {
                continue;
            }
            let how = match now.nodes_with(&gone.key) {
                0 => self.how(name, &gone, now_ms),
                _ => "lost",
            };
            self.ended(name, &gone, how, next, now_ms, events);
        }
        for gone in before.into_iter().flat_map(LockView::holders) {
            if still(&gone.key) {
                continue;
            }
            if now.nodes_with(&gone.key) > 0 {
                let id = (name.clone(), gone.key.clone());
                self.doubtful.insert(id, (gone.clone(), next.clone()));
                continue;
            }
            let how = self.how(name, gone, now_ms);
            self.ended(name, gone, how, next.clone(), now_ms, events);
        }
        for new in now.holders() {
            let then = before.and_then(|view| view.holders().find(|it| it.key == new.key));
            match then {
                Some(then) => near_miss(name, then, new, now_ms, events),
                None => {
                    let waited = before.into_iter().flat_map(|view| &view.queue);
                    let mut waited = waited.filter(|it| it.session_id.is_some());
                    let waited = waited.find(|it| it.session_id == new.session_id);
                    let waited_ms = waited.map(|it| new.since_ms.saturating_sub(it.since_ms));
                    if let Some(ms) = waited_ms {
                        self.contention.wait_ended(name, ms);
                    }
                    events.push(Event {
                        event: "acquired".into(),
                        at_ms: new.since_ms,
                        name: Some(name.clone()),
                        owner: Some(new.owner.clone()),
                        token: new.token,
                        waited_ms,
                        ..Event::default()
                    });
                }
            }
        }
    }

    fn how(&self, name: &str, gone: &HolderView, now_ms: u64) -> &'static str {
        let expired = gone
            .expires_at_ms
            .is_some_and(|end| end <= now_ms + SLACK_MS);
        match self.steal_from(name, gone) {
            Some(_) => "stolen",
            None if expired => "expired",
            None => "released",
        }
    }

    fn steal_from(&self, name: &str, gone: &HolderView) -> Option<&Steal> {
        let later = |steal: &&Steal| gone.token.is_none_or(|token| token < steal.token);
        let mut steals = self.steals.iter().filter(|steal| steal.name == name);
        steals.find(later)
    }

    fn ended(
        &mut self,
        name: &str,
        gone: &HolderView,
        how: &'static str,
        next: Option<String>,
        now_ms: u64,
        events: &mut Vec<Event>,
    ) {
        let steal = self.steal_from(name, gone).filter(|_| how == "stolen");
        let (by, reason) = (
            steal.map(|steal| steal.by.clone()),
            steal.map(|steal| steal.reason.clone()),
        );
        let held_ms = now_ms.saturating_sub(gone.since_ms);
        self.contention.hold_ended(name, held_ms, next.is_some());
        if self.past.len() >= MOST_NAMES && !self.past.contains_key(name) {
            self.past.clear();
        }
        let past = self.past.entry(name.to_owned()).or_default();
        past.push_back(PastHold {
            owner: gone.owner.clone(),
            token: gone.token,
            since_ms: gone.since_ms,
            ended_ms: now_ms,
            ended: how.to_owned(),
            next: next.clone(),
            by: by.clone(),
            reason: reason.clone(),
        });
        if past.len() > MOST_HOLDS {
            past.pop_front();
        }
        events.push(Event {
            event: how.into(),
            at_ms: now_ms,
            name: Some(name.to_owned()),
            owner: Some(gone.owner.clone()),
            token: gone.token,
            held_ms: Some(held_ms),
            next,
            by,
            reason,
            ..Event::default()
        });
    }
}

/// Renewed with less than a third of its TTL left: seen so low, and seen higher now.
fn near_miss(
    name: &str,
    then: &HolderView,
    new: &HolderView,
    now_ms: u64,
    events: &mut Vec<Event>,
) {
    let (Some(was), Some(is), Some(ttl)) = (then.expires_at_ms, new.expires_at_ms, then.ttl_ms)
    else {
        return;
    };
    // Below a second a look takes too large a part of it to tell.
    if is > was && ttl >= 1_000 && then_was_near(then, was, ttl, now_ms, new) {
        events.push(Event {
            event: "near_miss".into(),
            at_ms: now_ms,
            name: Some(name.to_owned()),
            owner: Some(new.owner.clone()),
            token: new.token,
            left_ms: Some(was.saturating_sub(is.saturating_sub(new.ttl_ms.unwrap_or(ttl)))),
            ..Event::default()
        });
    }
}

/// When it was renewed, about: its new end less its TTL. What was left of the old one then is what
/// counts, so that looks may be far apart.
fn then_was_near(then: &HolderView, was: u64, ttl: u64, now_ms: u64, new: &HolderView) -> bool {
    let renewed_at = new.expires_at_ms.unwrap_or(now_ms).saturating_sub(ttl);
    let left = was.saturating_sub(renewed_at.min(now_ms));
    left < ttl / 3 || is_near_its_end(then, renewed_at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::{Cell, Kind};

    fn held(owner: &str, key: &str, token: u64, expires_at_ms: u64) -> HolderView {
        HolderView {
            key: key.into(),
            session_id: None,
            owner: owner.into(),
            session: None,
            token: Some(token),
            since_ms: 1_000,
            expires_at_ms: Some(expires_at_ms),
            ttl_ms: Some(9_000),
            max_hold_ms: None,
            foreign: false,
        }
    }

    fn view(holder: Option<HolderView>, on: &[&str]) -> LockView {
        let cell = |key: &&str| Cell {
            node: "n".into(),
            keys: vec![(*key).to_owned()],
            error: None,
            holder: None,
            token: None,
            expires_at_ms: None,
            register: 0,
            waiting: 0,
            agrees: true,
        };
        LockView {
            name: "job".into(),
            kind: Kind::Lock,
            of: None,
            slot: None,
            held: Some(holder.is_some()),
            holder,
            readers: Vec::new(),
            register: 0,
            waiting: 0,
            queue: Vec::new(),
            votes: 3,
            answered: 3,
            of_nodes: 3,
            warnings: Vec::new(),
            cells: on.iter().map(cell).collect(),
        }
    }

    fn words(diff: &Diff) -> Vec<&str> {
        diff.events
            .iter()
            .map(|event| event.event.as_str())
            .collect()
    }

    #[test]
    fn what_happened_is_told_from_what_two_looks_saw() {
        let a = || Some(held("a", "A", 5, 20_000));
        let b = || Some(held("b", "B", 6, 40_000));
        let mut tracker = Tracker::default();
        assert!(
            tracker
                .look(vec![view(a(), &["A"])], 10_000)
                .events
                .is_empty(),
            "the first look"
        );
        assert!(
            tracker
                .look(vec![view(a(), &["A"])], 10_250)
                .changed
                .is_empty(),
            "all the same"
        );
        let released = tracker.look(vec![view(None, &[])], 10_500);
        assert_eq!(
            (words(&released), &released.removed[0]),
            (vec!["released"], &"job".to_owned())
        );
        assert_eq!(
            words(&tracker.look(vec![view(a(), &["A"])], 11_000)),
            ["acquired"]
        );
        let handed = tracker.look(vec![view(b(), &["B"])], 11_500);
        assert_eq!(words(&handed), ["released", "acquired"]);
        assert_eq!(handed.events[0].next.as_deref(), Some("b"));
        let expired = tracker.look(vec![view(None, &[])], 40_001);
        assert_eq!(words(&expired), ["expired"]);
        let ended: Vec<_> = tracker
            .past("job")
            .iter()
            .map(|past| past.ended.clone())
            .collect();
        assert_eq!(
            ended,
            ["expired", "released", "released"],
            "the latest first"
        );
    }

    #[test]
    fn a_holder_that_only_a_minority_still_has_is_lost_once_a_second_look_confirms_it() {
        let a = || Some(held("a", "A", 5, 60_000));
        let mut tracker = Tracker::default();
        tracker.look(vec![view(a(), &["A", "A"])], 1_000);
        assert!(
            tracker
                .look(vec![view(None, &["A"])], 1_250)
                .events
                .is_empty(),
            "on its way?"
        );
        assert_eq!(
            words(&tracker.look(vec![view(None, &["A"])], 1_500)),
            ["lost"]
        );
        let mut tracker = Tracker::default();
        tracker.look(vec![view(a(), &["A", "A"])], 1_000);
        tracker.look(vec![view(None, &["A"])], 1_250);
        assert_eq!(
            words(&tracker.look(vec![view(None, &[])], 1_500)),
            ["released"],
            "it was"
        );
    }

    #[test]
    fn a_steal_through_the_service_is_told_with_its_reason() {
        let mut tracker = Tracker::default();
        tracker.look(vec![view(Some(held("a", "A", 5, 60_000)), &["A"])], 1_000);
        tracker.stolen(Steal {
            name: "job".into(),
            token: 6,
            by: "ops".into(),
            reason: "stuck".into(),
            at_ms: 1_100,
        });
        let diff = tracker.look(vec![view(Some(held("t", "T", 6, 60_000)), &["T"])], 1_250);
        assert_eq!(words(&diff), ["stolen", "acquired"]);
        assert_eq!(diff.events[0].reason.as_deref(), Some("stuck"));
    }

    #[test]
    fn a_renewal_is_a_near_miss_only_below_a_third_of_the_ttl() {
        for (renewed_at, expected) in [(4_000, 0), (8_500, 1)] {
            let mut tracker = Tracker::default();
            tracker.look(vec![view(Some(held("a", "A", 5, 10_000)), &["A"])], 1_000);
            let renewed = held("a", "A", 5, renewed_at + 9_000);
            let diff = tracker.look(vec![view(Some(renewed), &["A"])], renewed_at + 100);
            let near = diff
                .events
                .iter()
                .filter(|event| event.event == "near_miss");
            assert_eq!(near.count(), expected, "renewed at {renewed_at}");
        }
    }

    #[test]
    fn nothing_is_said_to_have_happened_where_too_few_nodes_answer() {
        let mut tracker = Tracker::default();
        tracker.look(vec![view(Some(held("a", "A", 5, 60_000)), &["A"])], 1_000);
        let unknown = LockView {
            held: None,
            ..view(None, &[])
        };
        assert!(tracker.look(vec![unknown], 1_250).events.is_empty());
        let again = view(Some(held("a", "A", 5, 60_000)), &["A"]);
        assert!(
            tracker.look(vec![again], 1_500).events.is_empty(),
            "it was held all the time"
        );
    }
}
