//! A lock file on a disk that is full.

#![allow(clippy::unwrap_used, reason = "a test panics where it fails")]

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use fencepost::{Client, NamePattern};

use crate::file_place::*;

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
    assert!(told.contains("the disk is full; free some space"), "{told}");
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
