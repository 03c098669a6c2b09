use std::collections::{HashSet, VecDeque};

use super::*;

const MAX_TTL: Duration = Duration::from_secs(60);
const SECOND: u64 = 1_000_000;

fn terms(nodes: &[&str]) -> Terms {
    let nodes = nodes.iter().map(ToString::to_string).collect();
    Terms::new(nodes, MAX_TTL, least_retention(MAX_TTL))
}

fn marker(stage: Stage) -> Marker {
    Marker {
        cluster: "c".into(),
        epoch: 1,
        node: 0,
        terms: terms(&["a", "b", "c"]),
        stage,
        since_us: 100 * SECOND,
        incarnation: "i".into(),
        run_id: "r".into(),
        history: String::new(),
        durable: false,
        fresh: false,
    }
}

fn sight(after: u64) -> Sight {
    Sight {
        run_id: "r".into(),
        history: String::new(),
        now_us: (100 + after) * SECOND,
        syncs: Some(true),
        grace: Duration::ZERO,
    }
}

fn verdict(marker: &Marker, sight: &Sight) -> Verdict {
    judge(&terms(&["c", "b", "a"]), 0, marker, sight)
}

#[test]
fn a_marker_is_read_as_it_was_written() {
    for (stage, _) in Stage::ALL {
        let marker = Marker {
            durable: true,
            history: "abc 17".into(),
            ..marker(stage)
        };
        assert_eq!(marker.to_string().parse(), Ok(marker));
    }
    // The address of a Sentinel group has commas.
    let group = Marker {
        terms: terms(&["redis://a", "redis+sentinel://b:1,c:1/m", "redis://d"]),
        ..marker(Stage::Active)
    };
    assert_eq!(group.to_string().parse(), Ok(group));
    for text in ["", "something else", "fencepost-marker 2\ncluster c\n"] {
        assert_eq!(text.parse::<Marker>(), Err(Unreadable), "{text}");
    }
}

#[test]
fn a_restarted_server_waits_whatever_its_settings_say() {
    let restarted = Sight {
        run_id: "other".into(),
        ..sight(1)
    };
    let waits = Verdict::Rewrite(Stage::Quarantine, false);
    assert_eq!(verdict(&marker(Stage::Active), &restarted), waits);
    let promised = Marker {
        durable: true,
        ..marker(Stage::Active)
    };
    let kept = Verdict::Rewrite(Stage::Active, true);
    assert_eq!(verdict(&promised, &restarted), kept);
    for (syncs, durable) in [(Some(false), false), (None, true)] {
        let sight = Sight {
            syncs,
            ..restarted.clone()
        };
        let waits = Verdict::Rewrite(Stage::Quarantine, durable);
        assert_eq!(verdict(&promised, &sight), waits, "{syncs:?}");
    }
    // What waits already has not kept anything.
    let waiting = Marker {
        durable: true,
        ..marker(Stage::Quarantine)
    };
    let anew = Verdict::Rewrite(Stage::Quarantine, true);
    assert_eq!(verdict(&waiting, &restarted), anew);
}

#[test]
fn a_promise_that_is_seen_broken_is_struck() {
    let promised = Marker {
        durable: true,
        ..marker(Stage::Active)
    };
    assert_eq!(verdict(&promised, &sight(1)), Verdict::Votes);
    let broken = Sight {
        syncs: Some(false),
        ..sight(1)
    };
    let struck = Verdict::Rewrite(Stage::Active, false);
    assert_eq!(verdict(&promised, &broken), struck);
}

