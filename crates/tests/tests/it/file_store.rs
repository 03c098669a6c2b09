//! A lock file is one place: what would make it two is refused, and what others do to its files
//! while processes run is noticed before the next vote. Real processes, real mounts, real users.

#![allow(clippy::unwrap_used, reason = "a test panics where it fails")]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fencepost::internals::clock::SystemClock;
use fencepost::internals::sqlite::SqliteNode;
use fencepost::{Client, NamePattern};
use fencepost_tests::eventually;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

const HAMMER: &str = env!("CARGO_BIN_EXE_hammer");
const LATE: Duration = Duration::from_secs(20);
const TTL: Duration = Duration::from_secs(30);
/// Two users that are nobody in particular, and a group.
const USER: u32 = 64_801;
const OTHER_USER: u32 = 64_802;
const GROUP: u32 = 64_803;

/// A directory with a lock file in it.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        // Others than us have to get through it.
        fs::set_permissions(place.0.path(), fs::Permissions::from_mode(0o755)).unwrap();
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn url(&self) -> String {
        url(&self.path("locks.db"))
    }

    /// The program, where every user may execute it.
    fn hammer(&self) -> PathBuf {
        let copy = self.path("hammer");
        if !copy.exists() {
            // Not by this process: one that another test forks meanwhile would have the copy open for
            // writing, and then it cannot be executed.
            let copied = Command::new("cp").arg(HAMMER).arg(&copy).status();
            assert!(copied.unwrap().success());
        }
        copy
    }

    fn remove(&self, suffixes: &[&str]) {
        for suffix in suffixes {
            fs::remove_file(self.path(&format!("locks.db{suffix}"))).unwrap();
        }
    }
}

