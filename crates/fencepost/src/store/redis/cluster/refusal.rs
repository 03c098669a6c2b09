//! What a node of a Cluster says in place of an answer. It proves that nothing was done.

use crate::error::NodeError;

/// Why a node did not carry out a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The slot is another shard's.
    Moved,
    /// The slot is on its way, and with it some of the keys.
    ///
    /// `ASK` too: it says that the keys are where the slot goes to, if they are anywhere. A script has keys
    /// that do not exist, and the node there carries it out only when all of them do; so there is nothing to
    /// follow, and a lock waits until its slot has arrived.
    Passing,
    /// The Cluster, or the slot's shard, is down.
    Down,
}

/// What a node says that serves nothing.
pub(super) const CLUSTER_DOWN: &str = "CLUSTERDOWN";

/// What the node said, without what others have put before it.
pub(super) fn words(error: &NodeError) -> String {
    match error {
        NodeError::Unsuitable(text) | NodeError::Other(text) => text.clone(),
        _ => error.to_string(),
    }
}

impl Refusal {
    pub(super) fn of(error: &NodeError) -> Option<Self> {
        let (NodeError::Unsuitable(text) | NodeError::Other(text)) = error else {
            return None;
        };
        match text.split(' ').next() {
            Some("MOVED") => Some(Self::Moved),
            Some("ASK" | "TRYAGAIN") => Some(Self::Passing),
            Some(CLUSTER_DOWN) => Some(Self::Down),
            _ => None,
        }
    }

    /// Whether the slot is elsewhere, or will be.
    pub(super) fn is_passing(self) -> bool {
        self != Self::Down
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_told_by_its_first_word() {
        let of = |text: &str| {
            let [one, two] = [NodeError::Unsuitable, NodeError::Other]
                .map(|kind| Refusal::of(&kind(text.to_owned())));
            assert_eq!(one, two, "{text}");
            one
        };
        assert_eq!(of("MOVED 7 127.0.0.1:7001"), Some(Refusal::Moved));
        assert_eq!(of("ASK 7 127.0.0.1:7001"), Some(Refusal::Passing));
        assert_eq!(
            of("TRYAGAIN Multiple keys request during rehashing of slot"),
            Some(Refusal::Passing)
        );
        for text in [
            "CLUSTERDOWN The cluster is down",
            "CLUSTERDOWN Hash slot not served",
        ] {
            assert_eq!(of(text), Some(Refusal::Down));
        }
        assert_eq!(of("ERR MOVED"), None);
        // What has not come from the node proves nothing.
        let lost = NodeError::Disconnected("CLUSTERDOWN The cluster is down".to_owned());
        assert_eq!(Refusal::of(&lost), None);
        assert!(Refusal::Moved.is_passing() && !Refusal::Down.is_passing());
    }
}
