//! Facts about a lock file.

use std::sync::Arc;
use std::time::Instant;

use super::boot::Boot;
use super::fault::READ_ONLY;
use super::holder::{Holder, HolderProcess};
use super::place::FileSpec;
use super::process::Process;
use super::store::Store;
use super::{SqliteNode, list};
use crate::error::NodeError;
use crate::runtime::clock::Clock;
use crate::runtime::tasks;
use crate::store::Node;
use crate::store::facts::{Facts, FileFacts, NodeSurvey, median};
use fencepost_core::lock::Command;
use fencepost_core::name::LockName;
use fencepost_core::pattern::NamePattern;

/// The number of samples.
const LOOKS: usize = 5;
/// The lock that is inspected, and whose row is written and deleted again.
const PROBE: &str = "fencepost:doctor";

/// Opens or creates the file, inspects it, and writes to it.
pub(crate) async fn survey(spec: FileSpec, clock: Arc<dyn Clock>) -> NodeSurvey {
    let node = spec.address();
    let opening = tasks::block(move || open(spec, clock)).await;
    let opened = opening.unwrap_or_else(|error| Err(NodeError::Store(error.to_string())));
    let facts = match opened {
        Ok((node, facts)) => time(&node, facts).await,
        Err(error) => Err(error),
    };
    NodeSurvey {
        node,
        facts: facts.map(Facts::File),
    }
}

fn open(spec: FileSpec, clock: Arc<dyn Clock>) -> Result<(SqliteNode, FileFacts), NodeError> {
    let holder = Holder::find(HolderProcess::Unbound).map_err(NodeError::Store)?;
    let store = Store::open(spec.clone(), Arc::clone(&clock), holder);
    let mut store = store.map_err(|error| match error {
        NodeError::ReadOnly(_) => NodeError::Store(READ_ONLY.into()),
        other => other,
    })?;
    if let Ok(name) = LockName::new(PROBE) {
        store.probe(&name)?;
    }
    let names = list::names(&spec, &NamePattern::all())?;
    let file = std::fs::metadata(&spec.path).ok();
    let facts = FileFacts {
        sqlite: rusqlite::version(),
        bytes: file.as_ref().map(std::fs::Metadata::len),
        locks: names.names.len(),
        writable_by_all: file.is_some_and(|file| is_writable_by_all(&file)),
        tells_processes: Process::current().is_some(),
        tells_boots: Boot::current().0.is_some(),
        round_trip: std::time::Duration::ZERO,
    };
    let node = SqliteNode::with(store, spec, clock).map_err(NodeError::Store)?;
    Ok((node, facts))
}

fn is_writable_by_all(file: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::PermissionsExt;

    file.permissions().mode() & 0o002 != 0
}

async fn time(node: &SqliteNode, mut facts: FileFacts) -> Result<FileFacts, NodeError> {
    let Ok(name) = LockName::new(PROBE) else {
        return Ok(facts);
    };
    let mut times = Vec::with_capacity(LOOKS);
    for _ in 0..LOOKS {
        let start = Instant::now();
        node.call(&name, Command::Inspect).await?;
        times.push(start.elapsed());
    }
    facts.round_trip = median(times);
    Ok(facts)
}
