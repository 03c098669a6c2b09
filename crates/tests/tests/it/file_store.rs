//! A lock file is one place: what would make it two is refused, and what others do to its files
//! while processes run is noticed before the next vote. Real processes, real mounts, real users.

#![allow(clippy::unwrap_used, reason = "a test panics where it fails")]

use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use fencepost::Client;
use fencepost_tests::eventually;
use rustix::process::Signal;

use crate::file_place::*;

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
        assert!(said.contains("has 2 hard links"), "{said}");
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
    assert!(said.contains("bind-mounted"), "{said}");
    assert!(said.contains("mount its directory"), "{said}");
    // Also under an innocent name.
    let script =
        "ln -s \"$2\" \"$2-link\" && mount --bind \"$1\" \"$2\" && exec \"$0\" open \"$2-link\"";
    let said = output(&mut in_container(script));
    assert!(said.contains("bind-mounted"), "{said}");
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
        let why = "was deleted while in use";
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

// Forks

#[test]
fn a_forked_child_releases_nothing_and_cannot_use_what_it_inherited() {
    let place = Place::new();
    let said = output(Command::new(HAMMER).args(["fork", &place.url()]));
    let lines: Vec<_> = said.lines().collect();
    let forked = "forked while the file was open";
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
            assert!(said.contains("local to this machine"), "{urls}: {said}");
        }
    }
    assert!(!place.path("locks.db").exists(), "it was not even made");
}
