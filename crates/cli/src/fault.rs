//! What the library says went wrong, in the words and options of the program.
//!
//! Whatever knows the library's errors is here: nothing that the program prints may name an item of
//! the library, which nobody can type.

use std::time::Duration;

use fencepost::{Error, LockName, LossReason, NodeError, NodeOutcome, NodeReport};

use crate::duration::Readable;
use crate::exit::{Exit, Failure, Holder};

const TRUST_HINT: &str = "--restart-policy trust lets restarted servers vote at once: safe only if \
                          they kept their data";

/// The failure that the error is; `busy` is the exit code for a lock that somebody else holds.
pub(crate) fn failure(error: &Error, busy: u8) -> Failure {
    let exit = match error {
        Error::Held { .. } => Exit::Busy(busy),
        Error::Lost { .. } => Exit::Lost,
        Error::InvalidName { .. }
        | Error::InvalidTtl { .. }
        | Error::InvalidUrl { .. }
        | Error::InvalidOption { .. } => Exit::Usage,
        Error::NoRuntime | Error::NoRandomness => Exit::Internal,
        // No quorum, unreachable, too late, a file that cannot be opened.
        _ => Exit::Unavailable,
    };
    match error {
        Error::Held {
            name,
            by,
            remaining,
        } => Failure {
            holder: Some(Box::new(Holder {
                by: by.to_string(),
                remaining: *remaining,
            })),
            ..Failure::new(
                exit,
                format!("lock \"{name}\" is {}", held(by.as_str(), *remaining)),
            )
        },
        Error::NoQuorum {
            name,
            needed,
            nodes,
        } => {
            let agreed = nodes.iter().filter(|it| it.outcome == NodeOutcome::Agreed);
            let (agreed, all) = (agreed.count(), nodes.len());
            let message = match nodes.as_slice() {
                [_] => format!("lock \"{name}\" was not granted"),
                _ => format!(
                    "no quorum for lock \"{name}\": {agreed} of {all} nodes agreed, {needed} are \
                     needed"
                ),
            };
            by_node(exit, message, nodes)
        }
        Error::Unreachable { needed, nodes } => {
            let usable = nodes.iter().filter(|it| !is_failed(&it.outcome)).count();
            let all = nodes.len();
            let message = match nodes.as_slice() {
                [_] => "cannot use the store".to_owned(),
                _ => format!(
                    "cannot connect: {usable} of {all} nodes can be used, {needed} are needed"
                ),
            };
            by_node(exit, message, nodes)
        }
        Error::InvalidTtl { ttl, why } => {
            let (ttl, why) = (Readable(*ttl), ours(why));
            Failure::new(
                exit,
                format!("a TTL of {ttl} (--ttl) cannot be used: {why}"),
            )
        }
        Error::InvalidOption { option, why } => {
            let (option, why) = (option.replace('_', "-"), ours(why));
            Failure::new(exit, format!("--{option} cannot be used: {why}"))
        }
        other => Failure::new(exit, ours(&other.to_string())),
    }
}

fn is_failed(outcome: &NodeOutcome) -> bool {
    matches!(outcome, NodeOutcome::Failed(_))
}

/// A failure that each node has its own reason for.
fn by_node(exit: Exit, message: String, nodes: &[NodeReport]) -> Failure {
    let waits =
        |it: &NodeReport| matches!(it.outcome, NodeOutcome::Failed(NodeError::Quarantined(_)));
    let hints = match nodes.iter().any(waits) {
        true => vec![TRUST_HINT.to_owned()],
        false => vec![],
    };
    let reasons = nodes.iter();
    let reasons = reasons.map(|it| (it.node.clone(), outcome(&it.outcome)));
    Failure {
        nodes: reasons.collect(),
        hints,
        ..Failure::new(exit, message)
    }
}

fn outcome(outcome: &NodeOutcome) -> String {
    match outcome {
        NodeOutcome::Held { by, remaining } => held(by.as_str(), *remaining),
        NodeOutcome::Failed(error) => node(error),
        other => other.to_string(),
    }
}

/// Why a node could not be asked, or does not vote.
pub(crate) fn node(error: &NodeError) -> String {
    match error {
        NodeError::Quarantined(left) => format!(
            "restarted a short while ago and may have forgotten locks; votes again in {}",
            Readable(*left)
        ),
        other => ours(&other.to_string()),
    }
}

/// `held by X (expires in 26s unless renewed)`
pub(crate) fn held(by: &str, remaining: Option<Duration>) -> String {
    format!("held by {by} ({})", expiry(remaining))
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
pub(crate) fn loss(error: &Error) -> Option<(&LockName, &LossReason)> {
    match error {
        Error::Lost { name, why } => Some((name, why)),
        _ => None,
    }
}

/// Whether waiting may help.
pub(crate) fn may_pass(error: &Error) -> bool {
    matches!(
        error,
        Error::Held { .. } | Error::NoQuorum { .. } | Error::TooLate { .. }
    )
}

/// What is wrong with the value of an option, without the option's name.
pub(crate) fn reason(error: Error) -> String {
    match error {
        Error::InvalidOption { why, .. } => ours(&why),
        other => ours(&other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quarantined(node: &str) -> NodeReport {
        NodeReport {
            node: node.into(),
            outcome: NodeOutcome::Failed(NodeError::Quarantined(Duration::from_secs(42))),
        }
    }

    #[test]
    fn no_quorum_is_a_sentence_and_an_aligned_line_for_each_node() {
        let name = LockName::new("job").unwrap();
        let agreed = NodeReport {
            node: "redis://a".into(),
            outcome: NodeOutcome::Agreed,
        };
        let nodes = vec![
            agreed,
            quarantined("redis://b.example"),
            quarantined("redis://c"),
        ];
        let needed = 2;
        let failure = failure(
            &Error::NoQuorum {
                name,
                needed,
                nodes,
            },
            75,
        );
        assert_eq!(
            failure.to_string(),
            "no quorum for lock \"job\": 1 of 3 nodes agreed, 2 are needed\n  \
             redis://a          agreed\n  \
             redis://b.example  restarted a short while ago and may have forgotten locks; votes \
             again in 42s\n  \
             redis://c          restarted a short while ago and may have forgotten locks; votes \
             again in 42s\n  \
             hint: --restart-policy trust lets restarted servers vote at once: safe only if they \
             kept their data"
        );
    }

    #[test]
    fn one_node_has_its_reason_in_the_sentence() {
        let nodes = vec![quarantined("redis://a")];
        let failure = failure(&Error::Unreachable { needed: 1, nodes }, 75);
        let text = failure.to_string();
        assert!(
            text.starts_with("cannot use the store: redis://a: restarted a short"),
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
