//! What a majority of the nodes says of a lock.

use fencepost::{NodeStatus, Status};
use fencepost_core::lock::Snapshot;

use crate::exit::{Exit, Failure};
use crate::fault;

/// That too few nodes answered to tell who holds it.
pub(crate) fn too_few(status: &Status) -> Failure {
    let (answered, all) = (answered(status), status.nodes.len());
    let forgot = status.nodes.iter().filter(|node| has_forgotten(node));
    let mut message = format!("no quorum: {answered} of {all} nodes answered");
    match forgot.count() {
        0 => {}
        some => message += &format!(", {some} may have forgotten locks"),
    }
    if !status.split.is_empty() {
        message += &format!(", and the lock is {}", on_some_nodes(&status.split));
    }
    Failure::new(Exit::Unavailable, message)
}

/// Each node that did not answer, or may have forgotten the holder, and why.
pub(crate) fn reasons(status: &Status) -> Vec<(String, String)> {
    let nodes = status.nodes.iter().filter_map(|node| {
        let why = match (&node.lock, node.quarantine) {
            (Err(error), _) => fault::node(error),
            (Ok(_), Some(left)) if has_forgotten(node) => fault::quarantined(left),
            (Ok(_), _) => return None,
        };
        Some((node.node.clone(), why))
    });
    nodes.collect()
}

/// Whether it answered, and that it knows of no holder means nothing.
pub(crate) fn has_forgotten(node: &NodeStatus) -> bool {
    node.lock.is_ok() && !node.can_tell()
}

fn answered(status: &Status) -> usize {
    status.nodes.iter().filter(|node| node.lock.is_ok()).count()
}

/// Whether enough nodes answered to tell whether anybody holds it.
pub(crate) fn is_known(status: &Status) -> bool {
    status.held.is_some()
}

/// The holder of a free lock.
pub(crate) const FREE: &str = "none";
/// The holder where too few nodes answered.
pub(crate) const UNKNOWN: &str = "unknown";

/// Whether any node has a holder for it.
pub(crate) fn is_held_somewhere(lock: &Status) -> bool {
    let held = |lock: &Snapshot| lock.holder.is_some();
    let mut nodes = lock.nodes.iter();
    nodes.any(|node| node.lock.as_ref().is_ok_and(held))
}

/// Who holds it, as one cell.
pub(crate) fn holder(lock: &Status) -> String {
    match &lock.holder {
        Some(holder) => holder.owner.to_string(),
        None if is_known(lock) && lock.split.is_empty() => FREE.into(),
        None if is_known(lock) => on_some_nodes(&lock.split),
        None => UNKNOWN.into(),
    }
}

/// `split between X and Y`: nobody is known to have it on a majority of the nodes.
pub(crate) fn on_some_nodes<T: std::fmt::Display>(owners: &[T]) -> String {
    match owners {
        [one] => format!("on a minority of the nodes by {one}"),
        several => {
            let several: Vec<_> = several.iter().map(ToString::to_string).collect();
            format!("split between {}", several.join(" and "))
        }
    }
}
