//! What others see as the holder: `host:pid:program`.

use std::ffi::{OsStr, OsString};
use std::path::Path;

/// The longest label that we give, in bytes; the library takes no longer ones.
const LONGEST: usize = 200;

/// The label of this process, which runs a command.
pub(crate) fn of_command(command: &[OsString]) -> String {
    let host = nix::unistd::gethostname().unwrap_or_default();
    let program = command.first().and_then(|word| Path::new(word).file_name());
    label(&host, std::process::id(), program.unwrap_or_default())
}

/// The label, made fit to be one.
pub(crate) fn label(host: &OsStr, pid: u32, program: &OsStr) -> String {
    let label = format!("{}:{pid}:{}", host.display(), program.display());
    let mut length = 0;
    let readable = label.chars().filter(|c| !c.is_control());
    let short = readable.take_while(|c| {
        length += c.len_utf8();
        length <= LONGEST
    });
    short.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_readable_and_not_too_long() {
        assert_eq!(label("h".as_ref(), 7, "a\nb".as_ref()), "h:7:ab");
        let long = "ä".repeat(300);
        assert!(label("h".as_ref(), 7, long.as_ref()).len() <= LONGEST);
    }
}
