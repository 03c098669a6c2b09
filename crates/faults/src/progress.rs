//! Watches the histories while they are being written: who has had the lock since a moment.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::PathBuf;

use fencepost_checks::{Event, History, Step, Time, What};

/// The histories of some clients, each with how far it has been read.
#[derive(Debug)]
pub struct Progress {
    files: Vec<(PathBuf, u64)>,
    latest: Vec<Option<Time>>,
}

impl Progress {
    /// Of these files.
    #[must_use]
    pub fn of(files: &[PathBuf]) -> Self {
        Self {
            latest: vec![None; files.len()],
            files: files.iter().map(|file| (file.clone(), 0)).collect(),
        }
    }

    /// Whether each of them has acquired the lock after that moment.
    ///
    /// # Errors
    /// When a history cannot be read.
    pub fn all_served_since(&mut self, moment: Time) -> io::Result<bool> {
        for ((file, read), latest) in self.files.iter_mut().zip(&mut self.latest) {
            let mut lines = Vec::new();
            let mut file = File::open(file)?;
            file.seek(SeekFrom::Start(*read))?;
            file.read_to_end(&mut lines)?;
            // The last line may be half written.
            let whole = lines.iter().rposition(|byte| *byte == b'\n');
            let whole = whole.map_or(0, |end| end + 1);
            *read += whole as u64;
            for event in History::read(&lines[..whole])? {
                if is_grant(&event) {
                    *latest = (*latest).max(Some(event.at));
                }
            }
        }
        Ok(self.latest.iter().all(|latest| *latest > Some(moment)))
    }
}

fn is_grant(event: &Event) -> bool {
    matches!(
        &event.what,
        What::Lease {
            step: Step::Acquired { .. },
            ..
        }
    )
}
