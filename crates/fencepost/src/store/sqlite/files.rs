//! The three files of a store: the database, and the log (`-wal`) and the index (`-shm`) beside it.
//!
//! SQLite creates and deletes the log and the index only while no other process has the database
//! open. A process that has it open in WAL mode holds a lock on it all the time, and they stay. So
//! whenever one of them is missing or was replaced, another program did that.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The identity of a file: a replaced file has another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileId(u64, u64);

impl FileId {
    /// The file at this path now, if there is one.
    pub(super) fn at(path: &Path) -> Option<Self> {
        let file = fs::metadata(path).ok()?;
        Some(Self(file.dev(), file.ino()))
    }
}

/// The identities of the three files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Files {
    pub(super) main: Option<FileId>,
    pub(super) log: Option<FileId>,
    pub(super) index: Option<FileId>,
}

impl Files {
    /// The files that exist now.
    pub(super) fn at(path: &Path) -> Self {
        Self {
            main: FileId::at(path),
            log: FileId::at(&log(path)),
            index: FileId::at(&index(path)),
        }
    }

    pub(super) fn are_all_there(&self) -> bool {
        self.main.is_some() && self.log.is_some() && self.index.is_some()
    }
}

/// The path of the log.
pub(super) fn log(path: &Path) -> PathBuf {
    beside(path, "-wal")
}

/// The path of the index.
pub(super) fn index(path: &Path) -> PathBuf {
    beside(path, "-shm")
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

/// The ids of the other processes that hold a lock on the file, as far as the kernel tells.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) fn users_of(_: FileId) -> Vec<u32> {
    Vec::new()
}

/// The ids of the other processes that hold a lock on the file, as far as the kernel tells.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) fn users_of(id: FileId) -> Vec<u32> {
    let table = fs::read_to_string("/proc/locks").unwrap_or_default();
    users_in(&table, id, std::process::id())
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn users_in(table: &str, FileId(device, inode): FileId, us: u32) -> Vec<u32> {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let file = format!("{major:02x}:{minor:02x}:{inode}");
    // 1: POSIX  ADVISORY  READ 4711 fe:00:2621 1073741826 1073742335
    let users = table.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace().skip(4);
        let pid = words.next()?.parse().ok()?;
        (words.next()? == file && pid != us).then_some(pid)
    });
    let mut users: Vec<_> = users.collect();
    users.sort_unstable();
    users.dedup();
    users
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn who_has_a_lock_on_a_file_is_read_from_the_kernels_table() {
        let table = "\
            1: POSIX  ADVISORY  READ 4711 fe:00:2621 1073741826 1073742335\n\
            2: POSIX  ADVISORY  WRITE 4712 fe:01:2621 0 EOF\n\
            3: FLOCK  ADVISORY  WRITE 4713 fe:00:9 0 EOF\n\
            3: -> FLOCK  ADVISORY  WRITE 4714 fe:00:2621 0 EOF\n\
            4: POSIX  ADVISORY  READ 4711 fe:00:2621 128 128\n\
            5: POSIX  ADVISORY  READ 4715 fe:00:2621 128 128\n";
        let id = FileId(rustix::fs::makedev(0xfe, 0), 2621);
        assert_eq!(users_in(table, id, 4715), [4711]);
        assert!(users_in("", id, 1).is_empty());
    }

    #[test]
    fn a_file_that_was_replaced_is_another_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a b");
        fs::write(&path, "").unwrap();
        let before = Files::at(&path);
        assert!(before.main.is_some() && !before.are_all_there());
        fs::write(log(&path), "").unwrap();
        fs::write(index(&path), "").unwrap();
        assert!(Files::at(&path).are_all_there());
        assert_ne!(Files::at(&path), before);
        assert!(dir.path().join("a b-shm").exists());
    }
}
