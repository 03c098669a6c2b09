//! stub
use crate::args::DoctorJob;
use crate::exit::Failure;
use std::process::ExitCode;
pub(crate) fn run(_job: &DoctorJob) -> Result<ExitCode, Failure> {
    Err(Failure::usage("not yet"))
}
