//! Which file systems are local to one machine.
//!
//! An allow-list: a local file system that is missing here costs its users an option; a network
//! file system missing in a deny-list would cost them two holders.

use std::fs;
use std::path::Path;

/// By the `statfs` magic number. Only file systems with stable inode numbers, so not FAT: they
/// reveal that a file was deleted or replaced.
#[cfg(any(target_os = "linux", target_os = "android"))]
const LOCAL: [(u32, &str); 15] = [
    (0xef53, "ext2, ext3, ext4"),
    (0x5846_5342, "XFS"),
    (0x9123_683e, "Btrfs"),
    (0xf2f5_2010, "F2FS"),
    (0x2fc1_2fc1, "ZFS"),
    (0xca45_1a4e, "bcachefs"),
    (0x0102_1994, "tmpfs"),
    (0x8584_58f6, "ramfs"),
    (0x794c_7630, "overlay"),
    (0x5265_4973, "ReiserFS"),
    (0x3153_464a, "JFS"),
    (0x3434, "NILFS"),
    (0x2405_1905, "UBIFS"),
    (0x72b6, "JFFS2"),
    (0xf15f, "eCryptfs"),
];

/// Fails if the file or directory is on something else.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) fn is_known_to_be_local(path: &Path) -> Result<(), String> {
    let number = rustix::fs::statfs(path)
        .map_err(|error| format!("cannot determine its file system: {error}"))?
        .f_type as u32;
    if LOCAL.iter().any(|(known, _)| *known == number) {
        return Ok(());
    }
    let name = name(path).unwrap_or_else(|| format!("a file system of type {number:#x}"));
    Err(format!(
        "it is on {name}, which is not known to be a local file system, and a lock file serves the \
         processes of one machine; use a path on a local disk, use Redis for several machines, or \
         add ?filesystem=any if no other machine can write there"
    ))
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) fn is_known_to_be_local(_: &Path) -> Result<(), String> {
    Ok(())
}

/// The mount table's name for this file system.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn name(path: &Path) -> Option<String> {
    let device = rustix::fs::stat(path).ok()?.st_dev;
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let table = fs::read_to_string("/proc/self/mountinfo").ok()?;
    name_of(&table, &format!("{major}:{minor}"))
}

fn name_of(table: &str, device: &str) -> Option<String> {
    table.lines().find_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        let same = mount.split(' ').nth(2) == Some(device);
        same.then(|| kind.split(' ').next())
            .flatten()
            .map(Into::into)
    })
}

/// Whether something is mounted at exactly this path.
pub(super) fn is_mount_point(table: &str, path: &Path) -> bool {
    let Some(path) = path.to_str() else {
        return false;
    };
    // Escaped as in the table.
    let path = path.replace('\\', "\\134").replace(' ', "\\040");
    let path = path.replace('\t', "\\011").replace('\n', "\\012");
    let mut lines = table.lines();
    lines.any(|line| line.split(' ').nth(4) == Some(&path))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
        22 1 254:0 / / rw,relatime - ext4 /dev/root rw\n\
        50 22 0:45 / /mnt/far rw,nosuid shared:7 - fuse.sshfs host: rw,user_id=0\n\
        51 22 254:0 /a /data/my\\040locks.db rw - ext4 /dev/root rw\n";

    #[test]
    fn a_file_system_is_called_what_the_mount_table_calls_it() {
        assert_eq!(name_of(TABLE, "0:45").as_deref(), Some("fuse.sshfs"));
        assert_eq!(name_of(TABLE, "254:0").as_deref(), Some("ext4"));
        assert_eq!(name_of(TABLE, "9:9"), None);
    }

    #[test]
    fn a_mount_point_is_found_by_its_path() {
        assert!(is_mount_point(TABLE, Path::new("/data/my locks.db")));
        assert!(is_mount_point(TABLE, Path::new("/mnt/far")));
        assert!(!is_mount_point(TABLE, Path::new("/mnt/far/locks.db")));
        assert!(!is_mount_point("", Path::new("/mnt/far")));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn what_the_kernel_makes_up_is_no_disk() {
        let why = is_known_to_be_local(Path::new("/proc")).unwrap_err();
        assert!(why.contains("on proc"), "{why}");
        let here = tempfile::tempdir().unwrap();
        assert_eq!(is_known_to_be_local(here.path()), Ok(()));
    }
}
