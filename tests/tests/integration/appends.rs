//! O_APPEND: appended data, and writes at explicit offsets.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use shunt_test_support::needs_mount;
use shunt_tests::sys::Shared;
use shunt_tests::{Fixture, Plan, fixture};

shunt_tests::behaviours! { everywhere:
    a_mapping_of_an_appending_file_stays_in_place, appends_meet_the_end, an_append_flag_can_be_given_up,
}

fn appending(s: &Fixture, name: &str) -> File {
    File::options().read(true).append(true).open(s.path(name)).unwrap()
}

fn a_mapping_of_an_appending_file_stays_in_place(s: &Fixture) {
    fs::write(s.lower("f"), [b'0'; 8192]).unwrap();
    let file = appending(s, "f");
    let mut map = Shared::new(&file, 8192).unwrap();
    map[..4].copy_from_slice(b"page");
    map.sync().unwrap();
    drop(map);
    file.sync_all().unwrap();
    let seen = fs::read(s.lower("f")).unwrap();
    assert_eq!((seen.len(), &seen[..6]), (8192, &b"page00"[..]));
}

fn appends_meet_the_end(s: &Fixture) {
    fs::write(s.lower("f"), b"one").unwrap();
    let mut file = appending(s, "f");
    file.write_all(b"two").unwrap();
    // On Linux an append ignores the offset of pwrite.
    file.write_all_at(b"three", 0).unwrap();
    assert_eq!(fs::read(s.lower("f")).unwrap(), b"onetwothree");
}

fn an_append_flag_can_be_given_up(s: &Fixture) {
    fs::write(s.lower("f"), b"0000").unwrap();
    let file = appending(s, "f");
    fcntl_setfl(&file, fcntl_getfl(&file).unwrap() - OFlags::APPEND).unwrap();
    file.write_all_at(b"AB", 0).unwrap();
    assert_eq!(fs::read(s.lower("f")).unwrap(), b"AB00");
    fcntl_setfl(&file, OFlags::APPEND).unwrap();
    file.write_all_at(b"CD", 0).unwrap();
    assert_eq!(fs::read(s.lower("f")).unwrap(), b"AB00CD");
}

/// The source grows without the kernel's knowledge: nothing is overwritten.
#[test]
fn appends_do_not_overwrite_what_others_append() {
    needs_mount!();
    fixture::perform(Plan::daemon().args(&["--cache", "timeout=60"]), |s| {
        fs::write(s.lower("f"), b"one").unwrap();
        let mut file = appending(s, "f");
        file.metadata().unwrap();
        File::options().append(true).open(s.lower("f")).unwrap().write_all(b"two").unwrap();
        file.write_all(b"three").unwrap();
        assert_eq!(fs::read(s.lower("f")).unwrap(), b"onetwothree");
    });
}
