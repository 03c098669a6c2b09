//! `fencepost release`: releases a lock that `acquire` acquired.

use std::process::ExitCode;

use serde_json::json;

use crate::args::ReleaseJob;
use crate::client::{self, Connect, fault_of_value};
use crate::exit::Failure;
use crate::voice;

pub(crate) fn run(job: &ReleaseJob) -> Result<ExitCode, Failure> {
    // Every node that can be reached is asked, also when they are too few.
    client::with(
        || job.place.builder(),
        Connect::Meanwhile,
        async |locks| {
            let released = locks.release_detached(&job.receipt).await;
            released.map_err(|error| fault_of_value(&error))
        },
    )?;
    let lock = job.receipt.name().as_str();
    Ok(voice::print(&match job.json {
        true => format!("{:#}\n", json!({ "lock": lock, "released": true })),
        false => format!("lock \"{lock}\" released\n"),
    }))
}
