//! `fencepost init`: makes a cluster of several servers.

use std::process::ExitCode;

use crate::args::InitJob;
use crate::client::{self, fault};
use crate::exit::Failure;
use crate::voice;

pub(crate) fn run(job: &InitJob) -> Result<ExitCode, Failure> {
    let runtime = client::runtime()?;
    let made = runtime.block_on(job.place.builder().init(job.options.clone()));
    // A name that is being looked up must not keep us.
    runtime.shutdown_background();
    made.map_err(|error| fault(&error))?;
    Ok(voice::print("the cluster is ready\n"))
}
