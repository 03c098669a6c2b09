//! `fencepost doctor`: what is unsafe about the nodes, and how to fix it.
//!
//! - `findings`: from facts to findings. Pure.
//! - `report`: how they are shown.

mod findings;
mod report;

use std::process::ExitCode;

use fencepost::Builder;
use serde_json::{Value, json};

pub(crate) use self::findings::Policy;
use self::findings::judge;
use self::report::Look;
use crate::args::DoctorJob;
use crate::client::{self, fault};
use crate::exit::Failure;
use crate::voice;

/// Examines the nodes for others: as `--json` prints it.
pub(crate) async fn examine(builder: Builder, policy: Policy) -> Value {
    match builder.survey().await {
        Ok(surveys) => report::json(&surveys, &judge(&surveys, policy)),
        Err(error) => json!({ "nodes": [], "findings": [], "error": error.to_string() }),
    }
}

pub(crate) fn run(job: &DoctorJob) -> Result<ExitCode, Failure> {
    let missing = job.place.store.missing_files();
    let runtime = client::runtime()?;
    let surveys = runtime.block_on(job.place.builder().survey());
    // A name that is being looked up must not keep us.
    runtime.shutdown_background();
    let surveys = surveys.map_err(|error| fault(&error))?;
    let policy = Policy {
        restart: job.place.restart_policy,
        max_ttl: job.place.max_ttl,
    };
    let mut diagnosis = judge(&surveys, policy);
    diagnosis.add_created(&surveys, &missing);
    let text = match job.json {
        true => format!("{:#}\n", report::json(&surveys, &diagnosis)),
        false => report::text(&surveys, &diagnosis, Look::of_stdout()),
    };
    match voice::print(&text) {
        ExitCode::SUCCESS => Ok(diagnosis.exit_code().into()),
        unread => Ok(unread),
    }
}
