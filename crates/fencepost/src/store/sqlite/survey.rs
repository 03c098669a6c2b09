//! What a file of locks is like.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use super::boot::Boot;
use super::process::Process;
use super::{HolderProcess, SqliteNode, list};
use crate::error::{Cause, NodeError};
use crate::runtime::clock::Clock;
use crate::store::Node;
use crate::store::facts::{Facts, FileFacts, NodeSurvey, median};
use fencepost_core::lock::Command;
use fencepost_core::name::LockName;
use fencepost_core::pattern::NamePattern;

/// How often the time is taken.
const LOOKS: usize = 5;
/// A lock that is only looked at.
const PROBE: &str = "fencepost:doctor";

/// Opens the file, or makes it, and looks at it.
pub(crate) async fn survey(path: PathBuf, clock: Arc<dyn Clock>) -> NodeSurvey {
    let node = format!("file:{}", path.display());
    let opening = tokio::task::spawn_blocking(move || open(&path, clock)).await;
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

fn open(path: &Path, clock: Arc<dyn Clock>) -> Result<(SqliteNode, FileFacts), NodeError> {
    let node = SqliteNode::open_for(path, clock, HolderProcess::Unbound);
    let node = node.map_err(|error| match error.cause() {
        Cause::Store { why, .. } => NodeError::Store(why.clone()),
        other => NodeError::Store(other.to_string()),
    })?;
    let names = list::names(path, &NamePattern::all()).map_err(NodeError::Store)?;
    let file = std::fs::metadata(path).ok();
    let facts = FileFacts {
        sqlite: rusqlite::version(),
        bytes: file.as_ref().map(std::fs::Metadata::len),
        locks: names.names.len(),
        writable_by_all: file.is_some_and(|file| is_writable_by_all(&file)),
        tells_processes: Process::current().is_some(),
        tells_boots: Boot::current().0.is_some(),
        round_trip: std::time::Duration::ZERO,
    };
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
