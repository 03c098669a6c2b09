//! Our own program, which also plays the parts of the client and of the reaper: `cargo run` builds
//! no other.

use std::io;
use std::path::PathBuf;
use std::process::Command;

const NAME: &str = "fencepost-faults";

/// Our own program, to be started in that part.
///
/// # Errors
/// When it cannot be found: it lies beside this one, or one floor above if this one is a test.
pub fn in_the_part_of(part: &str) -> io::Result<Command> {
    let mut command = Command::new(path()?);
    command.arg(part);
    Ok(command)
}

/// Where it lies.
pub(crate) fn path() -> io::Result<PathBuf> {
    let here = std::env::current_exe()?;
    let mut folders = here.ancestors().skip(1).take(2);
    folders
        .find_map(|folder| {
            let program = folder.join(NAME);
            program.is_file().then_some(program)
        })
        .ok_or_else(|| {
            let why = format!("{NAME} is not built: run cargo build -p {NAME}");
            io::Error::new(io::ErrorKind::NotFound, why)
        })
}
