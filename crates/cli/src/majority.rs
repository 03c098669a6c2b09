//! What a majority of the nodes says of a lock.

use fencepost::Status;
use fencepost_core::lock::Snapshot;

use crate::exit::{Exit, Failure};
use crate::fault;

/// That too few nodes answered to tell who holds it.
pub(crate) fn too_few(status: &Status) -> Failure {
    let (answered, all) = (answered(status), status.nodes.len());
    let message = match status.split.as_slice() {
        [] => format!("no quorum: {answered} of {all} nodes answered"),
        _ => format!(
            "no quorum: {answered} of {all} nodes answered, and the lock is {}",
            on_some_nodes(&status.split)
        ),
    };
    Failure::new(Exit::Unavailable, message)
}

/// Each node that did not answer, and why.
pub(crate) fn reasons(status: &Status) -> Vec<(String, String)> {
    let nodes = status.nodes.iter().filter_map(|node| {
        let error = node.lock.as_ref().err()?;
        Some((node.node.clone(), fault::node(error)))
    });
    nodes.collect()
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
