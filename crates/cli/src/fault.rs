//! What the library says went wrong, in the words and options of the program.
//!
//! Whatever knows the library's errors is here: nothing that the program prints may name an item of
//! the library, which cannot be typed.

use std::time::{Duration, SystemTime};

use fencepost::{
    Error, ErrorKind, HolderStatus, LockName, LossReason, NodeError, NodeOutcome, NodeReport,
};

use crate::duration::Readable;
use crate::exit::{Exit, Failure, Holder};
use crate::table;

const FRESH_HINT: &str = "new servers wait like this once; `fencepost init --fresh` skips it, but only before the \
                          first client";
const TRUST_HINT: &str = "--restart-policy trust lets restarted servers vote at once: safe only if \
                          they kept their data";

/// The failure that the error is; `busy` is the exit code for a lock that is held.
pub(crate) fn failure(error: &Error, busy: u8) -> Failure {
    let exit = match error.kind() {
        ErrorKind::Held | ErrorKind::Timeout => Exit::Busy(busy),
        ErrorKind::Lost => Exit::Lost,
        ErrorKind::InvalidName
        | ErrorKind::InvalidTtl
        | ErrorKind::InvalidUrl
        | ErrorKind::InvalidOption => Exit::Usage,
        ErrorKind::NoRuntime | ErrorKind::NoRandomness => Exit::Internal,
        // No quorum, unreachable, too late, a file that cannot be opened.
        _ => Exit::Unavailable,
    };
    let name = error.name().unwrap_or_default();
    let why = ours(error.reason().unwrap_or_default());
    match error.kind() {
        ErrorKind::Held | ErrorKind::Timeout => {
            let Some(holder) = error.holder() else {
                return Failure::new(exit, ours(&error.to_string()));
            };
            let held = held(holder);
            let holder = Holder {
                by: holder.owner.to_string(),
                since: holder.since(),
                remaining: holder.remaining,
            };
            Failure {
                holder: Some(Box::new(holder)),
                ..Failure::new(exit, format!("lock \"{name}\" is {held}"))
            }
        }
        ErrorKind::NoQuorum => no_quorum(exit, name, error.nodes()),
        ErrorKind::Unreachable => unreachable_store(exit, error.nodes()),
        ErrorKind::InvalidUrl => {
            let url = error.invalid_value().unwrap_or_default();
            Failure::new(exit, format!("invalid URL {url} (--store): {why}"))
        }
        ErrorKind::InvalidTtl => {
            let ttl = error.invalid_value().unwrap_or_default();
            Failure::new(exit, format!("invalid TTL {ttl} (--ttl): {why}"))
        }
        ErrorKind::InvalidOption => {
            let option = error.option().unwrap_or_default().replace('_', "-");
            Failure::new(exit, format!("invalid option --{option}: {why}"))
        }
        _ => Failure::new(exit, ours(&error.to_string())),
    }
}

fn no_quorum(exit: Exit, name: &str, nodes: &[NodeReport]) -> Failure {
    let agreed = nodes.iter().filter(|it| it.outcome == NodeOutcome::Agreed);
    let (agreed, all) = (agreed.count(), nodes.len());
    let needed = all / 2 + 1;
    let message = match nodes {
        [_] => format!("lock \"{name}\" was not granted"),
        _ => format!(
            "no quorum for lock \"{name}\": {agreed} of {all} nodes agreed, {needed} are needed"
        ),
    };
    by_node(exit, message, nodes)
}

/// Why a lock could not be released: nothing was asked to be granted.
pub(crate) fn not_released(error: &Error) -> Failure {
    let failure = failure(error, Exit::BUSY);
    match error.kind() {
        ErrorKind::NoQuorum => Failure {
            message: "no quorum".into(),
            ..failure
        },
        _ => failure,
    }
}

