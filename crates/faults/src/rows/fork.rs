//! Clients that fork while they hold the lock.
//!
//! The child has its parent's memory: the lease, and connections whose descriptors it shares. It extends the
//! lease, drops it and asks for the lock, and nothing of that may reach a node or confuse what the parent
//! reads. The parent has a second thread, and goes on to use the lock at the same time. What a child was
//! granted ends the run. Everything is promised.

use std::io;

use crate::row::Row;
use crate::scene::Scene;

pub(super) const ROWS: &[Row] = &[Row {
    lay_out: |layout| layout.forks = true,
    ..Row::new(
        "fork",
        "clients fork while they hold the lock; the child uses and drops what it inherited",
        |scene| {
            let forks = |scene: &Scene| match scene.forks_file().metadata() {
                Ok(file) => Ok(file.len()),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
                Err(error) => Err(error),
            };
            let before = forks(scene)?;
            scene.pass(200..=500);
            usize::try_from(forks(scene)? - before).map_err(io::Error::other)
        },
    )
}];