#[test]
fn a_quarantine_lasts_from_when_it_was_written() {
    let waiting = marker(Stage::Quarantine);
    let left = |seconds| Verdict::Waits(Duration::from_secs(seconds));
    assert_eq!(verdict(&waiting, &sight(0)), left(60));
    assert_eq!(verdict(&waiting, &sight(59)), left(1));
    let votes = Verdict::Rewrite(Stage::Active, false);
    assert_eq!(verdict(&waiting, &sight(60)), votes);
    let group = |after| Sight {
        grace: Duration::from_secs(20),
        ..sight(after)
    };
    assert_eq!(verdict(&waiting, &group(60)), left(20), "a Sentinel group");
    assert_eq!(verdict(&waiting, &group(80)), votes);
    // The server's clock went back: nobody knows how long it has been.
    let past = Sight {
        now_us: 50 * SECOND,
        ..sight(0)
    };
    let anew = Verdict::Rewrite(Stage::Quarantine, false);
    assert_eq!(verdict(&waiting, &past), anew);
}

#[test]
fn another_history_is_a_change_of_data_and_none_is_not() {
    let quarantine = Verdict::Rewrite(Stage::Quarantine, false);
    let changed = Sight {
        history: "abc 17".into(),
        ..sight(1)
    };
    assert_eq!(verdict(&marker(Stage::Active), &changed), quarantine);
    let known = Marker {
        history: "abc 17".into(),
        ..marker(Stage::Active)
    };
    assert_eq!(verdict(&known, &changed), Verdict::Votes);
    // The backlog was freed.
    assert_eq!(verdict(&known, &sight(1)), Verdict::Votes);
}

#[test]
fn another_nodes_marker_is_another_nodes_data() {
    let copied = Marker {
        node: 1,
        durable: true,
        ..marker(Stage::Active)
    };
    let quarantine = Verdict::Rewrite(Stage::Quarantine, false);
    assert_eq!(verdict(&copied, &sight(1)), quarantine);
    // What is not committed yet must not become so by a copy.
    let pending = Marker {
        node: 1,
        ..marker(Stage::Pending)
    };
    assert_eq!(verdict(&pending, &sight(1)), Verdict::Pending);
}

/// "Not held" was a vote: nodes that had forgotten a detached lock, or had an old copy in which another held it, told its
/// holder that it was lost.
#[test]
fn what_a_node_in_quarantine_says_of_a_lock_is_no_vote() {
    let other = crate::lock::Holder {
        value: crate::words::value::AttemptValue::reported("other"),
        token: None,
        remaining: None,
    };
    for reply in [Reply::NotHeld(None), Reply::NotHeld(Some(other.clone()))] {
        assert!(is_void_in_quarantine(&reply, true), "{reply:?}");
        assert!(
            !is_void_in_quarantine(&reply, false),
            "of a release: {reply:?}"
        );
    }
    for void in [Reply::Extended, Reply::Repaired] {
        assert!(is_void_in_quarantine(&void, true), "{void:?}");
    }
    // The steal of exactly this value has happened there.
    for seen in [Reply::Stolen(other.value), Reply::Released] {
        assert!(!is_void_in_quarantine(&seen, true), "{seen:?}");
    }
}

#[test]
fn what_differs_is_named_with_both_values() {
    let mut other = marker(Stage::Active);
    other.terms = terms(&["a", "b", "c", "d", "e"]);
    let Verdict::Refuse(why) = verdict(&other, &sight(0)) else {
        panic!("not refused");
    };
    assert!(why.contains("a,b,c,d,e") && why.ends_with("a,b,c"), "{why}");
    let mut other = marker(Stage::Active);
    other.terms.max_ttl = Duration::from_secs(5);
    let Verdict::Refuse(why) = verdict(&other, &sight(0)) else {
        panic!("not refused");
    };
    assert!(why.contains("5000 ms") && why.contains("60000 ms"), "{why}");
    let closing = verdict(&marker(Stage::Closing), &sight(0));
    assert!(matches!(closing, Verdict::Refuse(_)), "{closing:?}");
}