fn unreachable_store(exit: Exit, nodes: &[NodeReport]) -> Failure {
    // Not how many can be used: one that has not answered yet may be either.
    let failed = nodes.iter().filter(|it| is_failed(&it.outcome)).count();
    let all = nodes.len();
    let needed = all / 2 + 1;
    let message = match nodes {
        [_] => "cannot use the store".to_owned(),
        _ => {
            format!("cannot connect: {failed} of {all} nodes cannot be used; a quorum is {needed}")
        }
    };
    let mut failure = by_node(exit, message, nodes);
    for (place, it) in nodes.iter().enumerate() {
        if it.outcome == NodeOutcome::Agreed {
            // Nothing was asked of it that it could agree to, and it may be in quarantine.
            failure.nodes[place].1 = "answered".into();
        }
    }
    failure
}

fn is_failed(outcome: &NodeOutcome) -> bool {
    matches!(outcome, NodeOutcome::Failed(_))
}

/// A failure that each node has its own reason for.
fn by_node(exit: Exit, message: String, nodes: &[NodeReport]) -> Failure {
    let waits =
        |it: &NodeReport| matches!(it.outcome, NodeOutcome::Failed(NodeError::Quarantined(_)));
    let mut hints = Vec::new();
    if nodes.len() > 1 && nodes.iter().all(waits) {
        // All of them, and each has said so: these servers have not been used together before. One that has
        // forgotten among others that have not must never be initialised, and a silent one may be such another.
        hints.push(FRESH_HINT.to_owned());
    }
    let is_group =
        |it: &NodeReport| it.node.contains("+sentinel://") || it.node.contains("+cluster://");
    if nodes.iter().any(waits) && !nodes.iter().any(is_group) {
        hints.push(TRUST_HINT.to_owned());
    }
    let reasons = nodes.iter();
    let reasons = reasons.map(|it| (it.node.clone(), outcome(&it.outcome)));
    Failure {
        nodes: reasons.collect(),
        hints,
        ..Failure::new(exit, message)
    }
}

pub(crate) fn outcome(outcome: &NodeOutcome) -> String {
    match outcome {
        NodeOutcome::Held { by, remaining } => format!("held by {by} ({})", expiry(*remaining)),
        NodeOutcome::Failed(error) => node(error),
        other => other.to_string(),
    }
}

/// Why a node could not be asked, or does not vote.
pub(crate) fn node(error: &NodeError) -> String {
    match error {
        NodeError::Quarantined(left) => quarantined(*left),
        other => ours(&other.to_string()),
    }
}

/// That a node may have forgotten locks, and for how long it does not vote.
pub(crate) fn quarantined(left: Duration) -> String {
    format!(
        "may have forgotten locks (restarted, flushed, failed over or new); votes again in {}",
        Readable(left)
    )
}

/// `held by X since about 12:04:31Z (2m 5s), expires in 26s unless renewed`
pub(crate) fn held(holder: &HolderStatus) -> String {
    format!(
        "held {}",
        by(
            holder.owner.as_str(),
            holder.since(),
            &expiry(holder.remaining)
        )
    )
}

/// `by X since about 12:04:31Z (2m 5s), expires in 26s unless renewed`, or without the time where it is
/// not known: `by X (no expiry)`.
pub(crate) fn by(owner: &str, since: Option<SystemTime>, expiry: &str) -> String {
    match since {
        Some(at) => format!("by {owner} since about {}, {expiry}", table::since(at)),
        None => format!("by {owner} ({expiry})"),
    }
}

/// When a lock ends if its holder does nothing.
pub(crate) fn expiry(remaining: Option<Duration>) -> String {
    match remaining {
        Some(time) => format!("expires in {} unless renewed", Readable(time)),
        None => "no expiry".into(),
    }
}

/// The library's words, with the program's options in place of its items.
fn ours(text: &str) -> String {
    let text = text.replace("RestartPolicy::", "--restart-policy ");
    let text = text.replace("--restart-policy Trust", "--restart-policy trust");
    text.replace("max_ttl", "--max-ttl")
}

/// Which lock was lost, and how, if that is what the error says.
pub(crate) fn loss(error: &Error) -> Option<(LockName, LossReason)> {
    let name = LockName::new(error.name()?).ok()?;
    Some((name, error.loss()?.clone()))
}

