//! Where a lock file may be: one regular file without hard links, on a local disk.
//!
//! It must never open the file (see the [module above](super)), only stat it.

use std::fs::{self, DirBuilder, Metadata, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD};
use rustix::io::Errno;

use super::fault::{MAY_NOT_OPEN, explain_io};
use super::place::local::is_known_to_be_local;
use crate::error::NodeError;

mod local;

/// The options after a path.
const OPTIONS: &str = "?mode=group (shared with the users of its group) and ?filesystem=any \
                       (skips the check that the disk is local)";
/// The maximum number of symbolic links, as on Linux.
const MOST_LINKS: usize = 40;

/// The path and its options: `PATH`, or `PATH?mode=group&filesystem=any`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileSpec {
    pub(super) path: PathBuf,
    pub(super) sharing: Sharing,
    /// Whether any file system is allowed, even if not known to be local.
    pub(super) any_filesystem: bool,
}

/// Who may use the files and directories that we create.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sharing {
    /// Their owner.
    Private,
    /// Their group too.
    Group,
}

impl Sharing {
    fn file_mode(self) -> u32 {
        match self {
            Self::Private => 0o600,
            Self::Group => 0o660,
        }
    }

    /// With the setgid bit, so that what another user creates there belongs to the group too.
    fn directory_mode(self) -> u32 {
        match self {
            Self::Private => 0o700,
            Self::Group => 0o2770,
        }
    }
}

impl FileSpec {
    /// A path without options: it may contain any character.
    pub(crate) fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            sharing: Sharing::Private,
            any_filesystem: false,
        }
    }

    /// The part after `file:` in a URL: `PATH` or `//PATH`, and options.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let text = text.strip_prefix("//").unwrap_or(text);
        let (path, options) = match text.split_once('?') {
            Some((path, options)) => (path, Some(options)),
            None => (text, None),
        };
        if path.is_empty() {
            return Err("the path is missing; write file:PATH".into());
        }
        let mut spec = Self::new(path);
        for option in options.into_iter().flat_map(|options| options.split('&')) {
            match option {
                "mode=group" => spec.sharing = Sharing::Group,
                "filesystem=any" => spec.any_filesystem = true,
                _ => {
                    return Err(format!(
                        "unknown option {option:?} after the path; expected {OPTIONS}"
                    ));
                }
            }
        }
        Ok(spec)
    }

    /// The node's address, for display.
    pub(super) fn address(&self) -> String {
        format!("file:{}", self.path.display())
    }

    /// The same, absolute: it stays valid when the process changes its working directory.
    pub(super) fn made_absolute(mut self) -> Self {
        if let Ok(path) = std::path::absolute(&self.path) {
            self.path = path;
        }
        self
    }

    /// Checks the place, creates its directories, and returns its canonical path: absolute and
    /// without symbolic links.
    pub(super) fn prepare(&self) -> Result<PathBuf, NodeError> {
        self.check().map_err(NodeError::Store)
    }

    fn check(&self) -> Result<PathBuf, String> {
        // SQLite takes an empty path for a private database.
        if self.path.as_os_str().is_empty() {
            return Err("the path is empty; expected the path of a file".into());
        }
        let path = follow_links(&self.path).map_err(|error| error.to_string())?;
        let there = match fs::metadata(&path) {
            Ok(file) => Some(file),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                return Err(MAY_NOT_OPEN.into());
            }
            Err(error) => return Err(format!("cannot stat it: {error}")),
        };
        if there.as_ref().is_some_and(Metadata::is_dir) {
            return Err("it is a directory; use the path of a file in it".into());
        }
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err("it has no parent directory; use the path of a file".into());
        };
        if there.is_none() {
            make_directories(parent, self.sharing.directory_mode())?;
        }
        let parent = fs::canonicalize(parent)
            .map_err(|error| format!("cannot stat its directory: {error}"))?;
        if self.sharing == Sharing::Group {
            check_group(&parent)?;
        }
        let path = parent.join(name);
        if let Some(file) = &there {
            check_file(&path, file)?;
        }
        if !self.any_filesystem {
            is_known_to_be_local(if there.is_some() { &path } else { &parent })?;
        }
        Ok(path)
    }

    /// Creates an empty file, if missing, with the right mode.
    ///
    /// SQLite gives its side files the same mode, whatever the umask.
    pub(super) fn make(&self, path: &Path) -> Result<(), NodeError> {
        let mode = self.sharing.file_mode();
        match make_empty(path, mode) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                return Err(explain_io(&error));
            }
            _ => {}
        }
        // The umask removes bits; and the process that created it may not have come this far yet.
        let file = fs::metadata(path).map_err(|error| explain_io(&error))?;
        let is_ours = file.uid() == rustix::process::geteuid().as_raw();
        let lacks = self.sharing == Sharing::Group && file.mode() & mode != mode;
        if is_ours && lacks {
            let permissions = Permissions::from_mode(file.mode() & 0o7777 | mode);
            fs::set_permissions(path, permissions).map_err(|error| explain_io(&error))?;
        }
        Ok(())
    }
}

/// What this process may do with an existing lock file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rights {
    /// Vote.
    Write,
    /// Look.
    Read,
}

