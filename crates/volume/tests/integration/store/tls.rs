//! PostgreSQL over TLS: client authentication and server verification.

use std::time::{Duration, Instant};

use shunt_test_support::certificates::Certificate;
use shunt_test_support::servers::Postgres;
use shunt_volume::id::VolumeName;
use shunt_volume::store::{MetaStore as _, PostgresStore, StoreError};

use crate::store::engines::root;

#[test]
fn tls_is_as_sslmode_says() {
    let Some(server) = Postgres::start(false) else {
        return shunt_test_support::skip::skip("PostgreSQL is not installed (run tests/setup)");
    };
    let dir = tempfile::tempdir().unwrap();
    let (ours, others) = (dir.path().join("ours"), dir.path().join("others"));
    let plain = server.tcp_address();
    let at = |query: &str| format!("{plain}?{query}");
    let name: VolumeName = "secret".parse().unwrap();
    // The server does not speak TLS yet: `prefer` continues without, `require` fails.
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

    // Signed by the same authority, for another name.
    let of_name = Certificate::new("db.example");
    std::fs::write(&ours, &of_name.authority).unwrap();
    server.speak_tls(&of_name);
    while by("verify-ca", &ours).is_err() {
        assert!(Instant::now() < until, "{:?}", by("verify-ca", &ours));
        std::thread::sleep(Duration::from_millis(50));
    }
    let error = by("verify-full", &ours).unwrap_err().to_string();
    assert!(error.contains("not valid for name"), "{error}");
    // The connection that listens for commits is encrypted, too.
    let store = PostgresStore::open(&at(&format!("sslmode=verify-ca&sslrootcert={}", ours.display())), &name)
        .unwrap();
    assert!(!store.wait(store.head().unwrap(), Duration::from_millis(200)).unwrap());
}
