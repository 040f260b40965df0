//! Tests of HANDLE_KILLPRIV_V2: the server clears setuid, setgid and capabilities, and the kernel stops requesting them.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};

use shunt_fuse::{Capabilities, FileType, NodeId, Opcode};

use crate::common::sys::memfd;
use crate::common::{Content, Fixture, OpenAs, Plan, run, sys};

const WRITES: usize = 10_000;
const USER: u32 = 1000;

fn v2() -> Plan {
    Plan::passthrough().config(|config| config.require(Capabilities::HANDLE_KILLPRIV_V2))
}

/// Returns the number of GETXATTR requests that this many small writes cause.
fn questions(fixture: &Fixture) -> usize {
    fixture.fs.add_file("x", b"");
    let file = File::options().write(true).open(fixture.path("x")).unwrap();
    file.write_all_at(b"first", 0).unwrap();
    let (asked, ()) = fixture.during(Opcode::Getxattr, || {
        for n in 0..WRITES {
            file.write_all_at(b"bytes", n as u64 % 4096).unwrap();
        }
    });
    let named = fixture.fs.log.of(Opcode::Getxattr);
    assert!(named.iter().all(|call| call.name == b"security.capability"));
    asked as usize
}

#[test]
fn with_it_writes_ask_nothing() {
    run(v2(), |fixture| assert_eq!(questions(fixture), 0));
}

#[test]
fn without_it_every_write_asks() {
    run(Plan::passthrough(), |fixture| assert_eq!(questions(fixture), WRITES));
}

/// Makes a world-writable file with both bits set; returns its node.
fn privileged(fixture: &Fixture, name: &str) -> NodeId {
    let node = fixture.fs.add(NodeId::ROOT, name, FileType::Regular.mode() | 0o6777);
    fixture.fs.set_open(node, OpenAs::Cached);
    node
}

fn mode(fixture: &Fixture, name: &str) -> u32 {
    fs::metadata(fixture.path(name)).unwrap().mode() & 0o7777
}

#[test]
fn a_write_carries_the_flag_and_the_bits_go() {
    run(v2(), |fixture| {
        privileged(fixture, "x");
        assert_eq!(mode(fixture, "x"), 0o6777);
        sys::as_user(USER, USER, &[], || {
            let file = File::options().write(true).open(fixture.path("x")).unwrap();
            file.write_all_at(b"x", 0).unwrap();
        });
        assert!(fixture.fs.log.last(Opcode::Write).has("kill_suidgid: true"));
        assert_eq!(mode(fixture, "x"), 0o777);
    });
}

#[test]
fn a_write_by_root_does_not_carry_it() {
    run(v2(), |fixture| {
        privileged(fixture, "x");
        let file = File::options().write(true).open(fixture.path("x")).unwrap();
        file.write_all_at(b"x", 0).unwrap();
        assert!(fixture.fs.log.last(Opcode::Write).has("kill_suidgid: false"));
        assert_eq!(mode(fixture, "x"), 0o6777);
    });
}

#[test]
fn an_open_that_truncates_carries_it() {
    let plan = v2().config(|config| config.require(Capabilities::ATOMIC_O_TRUNC));
    run(plan, |fixture| {
        privileged(fixture, "x");
        sys::as_user(USER, USER, &[], || {
            File::options().write(true).custom_flags(libc::O_TRUNC).open(fixture.path("x")).unwrap();
        });
        let open = fixture.fs.log.last(Opcode::Open);
        assert!(open.has("kill_suidgid: true"), "{}", open.args);
        assert_eq!(fixture.count(Opcode::Setattr), 0);
        fixture.caches().invalidate_node_whole(fixture.node("x")).wait().unwrap();
        assert_eq!(mode(fixture, "x"), 0o777);
    });
}

#[test]
fn a_truncation_carries_it() {
    run(v2(), |fixture| {
        privileged(fixture, "x");
        sys::as_user(USER, USER, &[], || {
            File::options().write(true).open(fixture.path("x")).unwrap().set_len(10).unwrap();
        });
        let set = fixture.fs.log.last(Opcode::Setattr);
        assert!(set.has("size: Some(10)") && set.has("kill_suidgid: true"), "{}", set.args);
        assert_eq!(mode(fixture, "x"), 0o777);
    });
}

#[test]
fn a_write_past_the_server_says_it_first() {
    run(v2(), |fixture| {
        let node = fixture.fs.add_file("x", Content::File(memfd(b"xyz")));
        fixture.fs.set_open(node, OpenAs::Passthrough);
        fs::set_permissions(fixture.path("x"), fs::Permissions::from_mode(0o777)).unwrap();
        let of_user = sys::as_user(USER, USER, &[], || {
            let file = File::options().write(true).open(fixture.path("x")).unwrap();
            file.write_all_at(b"x", 0).unwrap();
            file
        });
        // Set while the file is open in a process that has written before.
        fs::set_permissions(fixture.path("x"), fs::Permissions::from_mode(0o6777)).unwrap();
        assert_eq!(mode(fixture, "x"), 0o6777, "no write has happened yet");
        sys::as_user(USER, USER, &[], || of_user.write_all_at(b"y", 0).unwrap());
        assert_eq!(mode(fixture, "x"), 0o777);
        assert_eq!(fixture.count(Opcode::Write), 0);
    });
}

#[test]
fn a_directory_whose_owner_stays_keeps_its_bits() {
    run(v2(), |fixture| {
        fs::create_dir(fixture.path("d")).unwrap();
        fs::set_permissions(fixture.path("d"), fs::Permissions::from_mode(0o6777)).unwrap();
        std::os::unix::fs::chown(fixture.path("d"), None, None).unwrap();
        assert_eq!(mode(fixture, "d"), 0o6777);
    });
}

#[test]
fn a_change_of_owner_carries_it() {
    run(v2(), |fixture| {
        privileged(fixture, "x");
        std::os::unix::fs::chown(fixture.path("x"), Some(USER), None).unwrap();
        let set = fixture.fs.log.last(Opcode::Setattr);
        assert!(set.has("uid: Some(1000)"), "{}", set.args);
        assert!(set.has("kill_suidgid: true") || set.has("mode: Some("), "{}", set.args);
    });
}

#[test]
fn the_write_back_cache_lets_the_bits_go_as_well() {
    let plan = Plan::writeback().config(|config| config.require(Capabilities::HANDLE_KILLPRIV_V2));
    run(plan, |fixture| {
        privileged(fixture, "x");
        sys::as_user(USER, USER, &[], || {
            let file = File::options().write(true).open(fixture.path("x")).unwrap();
            file.write_all_at(b"x", 0).unwrap();
            file.sync_all().unwrap();
        });
        fixture.caches().invalidate_node(fixture.node("x"), None).wait().unwrap();
        assert_eq!(mode(fixture, "x"), 0o777);
    });
}