impl Rights {
    /// Writing includes creating and deleting side files.
    pub(super) fn of(path: &Path) -> Result<Self, NodeError> {
        let parent = path.parent().unwrap_or(path);
        if may(path, Access::WRITE_OK) && may(parent, Access::WRITE_OK) {
            return Ok(Self::Write);
        }
        match may(path, Access::READ_OK) {
            true => Ok(Self::Read),
            false => Err(NodeError::Store(MAY_NOT_OPEN.into())),
        }
    }
}

fn may(path: &Path, what: Access) -> bool {
    let asked = rustix::fs::accessat(CWD, path, what, AtFlags::EACCESS);
    // What cannot be checked is decided when SQLite opens the file.
    !matches!(asked, Err(Errno::ACCESS | Errno::PERM | Errno::ROFS))
}

/// Follows the links at the end of a path, also if they lead to a missing file: the standard
/// library only follows links to existing ones.
fn follow_links(path: &Path) -> io::Result<PathBuf> {
    let mut path = std::path::absolute(path)?;
    for _ in 0..MOST_LINKS {
        let Ok(target) = fs::read_link(&path) else {
            return Ok(path);
        };
        path = path.parent().unwrap_or(Path::new("/")).join(target);
    }
    Err(io::Error::other("too many symbolic links"))
}

fn make_directories(parent: &Path, mode: u32) -> Result<(), String> {
    let missing: Vec<_> = parent.ancestors().take_while(|dir| !dir.exists()).collect();
    let made = DirBuilder::new().recursive(true).mode(mode).create(parent);
    // The umask removes bits. Only for those that we created, outermost first.
    let made = made.and_then(|()| {
        let mut missing = missing.iter().rev();
        missing.try_for_each(|dir| fs::set_permissions(dir, Permissions::from_mode(mode)))
    });
    made.map_err(|error| {
        let parent = parent.display();
        format!("cannot create its directory {parent} ({error}); create it, or use another path")
    })
}

/// Without setgid, new files get the group of the creating process, and the side files of one user
/// shut the others out.
fn check_group(parent: &Path) -> Result<(), String> {
    const HANDS_ON: u32 = 0o2000;
    let directory = fs::metadata(parent).map_err(|error| error.to_string())?;
    if directory.mode() & HANDS_ON == 0 {
        let parent = parent.display();
        return Err(format!(
            "mode=group needs a directory with the setgid bit; run chgrp GROUP \
             {parent} && chmod 2770 {parent}"
        ));
    }
    Ok(())
}

/// An existing file: does it have hard links?
fn check_file(path: &Path, file: &Metadata) -> Result<(), String> {
    if !file.is_file() {
        return Err("it is not a regular file; use the path of one".into());
    }
    if file.nlink() > 1 {
        return Err(format!(
            "it has {} hard links, and each would have locks of its own; delete all but one",
            file.nlink()
        ));
    }
    if is_mounted_by_itself(path) {
        return Err(format!(
            "it is bind-mounted as a single file, so other paths to it have locks of their own; \
             mount its directory instead, as in docker run -v DIRECTORY:{}",
            path.parent().unwrap_or(path).display()
        ));
    }
    Ok(())
}

/// Whether the file itself is a mount point, as after `mount --bind FILE FILE`.
fn is_mounted_by_itself(path: &Path) -> bool {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        use rustix::fs::{StatxAttributes, StatxFlags};
        let root = StatxAttributes::MOUNT_ROOT;
        if let Ok(seen) = rustix::fs::statx(CWD, path, AtFlags::empty(), StatxFlags::TYPE)
            && seen.stx_attributes_mask.contains(root)
        {
            return seen.stx_attributes.contains(root);
        }
    }
    // Before Linux 5.8.
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    local::is_mount_point(&table, path)
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn make_empty(path: &Path, mode: u32) -> io::Result<()> {
    use rustix::fs::{FileType, Mode};
    // Not by opening it: closing it again would drop the locks that another thread holds on it by
    // then.
    rustix::fs::mknodat(
        CWD,
        path,
        FileType::RegularFile,
        Mode::from_raw_mode(mode),
        0,
    )
    .map_err(io::Error::from)
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn make_empty(path: &Path, mode: u32) -> io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true).mode(mode).open(path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_path_is_refused() {
        assert!(FileSpec::new("").check().unwrap_err().contains("empty"));
    }

    #[test]
    fn a_path_without_a_directory_is_made_full() {
        let path = FileSpec::new("locks.db").check().unwrap();
        assert!(path.is_absolute() && path.ends_with("locks.db"));
        assert!(!path.exists(), "looking makes no file");
    }

    #[test]
    fn links_that_lead_in_a_circle_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("locks.db");
        std::os::unix::fs::symlink(&link, &link).unwrap();
        let why = FileSpec::new(link).check().unwrap_err();
        assert!(why.contains("too many symbolic links"), "{why}");
    }

    #[test]
    fn options_stand_behind_the_path() {
        let plain = FileSpec::parse("///a/b").unwrap();
        assert_eq!(plain, FileSpec::new("/a/b"));
        let both = FileSpec::parse("a?filesystem=any&mode=group").unwrap();
        assert_eq!(both.path, Path::new("a"));
        assert!(both.any_filesystem && both.sharing == Sharing::Group);
        for wrong in ["", "?mode=group", "a?mode=all", "a?", "a?mode=group&"] {
            assert!(FileSpec::parse(wrong).is_err(), "{wrong}");
        }
    }
}