fn url(path: &Path) -> String {
    format!("file:{}", path.display())
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

/// A process that takes the lock and gives it back when it is told to.
struct Turns {
    process: Child,
    said: BufReader<std::process::ChildStdout>,
}

impl Turns {
    fn start(command: &mut Command, url: &str) -> Self {
        command.args(["turns", url, "1000"]);
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(process.stdout.take().unwrap());
        Self { process, said }
    }

    fn on(url: &str) -> Self {
        let mut turns = Self::start(&mut Command::new(HAMMER), url);
        assert_eq!(turns.line(), "ready");
        turns
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.said.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Lets it take one step, and returns what it says of it.
    fn step(&mut self) -> String {
        self.process
            .stdin
            .as_mut()
            .unwrap()
            .write_all(b"\n")
            .unwrap();
        self.line()
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.process.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
        if signal == Signal::STOP {
            let stat = format!("/proc/{}/stat", self.process.id());
            eventually("it is stopped", LATE, || {
                fs::read_to_string(&stat).unwrap().contains(") T ")
            });
        }
    }
}

impl Drop for Turns {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn output(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let mut said = String::from_utf8_lossy(&output.stdout).into_owned();
    said += &String::from_utf8_lossy(&output.stderr);
    said
}

/// Whether this process may do that; otherwise says by name which test is skipped.
fn may(test: &str, what: &str, command: &str) -> bool {
    let done = Command::new("sh")
        .args(["-c", command])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let may = done.is_ok_and(|status| status.success());
    if !may {
        eprintln!("SKIPPED {test}: this process may not {what}");
    }
    may
}

fn may_mount(test: &str) -> bool {
    may(test, "mount", "unshare -m true")
}

fn may_be_others(test: &str) -> bool {
    may(test, "be another user", "[ $(id -u) = 0 ]")
}

// One place

/// Two names are two WALs: each holder saw only its own.
#[test]
fn a_file_with_two_names_is_refused_under_both() {
    let place = Place::new();
    let mut one = Turns::on(&place.url());
    assert_eq!(one.step(), "holding");
    let link = place.path("link.db");
    fs::hard_link(place.path("locks.db"), &link).unwrap();
    for path in [&link, &place.path("locks.db")] {
        let said = output(Command::new(HAMMER).arg("open").arg(path));
        assert!(said.contains("has 2 names (hard links)"), "{said}");
    }
    fs::remove_file(&link).unwrap();
    assert_eq!(one.step(), "released");
    let said = output(Command::new(HAMMER).arg("open").arg(place.path("locks.db")));
    assert_eq!(said, "ok\n");
}

/// What `docker run -v FILE:FILE` does: the file is there under a second path, its WAL is not.
#[test]
fn a_file_that_is_mounted_by_itself_is_refused() {
    if !may_mount("a_file_that_is_mounted_by_itself_is_refused") {
        return;
    }
    let place = Place::new();
    let mut one = Turns::on(&place.url());
    assert_eq!(one.step(), "holding");
    fs::create_dir(place.path("inside")).unwrap();
    let inside = place.path("inside/locks.db");
    fs::write(&inside, "").unwrap();
    let script = "mount --bind \"$1\" \"$2\" && exec \"$0\" open \"$2\"";
    let in_container = |script: &str| {
        let mut container = Command::new("unshare");
        container.args(["-m", "sh", "-c", script, HAMMER]);
        container.arg(place.path("locks.db")).arg(&inside);
        container
    };
    let said = output(&mut in_container(script));
    assert!(said.contains("mounted by itself"), "{said}");
    assert!(said.contains("mount its directory"), "{said}");
    // Also under an innocent name.
    let script =
        "ln -s \"$2\" \"$2-link\" && mount --bind \"$1\" \"$2\" && exec \"$0\" open \"$2-link\"";
    let said = output(&mut in_container(script));
    assert!(said.contains("mounted by itself"), "{said}");
    assert_eq!(one.step(), "released");
}

#[test]
fn a_mounted_directory_is_the_same_place() {
    if !may_mount("a_mounted_directory_is_the_same_place") {
        return;
    }
    let place = Place::new();
    let (outside, inside) = (place.path("outside"), place.path("inside"));
    fs::create_dir(&outside).unwrap();
    fs::create_dir(&inside).unwrap();
    let mut one = Turns::on(&url(&outside.join("locks.db")));
    let script = "mount --bind \"$1\" \"$2\" && exec \"$0\" turns \"file:$2/locks.db\" 9";
    let mut container = Command::new("unshare");
    container.args(["-m", "sh", "-c", script, HAMMER]);
    container.arg(&outside).arg(&inside);
    let mut two = Turns::start(&mut container, "");
    assert_eq!(two.line(), "ready");
    assert_eq!(one.step(), "holding");
    let said = two.step();
    assert!(said.contains("is held by"), "{said}");
    assert_eq!(one.step(), "released");
    assert_eq!(two.step(), "holding");
}

#[test]
fn symbolic_links_lead_to_one_place() {
    let place = Place::new();
    let link = place.path("link.db");
    // It leads nowhere yet: the file is made where it points.
    std::os::unix::fs::symlink("sub/../locks.db", &link).unwrap();
    fs::create_dir(place.path("sub")).unwrap();
    let mut one = Turns::on(&url(&link));
    assert_eq!(one.step(), "holding");
    assert!(place.path("locks.db-wal").exists());
    assert!(!place.path("link.db-wal").exists());
    let mut two = Turns::on(&place.url());
    let said = two.step();
    assert!(said.contains("is held by"), "{said}");
}

// Its files

/// What cleaners of temporary files do. Two that run, one of which came later, each had an index or
/// a log of its own: both held the lock.
#[test]
fn deleted_side_files_make_no_second_holder() {
    for removed in [&["-shm"][..], &["-wal"], &["-wal", "-shm"]] {
        let place = Place::new();
        let mut early = Turns::on(&place.url());
        for _ in 0..3 {
            assert_eq!(early.step(), "holding");
            assert_eq!(early.step(), "released");
        }
        place.remove(removed);
        let mut late = Turns::on(&place.url());
        let (first, second) = (early.step(), late.step());
        assert!(
            first != "holding" || second != "holding",
            "two holders after {removed:?} was deleted"
        );
        assert_eq!(first, "holding", "{removed:?}");
        assert!(second.contains("is held by"), "{removed:?}: {second}");
        assert_eq!(early.step(), "released");
        assert_eq!(late.step(), "holding");
    }
}

/// A holder that does nothing in between, and whose renewal finds its files gone.
#[test]
fn a_lock_that_is_held_stays_held_when_side_files_are_deleted() {
    for removed in [&["-shm"][..], &["-wal"], &["-wal", "-shm"]] {
        let place = Place::new();
        let mut holder = Turns::on(&place.url());
        assert_eq!(holder.step(), "holding");
        place.remove(removed);
        let mut late = Turns::on(&place.url());
        let said = late.step();
        assert!(said.contains("is held by"), "{removed:?}: {said}");
        assert_eq!(holder.step(), "released", "{removed:?}");
        assert_eq!(late.step(), "holding");
    }
}

/// Not promised: whoever comes when all files are gone cannot know that there were any.
#[test]
fn all_files_deleted_under_a_holder_let_a_newcomer_in_beside_it() {
    let place = Place::new();
    let mut holder = Turns::on(&place.url());
    assert_eq!(holder.step(), "holding");
    place.remove(&["", "-wal", "-shm"]);
    let mut newcomer = Turns::on(&place.url());
    assert_eq!(newcomer.step(), "holding");
}

/// It may be in the middle of writing with what it has open: nobody may vote beside it.
#[test]
fn while_a_stopped_process_has_deleted_files_open_nobody_votes_and_all_are_told_why() {
    for removed in [&["-shm"][..], &["-wal"], &["-wal", "-shm"]] {
        let place = Place::new();
        let mut running = Turns::on(&place.url());
        let mut stopped = Turns::on(&place.url());
        assert_eq!(stopped.step(), "holding");
        stopped.signal(Signal::STOP);
        place.remove(removed);
        let why = "was deleted while processes use it";
        let said = running.step();
        assert!(
            said.starts_with("refused: ") && said.contains(why),
            "{said}"
        );
        let said = output(Command::new(HAMMER).arg("open").arg(place.path("locks.db")));
        assert!(said.contains(why), "{said}");
        let pid = stopped.process.id().to_string();
        assert!(said.contains(&pid), "{said} does not name {pid}");
        stopped.signal(Signal::CONT);
        eventually("it goes on", LATE, || {
            let said = running.step();
            assert_ne!(said, "holding", "the other holds it");
            said.contains("is held by")
        });
        assert_eq!(stopped.step(), "released");
        assert_eq!(running.step(), "holding");
    }
}

/// Side files come and go with the last process that has the file open. That must look like
/// nothing to those who come, and to those who stay.
#[test]
fn many_short_lived_processes_raise_no_false_alarm() {
    const AT_ONCE: usize = 6;
    const EACH: usize = 40;
    let place = Place::new();
    let counter = place.path("counter");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..AT_ONCE)
            .map(|worker| {
                let (place, counter) = (&place, &counter);
                scope.spawn(move || {
                    for round in 0..EACH {
                        let mut work = Command::new(HAMMER);
                        work.arg("work").arg(place.path("locks.db"));
                        work.arg(counter).arg("1");
                        let said = output(&mut work);
                        assert!(said.starts_with("waited"), "{worker}, {round}: {said}");
                    }
                })
            })
            .collect();
        // One that stays for a while, and one that only looks.
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let mut stays = Turns::on(&place.url());
                for _ in 0..20 {
                    let said = stays.step();
                    if said == "holding" {
                        assert_eq!(stays.step(), "released");
                    } else {
                        assert!(said.contains("is held by"), "{said}");
                    }
                }
                let said = output(Command::new(HAMMER).args(["look", &place.url()]));
                assert!(said.contains("locks: job"), "{said}");
            }
        });
        let ended: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        done.store(true, Ordering::Relaxed);
        assert!(ended.iter().all(Result::is_ok));
    });
    let count = fs::read_to_string(&counter).unwrap();
    let count: usize = count.split(' ').next().unwrap().parse().unwrap();
    assert_eq!(count, AT_ONCE * EACH);
}

