//! Stores created by an older version.

use shunt_volume::id::Seq;
use shunt_volume::object::Kind;
use shunt_volume::store::{MetaStore, Mutation, PostgresStore, SqliteStore, StoreError};

use crate::store::builders::*;
use crate::store::engines::server;

/// Checks that earlier objects remain usable, and that history before the upgrade is reported as unknown.
fn goes_on(store: &dyn MetaStore, before: Seq) {
    let history = store.history().unwrap();
    assert_eq!((store.head().unwrap(), history.complete_since().unwrap()), (before, before));
    let mode = done(store, change([Mutation::SetMode(id(2), 0o600)]));
    assert_eq!(history.object_at(id(2), before).unwrap().unwrap().object.mode, 0o644);
    assert_eq!(history.object_at(id(2), mode).unwrap().unwrap().object.mode, 0o600);
}

#[test]
fn a_file_of_format_1_gets_what_it_lacks() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("meta.db");
    let root = object(1, Kind::Directory);
    let store = SqliteStore::create(&path, &"v".parse().unwrap(), &root, b"about").unwrap();
    let before = done(&store, make(2, Kind::Regular, ROOT, "a"));
    drop(store);
    let db = rusqlite::Connection::open(&path).unwrap();
    db.execute_batch(
        "DROP TABLE past_object; DROP TABLE past_link; DROP TABLE setting; ALTER TABLE about DROP COLUMN kept;
         ALTER TABLE about DROP COLUMN latest; PRAGMA user_version = 1;",
    )
    .unwrap();
    drop(db);
    goes_on(&SqliteStore::open(&path).unwrap(), before);
    assert_eq!(SqliteStore::open(&path).unwrap().head().unwrap(), Seq(before.0 + 1));
}

fn sql(address: &str, text: &str) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let (client, connection) = tokio_postgres::connect(address, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        client.batch_execute(text).await.unwrap();
    });
}

#[test]
fn a_database_of_format_1_gets_what_it_lacks() {
    let Some(server) = server() else {
        return shunt_test_support::skip::skip("PostgreSQL is not installed (run tests/setup)");
    };
    let (one, other) = ("old".parse().unwrap(), "newer".parse().unwrap());
    let root = object(1, Kind::Directory);
    // In a schema of its own, apart from those of the other tests.
    let address = format!("{}?options=-c%20search_path%3Dformat1", server.address());
    sql(&server.address(), "CREATE SCHEMA format1");
    let store = PostgresStore::create(&address, &one, &root, b"about").unwrap();
    let before = done(&store, make(2, Kind::Regular, ROOT, "a"));
    drop(store);
    sql(
        &server.address(),
        "DROP TABLE format1.shunt_past_object; DROP TABLE format1.shunt_past_link; DROP TABLE format1.shunt_setting;
         ALTER TABLE format1.shunt_volume DROP COLUMN kept; ALTER TABLE format1.shunt_volume DROP COLUMN latest;
         UPDATE format1.shunt_volume SET format = 1",
    );
    // Creating another volume in the same schema adds the tables, but does not upgrade the format of the first volume.
    drop(PostgresStore::create(&address, &other, &root, b"").unwrap());
    goes_on(&PostgresStore::open(&address, &one).unwrap(), before);
    sql(&server.address(), "UPDATE format1.shunt_volume SET format = 99");
    assert!(matches!(PostgresStore::open(&address, &one), Err(StoreError::Format { .. })));
}

#[test]
fn times_do_not_go_back_with_the_clock() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicI64, Ordering};
    let now = Arc::new(AtomicI64::new(1000));
    let clock = now.clone();
    let store = SqliteStore::in_memory(&"v".parse().unwrap(), &object(1, Kind::Directory), b"").unwrap();
    let store = store.with_clock(Arc::new(move || shunt_volume::object::Time(clock.load(Ordering::Relaxed))));
    for (n, time) in [1000, 900, 1100].into_iter().enumerate() {
        now.store(time, Ordering::Relaxed);
        done(&store, make(10 + n as u128, Kind::Regular, ROOT, &n.to_string()));
    }
    let times: Vec<_> = store.log_since(Seq(0), 10).unwrap().iter().map(|entry| entry.at.0).collect();
    assert_eq!(times, [1000, 1000, 1100]);
}
