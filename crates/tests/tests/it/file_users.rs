//! Which users may use a lock file: its owner, a group, those who may only read.

#![allow(clippy::unwrap_used, reason = "a test panics where it fails")]

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use fencepost::internals::clock::SystemClock;
use fencepost::internals::sqlite::SqliteNode;
use fencepost_tests::eventually;

use crate::file_place::*;

/// Two users that are nobody in particular, and a group.
const USER: u32 = 64_801;
const OTHER_USER: u32 = 64_802;
const GROUP: u32 = 64_803;

#[test]
fn new_files_are_for_their_owner_alone_whatever_the_umask() {
    for umask in ["000", "022", "077"] {
        let place = Place::new();
        let mut shell = Command::new("sh");
        let script = format!("umask {umask}; exec \"$0\" \"$@\"");
        shell.args(["-c", &script, HAMMER]);
        let file = place.path("a/b/locks.db");
        let mut one = Turns::start(&mut shell, &url(&file));
        assert_eq!(one.line(), "ready");
        assert_eq!(one.step(), "holding");
        for suffix in ["", "-wal", "-shm"] {
            let path = place.path(&format!("a/b/locks.db{suffix}"));
            assert_eq!(mode(&path), 0o600, "umask {umask}: {path:?}");
        }
        for made in ["a", "a/b"] {
            assert_eq!(mode(&place.path(made)), 0o700, "umask {umask}: {made}");
        }
    }
}

/// Makes the file, if it is not there, and leaves no side files.
fn make_and_close(file: &Path) {
    drop(SqliteNode::open(file, Arc::new(SystemClock)).unwrap());
    let index = PathBuf::from(format!("{}-shm", file.display()));
    eventually("it is closed", LATE, || !index.exists());
}

/// The program as another user.
fn as_user(place: &Place, user: u32, group: u32) -> Command {
    let mut command = Command::new(place.hammer());
    // Also drops all other groups of ours.
    command.uid(user).gid(group);
    command
}

#[test]
fn two_users_of_a_group_exclude_each_other_in_group_mode() {
    if !may_be_others("two_users_of_a_group_exclude_each_other_in_group_mode") {
        return;
    }
    let place = Place::new();
    let dir = place.path("shared");
    fs::create_dir(&dir).unwrap();
    std::os::unix::fs::chown(&dir, None, Some(GROUP)).unwrap();
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o2770)).unwrap();
    let url = format!("{}?mode=group", url(&dir.join("locks.db")));
    let mut one = Turns::start(&mut as_user(&place, USER, GROUP), &url);
    assert_eq!(one.line(), "ready");
    assert_eq!(one.step(), "holding");
    for suffix in ["", "-wal", "-shm"] {
        let path = dir.join(format!("locks.db{suffix}"));
        assert_eq!(mode(&path), 0o660, "{path:?}");
        assert_eq!(fs::metadata(&path).unwrap().gid(), GROUP);
    }
    let mut two = Turns::start(&mut as_user(&place, OTHER_USER, GROUP), &url);
    assert_eq!(two.line(), "ready");
    let said = two.step();
    assert!(said.contains("is held by"), "{said}");
    assert_eq!(one.step(), "released");
    assert_eq!(two.step(), "holding");
    // The one who made it leaves, and the other's side files are shared, too.
    drop(one);
    assert_eq!(two.step(), "released");
    drop(two);
    let mut two = Turns::start(&mut as_user(&place, OTHER_USER, GROUP), &url);
    assert_eq!(two.line(), "ready");
    assert_eq!(two.step(), "holding");
    let mut one = Turns::start(&mut as_user(&place, USER, GROUP), &url);
    assert_eq!(one.line(), "ready");
    let said = one.step();
    assert!(said.contains("is held by"), "{said}");
    // And the death of another user's process is noticed as that of one's own.
    drop(two);
    assert_eq!(one.step(), "holding");
    // A user outside the group is told what to do.
    let mut stranger = as_user(&place, OTHER_USER, OTHER_USER);
    let said = output(stranger.args(["look", &url]));
    assert!(said.contains("permission denied"), "{said}");
}

#[test]
fn group_mode_makes_a_directory_that_hands_its_group_on() {
    let place = Place::new();
    let url = format!("{}?mode=group", url(&place.path("a/locks.db")));
    let mut shell = Command::new("sh");
    shell.args(["-c", "umask 077; exec \"$0\" \"$@\"", HAMMER]);
    let mut one = Turns::start(&mut shell, &url);
    assert_eq!(one.line(), "ready");
    assert_eq!(mode(&place.path("a")), 0o2770);
    assert_eq!(mode(&place.path("a/locks.db")), 0o660);
    assert_eq!(mode(&place.path("a/locks.db-shm")), 0o660);
    // In one that does not, each user's side files would shut the others out.
    fs::create_dir(place.path("plain")).unwrap();
    let url = format!("{}?mode=group", self::url(&place.path("plain/locks.db")));
    let said = output(Command::new(HAMMER).args(["look", &url]));
    assert!(said.contains("chmod 2770"), "{said}");
}

#[test]
fn who_may_only_read_can_look_and_list_and_takes_no_lock() {
    if !may_be_others("who_may_only_read_can_look_and_list_and_takes_no_lock") {
        return;
    }
    // Whether the reader may make files beside it must not matter.
    for dir_mode in [0o755, 0o777] {
        let place = Place::new();
        let dir = place.path("locks");
        fs::create_dir(&dir).unwrap();
        fs::set_permissions(&dir, fs::Permissions::from_mode(dir_mode)).unwrap();
        let file = dir.join("locks.db");
        let reads = |what: &[&str]| output(as_user(&place, USER, USER).args(what));
        let url = url(&file);
        make_and_close(&file);
        // The side files get the same mode.
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        let mut one = Turns::on(&url);
        assert_eq!(one.step(), "holding");
        assert_eq!(reads(&["look", &url]), "held: true\nlocks: job\n");
        assert_eq!(one.step(), "released");
        assert_eq!(reads(&["look", &url]), "held: false\nlocks: job\n");
        let said = reads(&["turns", &url, "1"]);
        assert!(said.contains("read-only"), "{said}");
        assert_eq!(one.step(), "holding");
        assert_eq!(reads(&["look", &url]), "held: true\nlocks: job\n");
        // Killed: its side files stay, and nobody keeps them in order.
        drop(one);
        assert_eq!(reads(&["look", &url]), "held: false\nlocks: job\n");
        // Nobody has it open, and there are no side files.
        make_and_close(&file);
        assert_eq!(reads(&["look", &url]), "held: false\nlocks: job\n");
        let mut left = fs::read_dir(&dir).unwrap();
        assert!(left.all(|file| file.unwrap().metadata().unwrap().uid() == 0));
        // And it has kept nobody out.
        let mut one = Turns::on(&url);
        assert_eq!(one.step(), "holding");
    }
}