/// The side files of a file that was deleted belong to processes that may still run.
#[test]
fn a_file_whose_side_files_outlived_it_is_refused() {
    let place = Place::new();
    let mut one = Turns::on(&place.url());
    assert_eq!(one.step(), "holding");
    place.remove(&[""]);
    let said = output(Command::new(HAMMER).arg("open").arg(place.path("locks.db")));
    assert!(said.contains("without the file itself"), "{said}");
    assert!(one.step().starts_with("not released: "));
}

// Who may use it

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
    // Whoever is not of the group is told what to do.
    let mut stranger = as_user(&place, OTHER_USER, OTHER_USER);
    let said = output(stranger.args(["look", &url]));
    assert!(said.contains("may not"), "{said}");
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

// Where it may be

#[tokio::test]
async fn a_file_system_that_is_not_known_to_be_local_is_refused_unless_told_otherwise() {
    let error = Client::connect("file:/proc/locks.db").await.unwrap_err();
    let said = error.to_string();
    assert!(said.contains("on proc, which is not known"), "{said}");
    assert!(said.contains("?filesystem=any"), "{said}");
    let error = Client::connect("file:/proc/locks.db?filesystem=any").await;
    let said = error.unwrap_err().to_string();
    assert!(!said.contains("not known"), "{said}");
    for wrong in ["?filesystem=nfs", "?mode=all", "?group", "?", "?mod=group"] {
        let url = format!("file:/nowhere/locks.db{wrong}");
        let said = Client::connect(url).await.unwrap_err().to_string();
        assert!(said.contains("?mode=group"), "{wrong}: {said}");
    }
}