/// Whether it is the nodes that are waited for, and not another holder.
pub(crate) fn lacks_nodes(error: &Error) -> bool {
    let failed = error.nodes().iter().filter(|it| is_failed(&it.outcome));
    failed.count() * 2 >= error.nodes().len() && !error.nodes().is_empty()
}

/// Whether so many of the nodes that could not be reached may be reached later that they are a quorum.
pub(crate) fn may_connect(error: &Error) -> bool {
    let is_final = |it: &&NodeReport| match &it.outcome {
        NodeOutcome::Failed(error) => error.is_permanent() || !error.may_pass(),
        _ => false,
    };
    let nodes = error.nodes();
    let is_final = nodes.iter().filter(is_final).count();
    error.kind() == ErrorKind::Unreachable && (nodes.len() - is_final) * 2 > nodes.len()
}

/// Whether waiting may help.
pub(crate) fn may_pass(error: &Error) -> bool {
    use ErrorKind::{Held, NoQuorum, Timeout, TooLate};
    matches!(error.kind(), Held | Timeout | NoQuorum | TooLate)
}

/// What is wrong with the value of an option, without the option's name.
pub(crate) fn reason(error: &Error) -> String {
    match error.reason() {
        Some(why) => ours(why),
        None => ours(&error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quarantined(node: &str) -> NodeReport {
        let left = Duration::from_secs(42);
        NodeReport::new(node, NodeOutcome::Failed(NodeError::Quarantined(left)))
    }

    #[test]
    fn no_quorum_is_a_sentence_and_an_aligned_line_for_each_node() {
        let agreed = NodeReport::new("redis://a", NodeOutcome::Agreed);
        let nodes = vec![
            agreed,
            quarantined("redis://b.example"),
            quarantined("redis://c"),
        ];
        let failure = no_quorum(Exit::Unavailable, "job", &nodes);
        assert_eq!(
            failure.to_string(),
            "no quorum for lock \"job\": 1 of 3 nodes agreed, 2 are needed\n  \
             redis://a          agreed\n  \
             redis://b.example  may have forgotten locks (restarted, flushed, failed over or new); votes again in \
             42s\n  \
             redis://c          may have forgotten locks (restarted, flushed, failed over or new); votes again in \
             42s\n  \
             hint: --restart-policy trust lets restarted servers vote at once: safe only if they \
             kept their data"
        );
    }

    /// It said "1 of 3 nodes can be used" above a node with "no answer yet".
    #[test]
    fn a_node_that_has_not_answered_yet_is_not_called_usable() {
        let of = |node: &str, outcome| NodeReport::new(node, outcome);
        let down = || NodeOutcome::Failed(NodeError::Unreachable("refused".into()));
        let nodes = vec![
            of("redis://a", NodeOutcome::Pending),
            of("redis://b", down()),
            of("redis://c", down()),
        ];
        let text = unreachable_store(Exit::Unavailable, &nodes).to_string();
        assert!(
            text.starts_with(
                "cannot connect: 2 of 3 nodes cannot be used; a quorum is 2\n  \
                 redis://a  no answer yet\n"
            ),
            "{text}"
        );
    }

    #[test]
    fn one_node_has_its_reason_in_the_sentence() {
        let nodes = vec![quarantined("redis://a")];
        let failure = unreachable_store(Exit::Unavailable, &nodes);
        let text = failure.to_string();
        assert!(
            text.starts_with("cannot use the store: redis://a: may have forgotten"),
            "{text}"
        );
    }

    #[test]
    fn no_item_of_the_library_is_named() {
        for error in [
            NodeError::Quarantined(Duration::from_secs(1)).to_string(),
            "it is above max_ttl".to_owned(),
        ] {
            let text = ours(&error);
            assert!(
                !text.contains("RestartPolicy") && !text.contains("max_ttl"),
                "{text}"
            );
        }
    }
}
