//! Tests of directory listings, notifications, headers and constants, byte by byte.
#![cfg(target_endian = "little")]

use shunt_fuse_abi::dirent::Records;
use shunt_fuse_abi::*;

#[test]
fn plain_records_are_padded_to_eight_bytes() {
    let mut dir = DirBuilder::new(32 + 40);
    assert!(dir.push(5, 1, 4, b"a"));
    assert!(dir.fits(9, false) && !dir.fits(17, false));
    assert!(dir.push(6, 2, 8, b"123456789"));
    assert!(!dir.push(7, 3, 8, b"x"), "full");
    let expected: &[u8] = b"\x05\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x01\0\0\0\x04\0\0\0a\0\0\0\0\0\0\0\
        \x06\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x09\0\0\0\x08\0\0\x00123456789\0\0\0\0\0\0\0";
    assert_eq!(dir.as_bytes(), expected);
    let names: Vec<_> = Records::new(dir.as_bytes(), false).map(|r| (r.dirent.ino, r.name)).collect();
    assert_eq!(names, [(5, &b"a"[..]), (6, b"123456789")]);
    dir.reset(31);
    assert!(dir.is_empty() && !dir.push(5, 1, 4, b"a"));
}

#[test]
fn records_with_entries() {
    let entry = EntryOut { nodeid: 77, ..EntryOut::default() };
    let mut dir = DirBuilder::new(160 + 159);
    assert!(dir.push_plus(&entry, 5, 1, 4, b"12345678"));
    assert!(!dir.fits(1, true) && !dir.push_plus(&entry, 6, 2, 4, b"b"));
    assert_eq!(dir.as_bytes().len(), 160);
    let record = Records::new(dir.as_bytes(), true).next().unwrap();
    assert_eq!((record.entry, record.name), (Some(entry), &b"12345678"[..]));
}

#[test]
fn entries_of_a_listing_are_changed_in_place() {
    let mut dir = DirBuilder::new(4096);
    for (node, name) in [(5, b"a".as_slice()), (0, b"longer name"), (7, b"12345678")] {
        assert!(dir.push_plus(
            &EntryOut { nodeid: node, entry_valid: 9, ..EntryOut::default() },
            1,
            1,
            4,
            name
        ));
    }
    dir.change_entries(|name, entry| entry.entry_valid = name.len() as u64);
    let records: Vec<_> = Records::new(dir.as_bytes(), true).collect();
    let seen: Vec<_> = records
        .iter()
        .map(|record| (record.entry.unwrap().nodeid, record.entry.unwrap().entry_valid))
        .collect();
    assert_eq!(seen, [(5, 1), (0, 11), (7, 8)]);
    assert_eq!(records[1].name, b"longer name");
}

#[test]
fn names_that_the_kernel_refuses_are_left_out() {
    let mut dir = DirBuilder::new(8192);
    for name in [&b""[..], b"a/b", &[b'x'; 4096]] {
        assert!(dir.push(1, 1, 1, name));
    }
    assert!(dir.is_empty());
    assert!(dir.push(1, 1, 1, &[b'x'; 4095]));
}

/// Makes a header with this length and code, id 0.
fn head(len: u8, code: u8) -> Vec<u8> {
    let mut head = vec![len, 0, 0, 0, code, 0, 0, 0];
    head.extend([0; 8]);
    head
}

fn words(words: &[u64]) -> &[u8] {
    bytemuck::cast_slice(words)
}

#[test]
fn notifications() {
    let check = |n: notify::Notification<'_>, code: u8, body: &[&[u8]]| {
        let body = body.concat();
        let expected = [head(16 + body.len() as u8, code), body].concat();
        assert_eq!(n.to_vec(), expected, "code {code}");
        let gathered: Vec<u8> = n.slices().iter().flat_map(|s| s.to_vec()).collect();
        assert_eq!(gathered, expected);
    };
    check(notify::poll(9), 1, &[words(&[9])]);
    check(notify::inval_inode(9, -1, 0), 2, &[words(&[9, u64::MAX, 0])]);
    let flags = ExpireFlags::EXPIRE_ONLY;
    check(notify::inval_entry(9, b"ab", flags), 3, &[words(&[9, 1 << 32 | 2]), b"ab\0"]);
    check(notify::store(9, 4096, b"data"), 4, &[words(&[9, 4096, 4]), b"data"]);
    check(notify::retrieve(8, 9, 4096, 100), 5, &[words(&[8, 9, 4096, 100])]);
    check(notify::delete(9, 10, b"ab"), 6, &[words(&[9, 10, 2]), b"ab\0"]);
    check(notify::resend(), 7, &[]);
    check(notify::inc_epoch(), 8, &[]);
    check(notify::prune(&[4, 5]), 9, &[words(&[2, 0, 4, 5])]);
}

#[test]
fn reply_headers() {
    assert_eq!(OutHeader::ok(7, 8), Some(OutHeader { len: 24, error: 0, unique: 7 }));
    assert_eq!(OutHeader::ok(7, u32::MAX as usize), None);
    assert_eq!(OutHeader::ok(7, usize::MAX), None);
    assert_eq!(OutHeader::error(7, 2), OutHeader { len: 16, error: -2, unique: 7 });
}

/// Values that a C compiler computes for the macros of the kernel's header.
#[test]
fn device_ioctls() {
    assert_eq!(consts::DEV_IOC_CLONE, 0x8004_e500);
    assert_eq!(consts::DEV_IOC_BACKING_OPEN, 0x4010_e501);
    assert_eq!(consts::DEV_IOC_BACKING_CLOSE, 0x4004_e502);
    assert_eq!(consts::DEV_IOC_SYNC_INIT, 0xe503);
}

#[test]
fn the_high_half_of_the_capabilities_needs_its_flag() {
    let high = InitIn { flags: 1, flags2: 0x20, ..InitIn::default() };
    assert_eq!(high.init_flags(), InitFlags::ASYNC_READ);
    let mut out = InitOut::default();
    out.set_init_flags(InitFlags::PASSTHROUGH);
    assert_eq!((out.flags, out.flags2), (1 << 30, 1 << 5));
}