// A full disk

/// A small disk of its own, until it is dropped.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn new(path: PathBuf) -> Self {
        fs::create_dir(&path).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=512k", "none"]);
        assert!(mount.arg(&path).status().unwrap().success());
        Self(path)
    }

    /// Leaves not a byte.
    fn fill(&self) {
        let mut ballast = fs::File::create(self.0.join("ballast")).unwrap();
        while ballast.write_all(&[0; 512]).is_ok() {}
    }

    fn make_room(&self) {
        fs::remove_file(self.0.join("ballast")).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[tokio::test]
async fn a_full_disk_is_told_at_once_by_a_wait_an_open_and_a_survey() {
    if !may_mount("a_full_disk_is_told_at_once_by_a_wait_an_open_and_a_survey") {
        return;
    }
    let place = Place::new();
    let disk = SmallDisk::new(place.path("disk"));
    let url = url(&disk.0.join("locks.db"));
    let locks = Client::connect(&url).await.unwrap();
    let lease = locks.try_lock("job").ttl(TTL).renew(false).await.unwrap();
    disk.fill();
    let begun = Instant::now();
    // The log has some room left from before.
    let mut told = None;
    for i in 0..2000 {
        let name = format!("{i:0>400}");
        match locks.lock(name).timeout(Duration::from_secs(600)).await {
            Ok(lease) => std::mem::forget(lease),
            Err(error) => {
                told = Some(error.to_string());
                break;
            }
        }
    }
    let told = told.unwrap();
    assert!(told.contains("the disk is full; make room on it"), "{told}");
    assert!(begun.elapsed() < Duration::from_secs(60), "it waited");
    let survey = Client::builder().url(&url).survey().await.unwrap();
    let told = survey[0].facts.as_ref().unwrap_err().to_string();
    assert!(told.contains("the disk is full"), "{told}");
    let another = self::url(&disk.0.join("another.db"));
    let told = Client::connect(another).await.unwrap_err().to_string();
    assert!(told.contains("the disk is full"), "{told}");
    disk.make_room();
    lease.extend().await.unwrap();
    lease.release().await.unwrap();
    let survey = Client::builder().url(&url).survey().await.unwrap();
    assert!(survey[0].facts.is_ok(), "{survey:?}");
    let left = locks.list(&NamePattern::new("fencepost:*")).await.unwrap();
    assert!(left.locks.is_empty(), "the probe is gone: {left:?}");
}

// Forks

#[test]
fn a_forked_child_releases_nothing_and_cannot_use_what_it_inherited() {
    let place = Place::new();
    let said = output(Command::new(HAMMER).args(["fork", &place.url()]));
    let lines: Vec<_> = said.lines().collect();
    let forked = "was forked while the file was open";
    for (line, what) in lines
        .iter()
        .zip(["child locks: ", "child lists: ", "child opens: "])
    {
        assert!(line.starts_with(what) && line.contains(forked), "{said}");
    }
    assert_eq!(
        lines[3..],
        [
            "child is done",
            "child ended: Some(0)",
            "parent is valid: true",
            "rival is refused: true",
            "parent released",
        ],
        "{said}"
    );
}

// Quorums

#[tokio::test]
async fn what_only_this_machine_sees_is_refused_in_a_quorum_with_others() {
    let place = Place::new();
    let file = place.url();
    for urls in [
        format!("redis://127.0.0.1:1,{file},redis://127.0.0.1:2"),
        format!("{file},{}", url(&place.path("other.db"))),
        "memory:a,memory:b,memory:c".into(),
        "redis://127.0.0.1:1,memory:,redis://127.0.0.1:2".into(),
    ] {
        for error in [
            Client::connect(&urls).await.err(),
            Client::builder().url(&urls).survey().await.err(),
        ] {
            let said = error.unwrap().to_string();
            assert!(said.contains("this machine only"), "{urls}: {said}");
        }
    }
    assert!(!place.path("locks.db").exists(), "it was not even made");
}
