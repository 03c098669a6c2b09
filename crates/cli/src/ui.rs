//! `fencepost ui`: the dashboard for those who have no server.

use std::process::ExitCode;

use fencepost_server::{Mode, Options};

use crate::args::UiJob;
use crate::exit::Failure;
use crate::serve::{self, Served};

pub(crate) fn run(job: &UiJob) -> Result<ExitCode, Failure> {
    let mut options = Options::new();
    options.mode = match job.allow_steal {
        true => Mode::ReadAndSteal,
        false => Mode::ReadOnly,
    };
    options.timeline.clone_from(&job.timeline);
    options.doctor = Some(serve::doctor(&job.place));
    serve::until_told(
        &Served {
            listen: job.listen,
            metrics: None,
            scheme: "http",
            path: "/ui/",
            place: &job.place,
        },
        options,
        |url| {
            let may = match job.allow_steal {
                true => "it may steal locks",
                false => "it only shows; --allow-steal lets it steal locks",
            };
            format!("fencepost: the dashboard is at {url} until you press Ctrl-C; {may}\n")
        },
    )
}
