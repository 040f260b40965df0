//! The store engines, each with a way to create a volume.

use std::sync::{Arc, OnceLock};

use shunt_test_support::servers::Postgres;
use shunt_volume::object::Kind;
use shunt_volume::store::admin::StoreAdmin;
use shunt_volume::store::{PostgresStore, SqliteStore, StoreError};

use crate::store::builders::object;

impl Fresh {
    fn of(admin: Arc<dyn StoreAdmin>, keep: Option<tempfile::TempDir>) -> Option<Self> {
        Some(Self { store: admin.clone(), admin, _keep: keep })
    }
}

/// A new volume, and the resources that live as long.
pub struct Fresh {
    pub store: Arc<dyn StoreAdmin>,
    pub admin: Arc<dyn StoreAdmin>,
    _keep: Option<tempfile::TempDir>,
}

pub fn root() -> shunt_volume::object::Object {
    object(1, Kind::Directory)
}

pub fn sqlite_file() -> Option<Fresh> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("meta.db");
    SqliteStore::create(&path, &"v".parse().unwrap(), &root(), b"about").unwrap();
    let store = Arc::new(SqliteStore::open(&path).unwrap());
    assert_eq!(store.descriptor().unwrap(), b"about");
    Fresh::of(store, Some(dir))
}

pub fn sqlite_memory() -> Option<Fresh> {
    let store = SqliteStore::in_memory(&"v".parse().unwrap(), &root(), b"").unwrap();
    Fresh::of(Arc::new(store), None)
}

/// One server for all tests of this process, with a volume for each.
pub fn server() -> Option<&'static Postgres> {
    static SERVER: OnceLock<Option<Postgres>> = OnceLock::new();
    SERVER.get_or_init(|| Postgres::start(false)).as_ref()
}

pub fn postgres() -> Option<Fresh> {
    let Some(server) = server() else {
        shunt_test_support::skip::skip("PostgreSQL is not installed (run tests/setup)");
        return None;
    };
    let name = format!("v{:016x}", rand::random::<u64>()).parse().unwrap();
    PostgresStore::create(&server.address(), &name, &root(), b"about").unwrap();
    assert!(matches!(
        PostgresStore::create(&server.address(), &name, &root(), b""),
        Err(StoreError::Exists(_))
    ));
    let store = PostgresStore::open(&server.address(), &name).unwrap();
    assert_eq!(store.descriptor().unwrap(), b"about");
    Fresh::of(Arc::new(store), None)
}

/// Runs the suite on an engine. A missing engine is skipped, unless `CI` is set.
macro_rules! engine {
    ($engine:ident: $($test:ident)*; $($past:ident)*) => {
        mod $engine {
            $(#[test]
            fn $test() {
                if let Some(fresh) = crate::store::engines::$engine() {
                    crate::store::conformance::$test(&fresh.store);
                }
            })*

            $(#[test]
            fn $past() {
                if let Some(fresh) = crate::store::engines::$engine() {
                    crate::store::history::$past(&fresh.admin);
                }
            })*

            #[test]
            fn tells_of_leases_until_all_have_seen_them() {
                if let Some(fresh) = crate::store::engines::$engine() {
                    crate::store::leases::tells_of_leases_until_all_have_seen_them(&fresh.store);
                }
            }

            #[test]
            fn ends_leases_with_their_session() {
                if let Some(fresh) = crate::store::engines::$engine() {
                    crate::store::leases::ends_leases_with_their_session(&fresh.store);
                }
            }

            #[test]
            fn wakes_who_waits_for_leases() {
                if let Some(fresh) = crate::store::engines::$engine() {
                    crate::store::leases::wakes_who_waits_for_leases(&fresh.store);
                }
            }

            #[test]
            fn agrees_with_the_model() {
                crate::store::model::agrees(crate::store::engines::$engine);
            }
        }
    };
}

macro_rules! engines {
    ($($engine:ident)*) => {
        $(engine! { $engine:
            begins_with_the_top_directory
            numbers_commits_without_gaps
            forgets_the_beginning_of_the_log
            tells_what_was_committed
            accepts_items_one_by_one
            checks_preconditions
            sees_earlier_items_of_a_batch
            takes_back_what_was_begun
            refuses_cycles
            counts_links
            loses_objects_without_names
            keeps_directories_that_hold_names
            sets_each_field_by_itself
            answers_a_token_once
            refuses_values_that_make_no_sense
            refuses_what_no_message_has_room_for
            scans_in_pages
            knows_places
            moves_chunks_that_are_where_they_were
            sets_in_turn
            lets_committers_meet
            wakes_who_waits;
            keeps_what_is_superseded
            keeps_each_step_of_a_batch
            lists_directories_as_they_were
            finds_commits_by_time
            forgets_by_age_and_by_count
            keeps_settings
        })*
    };
}

engines! { sqlite_file sqlite_memory postgres }
