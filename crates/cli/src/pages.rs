//! Completions and man pages, from the one definition of the arguments.

use std::fs;
use std::process::ExitCode;

use clap::Command;

use crate::args::{CompletionsJob, ManJob, definition};
use crate::exit::{Exit, Failure};
use crate::voice;

const PROGRAM: &str = "fencepost";

pub(crate) fn completions(job: &CompletionsJob) -> ExitCode {
    let mut text = Vec::new();
    clap_complete::generate(job.shell, &mut definition(), PROGRAM, &mut text);
    voice::print(&String::from_utf8_lossy(&text))
}

pub(crate) fn man(job: &ManJob) -> Result<ExitCode, Failure> {
    let directory = job.directory.display();
    let fault = |error: std::io::Error| {
        let message = format!("cannot write man pages into {directory}: {error}");
        Failure::new(Exit::CannotCreate, message)
    };
    fs::create_dir_all(&job.directory).map_err(fault)?;
    let mut all = definition();
    all.build();
    let commands = all
        .get_subcommands()
        .filter(|command| command.get_name() != "help");
    let pages = commands.map(|command| {
        // `fencepost-run` for the page's name, as `man fencepost run` looks for it.
        let name = format!("{PROGRAM}-{}", command.get_name());
        let typed = format!("{PROGRAM} {}", command.get_name());
        (name.clone(), command.clone().name(name).bin_name(typed))
    });
    let mut pages: Vec<(String, Command)> = pages.collect();
    pages.insert(0, (PROGRAM.to_owned(), all.clone()));
    for (name, command) in pages {
        let mut page = Vec::new();
        clap_mangen::Man::new(command)
            .render(&mut page)
            .map_err(fault)?;
        fs::write(job.directory.join(format!("{name}.1")), page).map_err(fault)?;
    }
    Ok(ExitCode::SUCCESS)
}
