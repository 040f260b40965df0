//! PostgreSQL over TLS: who is let in, and whom we trust.

use std::time::{Duration, Instant};

use shunt_tests::certificates::Certificate;
use shunt_tests::servers::Postgres;
use shunt_volume::id::VolumeName;
use shunt_volume::store::{MetaStore as _, PostgresStore, StoreError};

use crate::store::engines::root;

#[test]
fn tls_is_as_sslmode_says() {
    let Some(server) = Postgres::start(false) else {
        return shunt_tests::skip::skip("PostgreSQL is not installed (run tests/setup)");
    };
    let dir = tempfile::tempdir().unwrap();
    let (ours, others) = (dir.path().join("ours"), dir.path().join("others"));
    let plain = server.tcp_address();
    let at = |query: &str| format!("{plain}?{query}");
    let name: VolumeName = "secret".parse().unwrap();
    // It speaks none as yet: who would like it goes on without, who wants it does not.
    PostgresStore::create(&plain, &name, &root(), b"").unwrap();
    let open = |query: &str| PostgresStore::open(&at(query), &name).and_then(|store| store.head());
    assert!(matches!(open("sslmode=require"), Err(StoreError::Unreachable(_))));

    let of_address = Certificate::new("127.0.0.1");
    std::fs::write(&ours, &of_address.authority).unwrap();
    std::fs::write(&others, Certificate::new("127.0.0.1").authority).unwrap();
    server.speak_tls(&of_address);
    let until = Instant::now() + Duration::from_secs(30);
    while open("sslmode=require").is_err() {
        assert!(Instant::now() < until, "{:?}", open("sslmode=require"));
        std::thread::sleep(Duration::from_millis(50));
    }
    let by = |mode: &str, roots: &std::path::Path| {
        open(&format!("sslmode={mode}&sslrootcert={}", roots.display()))
    };
    for mode in ["require", "verify-ca", "verify-full"] {
        by(mode, &ours).unwrap();
        let error = by(mode, &others).unwrap_err().to_string();
        assert!(error.contains("certificate"), "{mode}: {error}");
    }
    for mode in ["disable", "prefer"] {
        open(&format!("sslmode={mode}")).unwrap();
    }
    assert!(by("verify-full", &dir.path().join("none")).unwrap_err().to_string().contains("none"));

    // Of the same authority, and another name.
    let of_name = Certificate::new("db.example");
    std::fs::write(&ours, &of_name.authority).unwrap();
    server.speak_tls(&of_name);
    while by("verify-ca", &ours).is_err() {
        assert!(Instant::now() < until, "{:?}", by("verify-ca", &ours));
        std::thread::sleep(Duration::from_millis(50));
    }
    let error = by("verify-full", &ours).unwrap_err().to_string();
    assert!(error.contains("not valid for name"), "{error}");
    // Who listens for commits does so in secret too.
    let store = PostgresStore::open(&at(&format!("sslmode=verify-ca&sslrootcert={}", ours.display())), &name)
        .unwrap();
    assert!(!store.wait(store.head().unwrap(), Duration::from_millis(200)).unwrap());
}
