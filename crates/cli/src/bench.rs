//! stub
use crate::args::BenchJob;
use crate::exit::Failure;
use std::process::ExitCode;
pub(crate) fn run(_job: &BenchJob) -> Result<ExitCode, Failure> {
    Err(Failure::usage("not yet"))
}
