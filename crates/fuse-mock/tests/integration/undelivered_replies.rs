//! Tests with a kernel that accepts no replies: the effects of the replies must be undone.

use std::time::{Duration, Instant};

use shunt_fuse::{Config, Name, Profile};
use shunt_fuse_abi as abi;
use shunt_fuse_abi::Operation;
use shunt_fuse_mock::Served;
use shunt_fuse_mock::memfs::{Ledger, MemFs};

fn wait_for(kernel: &Served<MemFs>, condition: impl Fn(Ledger) -> bool) {
    let begin = Instant::now();
    while !condition(kernel.fs().ledger()) {
        assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", kernel.fs().ledger());
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Sends a request whose reply is refused, and waits until it was served.
fn refused(operation: &Operation<'_>, node: impl Fn(&MemFs) -> u64) -> Ledger {
    let fs = MemFs::new();
    fs.plant("file", b"contents").unwrap();
    let node = node(&fs);
    let kernel = Served::new(fs, Config::new(Profile::Passthrough));
    kernel.refuse_replies();
    let opcode = operation.opcode();
    let pending = kernel.submit(node, operation);
    let begin = Instant::now();
    while kernel.session().statistics().operations.iter().all(|it| it.opcode != opcode || it.count == 0) {
        assert!(begin.elapsed() < Duration::from_secs(10), "{opcode} was not served");
        std::thread::sleep(Duration::from_millis(1));
    }
    wait_for(&kernel, |ledger| ledger.lookups == 0 && ledger.handles == 0);
    drop(pending);
    assert_eq!(kernel.session().open_nodes(), 0);
    kernel.finish().ledger()
}

fn clean(ledger: Ledger) {
    assert_eq!((ledger.excess_forgets, ledger.excess_releases), (0, 0), "{ledger:?}");
}

#[test]
fn a_lookup_is_forgotten() {
    clean(refused(&Operation::Lookup { name: Name::new(c"file").unwrap() }, |_| 1));
}

#[test]
fn a_mkdir_is_forgotten() {
    let operation = Operation::Mkdir { arg: abi::MkdirIn::default(), name: Name::new(c"dir").unwrap() };
    clean(refused(&operation, |_| 1));
}

#[test]
fn an_open_is_released() {
    clean(refused(&Operation::Open { arg: abi::OpenIn::default() }, |_| 2));
}

#[test]
fn a_create_is_released_and_forgotten() {
    let operation = Operation::Create { arg: abi::CreateIn::default(), name: Name::new(c"new").unwrap() };
    clean(refused(&operation, |_| 1));
}

#[test]
fn tmpfile_is_released_forgotten_and_removed() {
    let ledger = refused(&Operation::Tmpfile { arg: abi::CreateIn::default() }, |_| 1);
    clean(ledger);
    assert_eq!(ledger.nodes, 2);
}

#[test]
fn an_opendir_is_released() {
    clean(refused(&Operation::Opendir { arg: abi::OpenIn::default() }, |_| 1));
}

#[test]
fn a_listing_with_entries_is_forgotten() {
    let fs = MemFs::new();
    for i in 0..10 {
        fs.plant(&format!("file-{i}"), b"").unwrap();
    }
    let kernel = Served::new(fs, Config::new(Profile::Passthrough));
    let dir = kernel.opendir(1).unwrap();
    kernel.refuse_replies();
    let arg = abi::ReadIn { fh: dir.fh, size: 4096, ..Default::default() };
    kernel.submit(1, &Operation::Readdirplus { arg });
    let begin = Instant::now();
    while kernel.session().statistics().operations.iter().all(|it| it.opcode != abi::Opcode::Readdirplus) {
        assert!(begin.elapsed() < Duration::from_secs(10));
        std::thread::sleep(Duration::from_millis(1));
    }
    wait_for(&kernel, |ledger| ledger.lookups == 0);
    clean(kernel.finish().ledger());
}
