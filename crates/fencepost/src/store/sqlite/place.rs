//! Where a lock file may be: a regular file, on a disk of this machine.
//!
//! It must never open the file (see the [module above](super)), only look at it from outside.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Checks the place, makes the directories that lead to it, and returns its full path, which stays
/// right when the process changes its working directory.
pub(super) fn prepare(path: &Path) -> Result<PathBuf, String> {
    // SQLite takes an empty path for a database that nobody else can see.
    if path.as_os_str().is_empty() {
        return Err("the path is empty; give the path of a file".into());
    }
    let path = std::path::absolute(path).map_err(|error| error.to_string())?;
    let there = match fs::metadata(&path) {
        Ok(file) if file.is_file() => &path,
        Ok(file) if file.is_dir() => {
            return Err("it is a directory; give the path of a file in it".into());
        }
        Ok(_) => return Err("it is not a regular file; give the path of one".into()),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let Some(parent) = path.parent() else {
                return Err("it has no directory; give the path of a file".into());
            };
            fs::create_dir_all(parent).map_err(|error| {
                let parent = parent.display();
                format!("its directory {parent} cannot be made ({error}); make it, or give another")
            })?;
            parent
        }
        Err(error) => return Err(format!("it cannot be looked at: {error}")),
    };
    match network(there) {
        Some(kind) => Err(format!(
            "it is on {kind}, a network file system, and a lock file serves the processes of one \
             machine; give a path on a local disk, or use Redis for several machines"
        )),
        None => Ok(path),
    }
}

/// Which file this is, so that one that was deleted or replaced is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileId(u64, u64);

impl FileId {
    /// The file that is at this path now, if there is one.
    pub(super) fn at(path: &Path) -> Option<Self> {
        use std::os::unix::fs::MetadataExt;

        let file = fs::metadata(path).ok()?;
        Some(Self(file.dev(), file.ino()))
    }
}

/// File systems that other machines may have mounted too, by the number that `statfs` gives.
#[cfg(any(target_os = "linux", target_os = "android"))]
const NETWORK: [(u32, &str); 13] = [
    (0x6969, "NFS"),
    (0x517b, "SMB"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB2"),
    (0x0102_1997, "9p"),
    (0x00c3_6400, "Ceph"),
    (0x5346_414f, "AFS"),
    (0x7375_7245, "Coda"),
    (0x0bd0_0bd0, "Lustre"),
    (0x4750_4653, "GPFS"),
    (0x7461_636f, "OCFS2"),
    (0x0116_1970, "GFS2"),
    (0x1983_0326, "BeeGFS"),
];

/// What `statfs` gives for everything that is served by a program: some are local, some are not.
#[cfg(any(target_os = "linux", target_os = "android"))]
const FUSE: u32 = 0x6573_5546;

/// Those that are not, as the mount table names them.
const NETWORK_BY_PROGRAM: [&str; 8] = [
    "virtiofs",
    "fuse.sshfs",
    "fuse.glusterfs",
    "fuse.ceph",
    "fuse.ceph-fuse",
    "fuse.rclone",
    "fuse.s3fs",
    "fuse.juicefs",
];

/// The network file system that this is on, if it is on one.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn network(path: &Path) -> Option<&'static str> {
    // What cannot be asked is decided when SQLite opens the file.
    let magic = rustix::fs::statfs(path).ok()?.f_type as u32;
    if magic == FUSE {
        let device = rustix::fs::stat(path).ok()?.st_dev;
        let device = format!(
            "{}:{}",
            rustix::fs::major(device),
            rustix::fs::minor(device)
        );
        let table = fs::read_to_string("/proc/self/mountinfo").ok()?;
        return by_program(&table, &device);
    }
    let (_, kind) = NETWORK.iter().find(|(number, _)| *number == magic)?;
    Some(kind)
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn network(_: &Path) -> Option<&'static str> {
    None
}

/// The network file system that the mount table has under this device number.
fn by_program(table: &str, device: &str) -> Option<&'static str> {
    let kind = table.lines().find_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        let same = mount.split(' ').nth(2) == Some(device);
        same.then(|| kind.split(' ').next()).flatten()
    })?;
    NETWORK_BY_PROGRAM.into_iter().find(|known| *known == kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
        22 1 254:0 / / rw,relatime - ext4 /dev/root rw\n\
        50 22 0:45 / /mnt/far rw,nosuid shared:7 - fuse.sshfs host: rw,user_id=0\n\
        51 22 0:46 / /mnt/near rw,nosuid - fuse.gocryptfs /x rw,user_id=0\n";

    #[test]
    fn a_served_file_system_is_refused_only_if_it_is_a_network_one() {
        assert_eq!(by_program(TABLE, "0:45"), Some("fuse.sshfs"));
        assert_eq!(by_program(TABLE, "0:46"), None);
        assert_eq!(by_program(TABLE, "254:0"), None);
        assert_eq!(by_program(TABLE, "9:9"), None);
    }

    #[test]
    fn an_empty_path_is_refused() {
        assert!(prepare(Path::new("")).unwrap_err().contains("empty"));
    }

    #[test]
    fn a_path_without_a_directory_is_made_full() {
        let path = prepare(Path::new("locks.db")).unwrap();
        assert!(path.is_absolute() && path.ends_with("locks.db"));
        assert!(!path.exists(), "looking makes no file");
    }
}
