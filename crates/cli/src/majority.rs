//! What a majority of the nodes says of a lock.

use fencepost::Status;
use fencepost_core::lock::Snapshot;

use crate::exit::{Exit, Failure};
use crate::fault;

/// That fewer than a majority of the nodes answered.
pub(crate) fn too_few(status: &Status) -> Failure {
    let (answered, all) = (answered(status), status.nodes.len());
    let message = format!("no quorum: {answered} of {all} nodes answered");
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

/// Whether enough nodes answered to tell that it is free.
pub(crate) fn is_known(status: &Status) -> bool {
    answered(status) * 2 > status.nodes.len()
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
        None if is_held_somewhere(lock) => "none on a majority".into(),
        None if is_known(lock) => FREE.into(),
        None => UNKNOWN.into(),
    }
}
