//! One lock as a row of the file.

use std::time::Duration;

use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, params};

use super::boot::Boot;
use super::process::Process;
use fencepost_core::lock::LockState;

const READ: &str = "SELECT state, boot, written_us, pid, started, pid_ns
                    FROM locks WHERE name = ?1";
const WRITE: &str = "INSERT OR REPLACE INTO locks
                     (name, state, boot, written_us, pid, started, pid_ns)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
const NAMES_AFTER: &str = "SELECT name FROM locks WHERE name > ?1 ORDER BY name LIMIT ?2";
const DELETE: &str = "DELETE FROM locks WHERE name = ?1";

/// A lock as stored. Its times are boot times of the named boot.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) state: LockState,
    /// The process that was last granted the lock.
    pub(super) process: Option<Process>,
    pub(super) boot: Boot,
    /// When the row was written.
    pub(super) written: Duration,
}

impl Row {
    /// The lock's row, if it has one.
    pub(super) fn read(connection: &Connection, name: &str) -> rusqlite::Result<Option<Self>> {
        connection
            .prepare_cached(READ)?
            .query_row([name], |columns| {
                let state: String = columns.get(0)?;
                let pid: Option<u32> = columns.get(3)?;
                let started: Option<i64> = columns.get(4)?;
                let namespace: Option<i64> = columns.get(5)?;
                let written: i64 = columns.get(2)?;
                Ok(Self {
                    state: serde_json::from_str(&state).map_err(|error| {
                        rusqlite::Error::FromSqlConversionFailure(0, Type::Text, error.into())
                    })?,
                    process: match (pid, started, namespace) {
                        (Some(pid), Some(started), Some(namespace)) => Some(Process {
                            pid,
                            started: started.cast_unsigned(),
                            namespace: namespace.cast_unsigned(),
                        }),
                        _ => None,
                    },
                    boot: Boot(columns.get(1)?),
                    written: Duration::from_micros(written.cast_unsigned()),
                })
            })
            .optional()
    }

    /// Inserts or replaces the lock's row.
    pub(super) fn write(&self, connection: &Connection, name: &str) -> rusqlite::Result<()> {
        let state = serde_json::to_string(&self.state)
            .map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
        // Microseconds of boot time fit for 290,000 years.
        let written = i64::try_from(self.written.as_micros()).unwrap_or(i64::MAX);
        connection.prepare_cached(WRITE)?.execute(params![
            name,
            state,
            self.boot.0,
            written,
            self.process.map(|process| process.pid),
            self.process.map(|process| process.started.cast_signed()),
            self.process.map(|process| process.namespace.cast_signed()),
        ])?;
        Ok(())
    }

    /// The next few names after this one.
    pub(super) fn names_after(
        connection: &Connection,
        name: &str,
        limit: u32,
    ) -> rusqlite::Result<Vec<String>> {
        let mut statement = connection.prepare_cached(NAMES_AFTER)?;
        let names = statement.query_map(params![name, limit], |columns| columns.get(0))?;
        names.collect()
    }

    /// Deletes the lock's row.
    pub(super) fn delete(connection: &Connection, name: &str) -> rusqlite::Result<()> {
        connection.prepare_cached(DELETE)?.execute([name])?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file outlives the version that wrote it.
    #[test]
    fn the_state_of_a_lock_is_written_as_ever() {
        let stored = r#"{"holder":{"value":"a:web","token":5,"until":{"secs":1,"nanos":5}},"#
            .to_owned()
            + r#""readers":[{"value":"r:web","token":4,"until":{"secs":1,"nanos":0}}],"#
            + r#""counter":7,"counter_until":{"secs":9,"nanos":0},"#
            + r#""tombstones":[["b:web",{"secs":3,"nanos":0}]],"#
            + r#""queue":[{"number":8,"id":"c","until":{"secs":2,"nanos":0}}],"#
            + r#""stolen":{"from":["d:web"],"by":"a:web","until":{"secs":4,"nanos":0}}}"#;
        let state: LockState = serde_json::from_str(&stored).unwrap();
        assert_eq!(serde_json::to_string(&state).unwrap(), stored);
        // Before tokens were kept with the holder.
        let older = stored.replace(r#""token":5,"#, "");
        let state: LockState = serde_json::from_str(&older).unwrap();
        let now = serde_json::to_string(&state).unwrap();
        assert_eq!(now, stored.replace(r#""token":5"#, r#""token":0"#));
        assert!(serde_json::from_str::<LockState>(&stored.replace("[[\"b:web\"", "[[1")).is_err());
    }
}
