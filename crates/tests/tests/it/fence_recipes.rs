//! The recipes of the module `fence`, on the stores they are for: an old holder is refused once a
//! newer one has registered.

use std::fs::{self, File};
use std::io::{Read, Seek, Write};
use std::path::Path;
use std::time::Duration;

use fencepost::{Client, FencingToken};
use fencepost_tests::RedisServer;
use rusqlite::Connection;

/// The text that users read: what is tested is what it says.
const GUIDE: &str = include_str!("../../../fencepost/src/fence.md");

/// Two holders of one lock, one after the other, and their tokens.
async fn old_and_new() -> (FencingToken, FencingToken) {
    let locks = Client::memory().unwrap();
    let old = locks
        .try_lock("account")
        .ttl(Duration::from_millis(300))
        .renew(false)
        .await
        .unwrap();
    let new = locks.lock("account").await.unwrap();
    assert!(!old.is_valid(), "paused past its time");
    (old.token(), new.token())
}

/// The code block that follows a heading of the guide.
fn recipe(heading: &str) -> String {
    let (_, after) = GUIDE.split_once(heading).expect("the heading");
    let (_, block) = after.split_once("```").expect("a block");
    let (_, code) = block.split_once('\n').expect("its first line");
    code.split_once("```").expect("its end").0.to_owned()
}

#[tokio::test]
async fn a_sql_table_refuses_the_old_holder_once_the_new_one_has_registered() {
    let (old, new) = old_and_new().await;
    let sql = Connection::open_in_memory().unwrap();
    let recipe = recipe("# Recipe: a SQL table");
    let statements: Vec<&str> = recipe.split_inclusive(';').collect();
    let [create, register, write, ..] = statements[..] else {
        panic!("{statements:?}");
    };
    sql.execute_batch(create).unwrap();
    sql.execute_batch(
        "CREATE TABLE account (id TEXT PRIMARY KEY, balance INTEGER NOT NULL);
         INSERT INTO account VALUES ('a', 100);",
    )
    .unwrap();
    let registers = |token: FencingToken| {
        let named = rusqlite::named_params! { ":resource": "a", ":token": token.get() as i64 };
        sql.execute(register, named).unwrap() == 1
    };
    let writes = |token: FencingToken, balance: i64| {
        let named = rusqlite::named_params! {
            ":resource": "a", ":token": token.get() as i64, ":balance": balance
        };
        sql.execute(write, named).unwrap() == 1
    };
    assert!(registers(old) && writes(old, 90));
    assert!(registers(new));
    assert!(!writes(old, 0), "the old holder wakes up");
    assert!(!registers(old));
    assert!(writes(new, 80) && registers(new));
    let balance: i64 = sql
        .query_row("SELECT balance FROM account", [], |row| row.get(0))
        .unwrap();
    assert_eq!(balance, 80);
}

#[tokio::test]
async fn a_redis_value_refuses_the_old_holder_once_the_new_one_has_registered() {
    let (old, new) = old_and_new().await;
    let server = RedisServer::start();
    let script = recipe("# Recipe: a Redis value");
    let call = |token: FencingToken, value: Option<&str>| {
        let token = token.to_string();
        let mut words = vec!["EVAL", &script, "1", "account", &token];
        words.extend(value);
        server.cli(&words)
    };
    assert_eq!(call(old, None), "OK");
    assert_eq!(call(old, Some("90")), "OK");
    assert_eq!(call(new, None), "OK");
    assert!(call(old, Some("0")).contains("STALE"));
    assert_eq!(call(new, Some("80")), "OK");
    assert_eq!(server.cli(&["HGET", "account", "value"]), "80");
}

/// The file recipe: a file beside the data keeps the newest token, under the kernel's own lock.
fn write_fenced(data: &Path, token: FencingToken, content: Option<&str>) -> std::io::Result<bool> {
    let fence = data.with_extension("fence");
    let mut fence = File::options()
        .create(true)
        .read(true)
        .write(true)
        .truncate(false)
        .open(fence)?;
    fence.lock()?;
    let mut newest = String::new();
    fence.read_to_string(&mut newest)?;
    if newest.parse().is_ok_and(|newest: u64| token.get() < newest) {
        return Ok(false);
    }
    // Longer or as long as what was there: tokens never get shorter.
    fence.rewind()?;
    fence.write_all(token.to_string().as_bytes())?;
    fence.sync_data()?;
    if let Some(content) = content {
        let fresh = data.with_extension("new");
        fs::write(&fresh, content)?;
        fs::rename(fresh, data)?;
    }
    Ok(true)
}

#[tokio::test]
async fn a_file_refuses_the_old_holder_once_the_new_one_has_registered() {
    let (old, new) = old_and_new().await;
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("account");
    assert!(write_fenced(&data, old, Some("90")).unwrap());
    assert!(write_fenced(&data, new, None).unwrap());
    assert!(!write_fenced(&data, old, Some("0")).unwrap());
    assert!(write_fenced(&data, new, Some("80")).unwrap());
    assert_eq!(fs::read_to_string(&data).unwrap(), "80");
}
