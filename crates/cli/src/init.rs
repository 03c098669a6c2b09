//! `fencepost init`: makes a cluster of several servers.

use std::process::ExitCode;
use std::time::Duration;

use fencepost::diagnostics::{Facts, NodeSurvey};

use crate::args::InitJob;
use crate::client::{self, fault};
use crate::duration::Readable;
use crate::exit::Failure;
use crate::voice;

pub(crate) fn run(job: &InitJob) -> Result<ExitCode, Failure> {
    let runtime = client::runtime()?;
    let made = runtime.block_on(async {
        job.place.builder().init(job.options.clone()).await?;
        job.place.builder().survey().await
    });
    // A name that is being looked up must not keep us.
    runtime.shutdown_background();
    let surveys = made.map_err(|error| fault(&error))?;
    Ok(voice::print(&match (votes_in(&surveys), job.fresh) {
        (None, _) => "the cluster is ready\n".to_owned(),
        (Some(left), false) => {
            format!("the cluster is formed, and votes in {}\n", Readable(left))
        }
        // The first client was faster, or its nodes have lost their data since.
        (Some(left), true) => format!(
            "the cluster exists already, so --fresh changes nothing: it votes in {}\n",
            Readable(left)
        ),
    }))
}

/// How long it takes until a majority votes, if that is not so now.
fn votes_in(surveys: &[NodeSurvey]) -> Option<Duration> {
    let left = surveys.iter().map(|survey| match &survey.facts {
        Ok(Facts::Redis(facts)) => facts.quarantine.unwrap_or_default(),
        // It was there a moment ago, and says nothing now.
        _ => Duration::MAX,
    });
    let mut left: Vec<_> = left.collect();
    left.sort_unstable();
    let left = left.get(surveys.len() / 2).copied();
    left.filter(|left| !left.is_zero() && *left < Duration::MAX)
}