/// A list of one node keeps no marker, and yet must not vote beside a cluster. The rule is the same for longer ones.
#[test]
fn a_client_that_keeps_no_marker_is_outside_a_cluster_with_another_list() {
    let of_three = marker(Stage::Active);
    for list in [&["a"][..], &["a", "b"], &["a", "d"]] {
        for (stage, _) in Stage::ALL {
            let why = outside(&terms(list), &marker(stage));
            let why = why.unwrap_or_else(|| panic!("{list:?} {stage:?}"));
            assert!(
                why.contains("a,b,c") && why.ends_with(&list.join(",")),
                "{why}"
            );
        }
    }
    assert_eq!(outside(&terms(&["c", "a", "b"]), &of_three), None);
    let mut other = terms(&["a", "b", "c"]);
    other.max_ttl *= 2;
    assert!(outside(&other, &of_three).is_some(), "another max_ttl");
    let closing = outside(&terms(&["a", "b", "c"]), &marker(Stage::Closing));
    assert_eq!(closing.as_deref(), Some(CLOSING));
}

// Every order of events: clients of overlapping lists make clusters on the same nodes, look when they
// look, are delayed between a look and what follows from it, give up and undo.

/// How often each client looks at a node. Four looks make a cluster.
const LOOKS: u8 = 6;

/// A marker as it matters here: whose, and whether it is committed.
type Mark = Option<(u8, bool)>;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    marks: Vec<Mark>,
    clients: Vec<Maker>,
    /// Clusters that were committed somewhere.
    committed: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Maker {
    /// Its nodes, as indices of the world's.
    list: Vec<usize>,
    seen: Vec<Option<(Mark, u8, u8)>>,
    looks: u8,
    undoes: bool,
}

/// Clusters are told apart by who proposed them.
fn proposal(cluster: u8) -> Proposal {
    Proposal {
        cluster: cluster.to_string(),
        epoch: 1,
        durable: false,
        fresh: true,
    }
}

impl Maker {
    fn new(list: &[usize]) -> Self {
        Self {
            list: list.to_vec(),
            seen: vec![None; list.len()],
            looks: 0,
            undoes: false,
        }
    }

    /// A cluster has the list of whoever proposed it.
    fn views(&self, clients: &[Maker]) -> Vec<View> {
        let view = |seen: &Option<(Mark, u8, u8)>| {
            let mut view = View::default();
            let Some((mark, since, look)) = seen else {
                return view;
            };
            let seen = match mark {
                None => Seen::Bare,
                Some((by, _)) if clients[usize::from(*by)].list != self.list => {
                    Seen::Foreign("other".into())
                }
                Some((by, false)) => Seen::Pending(proposal(*by)),
                Some((by, true)) => Seen::Member(proposal(*by)),
            };
            view.saw(seen.clone(), u64::from(*since));
            view.saw(seen, u64::from(*look));
            view
        };
        self.seen.iter().map(view).collect()
    }
}

impl World {
    fn next(&self) -> Vec<World> {
        let mut next = Vec::new();
        for (number, client) in self.clients.iter().enumerate() {
            for (index, node) in client.list.iter().enumerate() {
                if client.looks < LOOKS {
                    let mut world = self.clone();
                    let looking = &mut world.clients[number];
                    looking.looks += 1;
                    let (mark, look) = (self.marks[*node], looking.looks);
                    // Since when only matters for what is pending: fewer states.
                    let is_pending = matches!(mark, Some((_, false)));
                    let before =
                        looking.seen[index].filter(|(seen, ..)| is_pending && *seen == mark);
                    let since = before.map_or(look, |(_, since, _)| since);
                    looking.seen[index] = Some((mark, since, look));
                    next.push(world);
                }
                let views = client.views(&self.clients);
                let is_foreign = |view: &View| matches!(view.seen, Seen::Foreign(_));
                if views.iter().any(is_foreign) && !client.undoes {
                    let mut world = self.clone();
                    world.clients[number].undoes = true;
                    next.push(world);
                    continue;
                }
                if client.seen[index].is_none() || is_foreign(&views[index]) {
                    continue;
                }
                let mark = &self.marks[*node];
                let by = u8::try_from(number).unwrap();
                let written = match step(index, &views, client.undoes) {
                    Step::Propose if mark.is_none() => Some((by, false)),
                    Step::Join(cluster) if mark.is_none() => {
                        Some((cluster.cluster.parse().unwrap(), false))
                    }
                    Step::Commit(cluster) => {
                        let cluster: u8 = cluster.cluster.parse().unwrap();
                        match mark {
                            Some((c, false)) if *c == cluster => Some((cluster, true)),
                            _ => continue,
                        }
                    }
                    Step::Withdraw => match (mark, client.seen[index]) {
                        (Some((_, false)), Some((seen, ..))) if seen == *mark => None,
                        _ => continue,
                    },
                    _ => continue,
                };
                if written == *mark {
                    continue;
                }
                let mut world = self.clone();
                world.marks[*node] = written;
                if let Some((cluster, true)) = written
                    && !world.committed.contains(&cluster)
                {
                    world.committed.push(cluster);
                }
                next.push(world);
            }
        }
        next
    }

