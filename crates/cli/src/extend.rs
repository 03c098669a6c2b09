//! `fencepost extend`: keeps a lock that `acquire` took.

use std::process::ExitCode;

use crate::args::ExtendJob;
use crate::client::{self, Connect, fault_of_value};
use crate::exit::Failure;
use crate::handed::Handed;
use crate::voice;

pub(crate) fn run(job: &ExtendJob) -> Result<ExitCode, Failure> {
    let builder = || job.place.builder().holder_process(job.holder.process());
    let remaining = client::with(builder, Connect::First, async |locks| {
        let extended = locks.extend_detached(&job.receipt, job.ttl).await;
        extended.map_err(|error| fault_of_value(&error))
    })?;
    let handed = Handed {
        receipt: &job.receipt,
        remaining,
    };
    Ok(voice::print(&handed.print(job.form)))
}