    fn check(&self) {
        for cluster in &self.committed {
            let list = &self.clients[usize::from(*cluster)].list;
            for node in list {
                let mark = self.marks[*node];
                assert_eq!(mark.map(|(by, _)| by), Some(*cluster), "{self:?}");
            }
        }
    }
}

/// A cluster that is committed on one node has all its nodes, whoever else raced for them: so there are
/// never two clusters on one node, nor two of which each has only some.
#[test]
fn a_cluster_that_is_committed_somewhere_has_all_its_nodes() {
    for lists in [
        [&[0, 1][..], &[0, 1]],
        [&[0, 1], &[1, 2]],
        [&[0, 1], &[0, 2]],
        [&[0, 1], &[2, 0]],
        [&[1, 2], &[0, 2]],
    ] {
        let start = World {
            marks: vec![None; 3],
            clients: lists.iter().map(|list| Maker::new(list)).collect(),
            committed: Vec::new(),
        };
        let mut known = HashSet::from([start.clone()]);
        let mut open = VecDeque::from([start]);
        let mut made = 0;
        while let Some(world) = open.pop_front() {
            world.check();
            made += usize::from(!world.committed.is_empty());
            for next in world.next() {
                if known.insert(next.clone()) {
                    open.push_back(next);
                }
            }
        }
        assert!(made > 0, "no cluster was made: {lists:?}");
    }
}

#[test]
fn a_node_that_lost_its_marker_among_others_waits_and_is_never_initialised_anew() {
    let view = |seen| {
        let mut view = View::default();
        view.saw(seen, 1);
        view
    };
    let member = || view(Seen::Member(proposal(0)));
    let views = [view(Seen::Bare), member(), View::default()];
    assert_eq!(step(0, &views, false), Step::Quarantine(proposal(0)));
    // And where none of those that can be reached has one, the others are waited for.
    let views = [view(Seen::Bare), view(Seen::Bare), View::default()];
    assert_eq!(step(0, &views, false), Step::Wait(vec![2]));
}

/// Two nodes waited for each other for ever: the first for what was pending on the other to be withdrawn, and that
/// one for a look at the first that is later than its own latest, which is always the later one when it is asked.
#[test]
fn what_is_pending_is_withdrawn_when_a_later_look_shows_that_the_first_node_has_lost_it() {
    let mut views = vec![View::default(); 3];
    views[2].saw(Seen::Pending(proposal(0)), 1);
    views[1].saw(Seen::Bare, 2);
    views[0].saw(Seen::Bare, 3);
    assert_eq!(step(0, &views, false), Step::Wait(vec![1, 2]));
    views[2].saw(Seen::Pending(proposal(0)), 4);
    assert_eq!(step(2, &views, false), Step::Withdraw);
    views[2].saw(Seen::Bare, 5);
    assert_eq!(step(0, &views, false), Step::Propose);
    // It may have been proposed on the first node after that was looked at.
    views[2].saw(Seen::Pending(proposal(1)), 6);
    assert_eq!(step(2, &views, false), Step::Wait(vec![0]));
}
