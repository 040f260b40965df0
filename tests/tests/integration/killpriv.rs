//! Setuid, setgid and file capabilities are removed when an unprivileged user changes the file.
//!
//! Under `FUSE_HANDLE_KILLPRIV_V2` the server is responsible for that, and under passthrough the thread that registers the
//! backing file: without care an unprivileged write leaves a 06777 file unchanged.

use std::fs::{self, File, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, chown};
use std::path::PathBuf;

use rustix::fs::{XattrFlags, fallocate, getxattr, setxattr};
use shunt_test_support::{Peer, User};
use shunt_tests::sys::{Aligned, open_direct};
use shunt_tests::{Fixture, Plan, fixture};

shunt_tests::behaviours! { everywhere:
    an_unprivileged_write_clears, an_unprivileged_append_clears, a_direct_write_clears, a_splice_clears,
    an_open_before_the_bits_clears_too, truncate_clears, ftruncate_clears, open_with_truncate_clears, fallocate_clears,
    chown_by_the_owner_clears, chown_by_root_clears, reading_clears_nothing,
    write_removes_a_capability, truncate_removes_a_capability, chown_removes_a_capability, copy_file_range_clears,
    mode_is_seen_at_once_by_others, a_privileged_write_keeps_the_bits, setgid_without_execute_stays_for_members,
}

const NET_RAW: &[u8] = &[1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// Creates a file of root that everybody may write, with the set-id bits.
fn dangerous(s: &Fixture) -> PathBuf {
    let path = s.path("f");
    fs::write(&path, vec![1; 16384]).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o6777)).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o6777);
    path
}

#[track_caller]
fn expect(s: &Fixture, mode: u32) {
    let seen = |p: PathBuf| fs::metadata(p).unwrap().mode() & 0o7777;
    let (below, above) = (seen(s.lower("f")), seen(s.path("f")));
    assert_eq!(
        (below, above),
        (mode, mode),
        "left {below:o} in the source, {above:o} in the mirror; want {mode:o}"
    );
}

fn stranger() -> User {
    User::new(1001)
}

fn an_unprivileged_write_clears(s: &Fixture) {
    let path = dangerous(s);
    stranger().run(|| {
        let mut f = File::options().write(true).open(&path).unwrap();
        assert_eq!(f.metadata().unwrap().mode() & 0o7777, 0o6777, "opening alone changes nothing");
        f.write_all(b"x").unwrap();
        assert_eq!(f.metadata().unwrap().mode() & 0o7777, 0o777);
    });
    expect(s, 0o777);
}

fn an_unprivileged_append_clears(s: &Fixture) {
    let path = dangerous(s);
    stranger().run(|| File::options().append(true).open(&path).unwrap().write_all(b"x").unwrap());
    expect(s, 0o777);
}

fn a_direct_write_clears(s: &Fixture) {
    let path = dangerous(s);
    stranger().run(|| {
        // Without O_DIRECT any write will do.
        let f = open_direct(&path).unwrap_or_else(|_| File::options().write(true).open(&path).unwrap());
        f.write_all_at(&Aligned::new(4096), 0).unwrap();
    });
    expect(s, 0o777);
}

fn a_splice_clears(s: &Fixture) {
    let path = dangerous(s);
    stranger().run(|| {
        let (from, mut to) = std::io::pipe().unwrap();
        to.write_all(b"by splice").unwrap();
        let f = File::options().write(true).open(&path).unwrap();
        rustix::pipe::splice(&from, None, &f, None, 9, rustix::pipe::SpliceFlags::empty()).unwrap();
    });
    expect(s, 0o777);
}

/// The writer had its file open before the bits were set: no cache may assume that there are none.
fn an_open_before_the_bits_clears_too(s: &Fixture) {
    let path = s.path("f");
    fs::write(&path, b"x").unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o777)).unwrap();
    let f = stranger().run(|| {
        let f = File::options().write(true).open(&path).unwrap();
        f.write_all_at(b"one", 0).unwrap();
        f
    });
    fs::set_permissions(&path, Permissions::from_mode(0o6777)).unwrap();
    stranger().run(|| f.write_all_at(b"two", 0).unwrap());
    expect(s, 0o777);
}

fn truncate_clears(s: &Fixture) {
    let path = dangerous(s);
    let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: the string is terminated by a zero byte and lives through the call.
    stranger().run(|| assert_eq!(unsafe { libc::truncate(name.as_ptr(), 100) }, 0));
    expect(s, 0o777);
}

fn ftruncate_clears(s: &Fixture) {
    let path = dangerous(s);
    stranger().run(|| File::options().write(true).open(&path).unwrap().set_len(100).unwrap());
    expect(s, 0o777);
}

fn open_with_truncate_clears(s: &Fixture) {
    let path = dangerous(s);
    stranger().run(|| drop(File::options().write(true).truncate(true).open(&path).unwrap()));
    expect(s, 0o777);
    assert_eq!(fs::metadata(&path).unwrap().len(), 0);
}

fn fallocate_clears(s: &Fixture) {
    let path = dangerous(s);
    stranger().run(|| {
        let f = File::options().write(true).open(&path).unwrap();
        fallocate(&f, rustix::fs::FallocateFlags::empty(), 0, 1 << 20).unwrap();
    });
    expect(s, 0o777);
}

fn copy_file_range_clears(s: &Fixture) {
    let path = dangerous(s);
    fs::write(s.path("from"), vec![2; 8192]).unwrap();
    fs::set_permissions(s.path("from"), Permissions::from_mode(0o644)).unwrap();
    stranger().run(|| {
        let (from, to) =
            (File::open(s.path("from")).unwrap(), File::options().write(true).open(&path).unwrap());
        rustix::fs::copy_file_range(&from, None, &to, None, 8192).unwrap();
    });
    expect(s, 0o777);
}

fn chown_by_the_owner_clears(s: &Fixture) {
    let path = dangerous(s);
    chown(&path, Some(1001), Some(1001)).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o6777)).unwrap();
    User::new(1001).groups(&[1005]).run(|| chown(&path, None, Some(1005)).unwrap());
    expect(s, 0o777);
}

fn chown_by_root_clears(s: &Fixture) {
    let path = dangerous(s);
    chown(&path, Some(1001), Some(1001)).unwrap();
    expect(s, 0o777);
}

/// Setgid without group execute means mandatory locking, not a privilege, for a member of the group.
fn setgid_without_execute_stays_for_members(s: &Fixture) {
    let path = dangerous(s);
    let open = |options: &mut fs::OpenOptions| options.open(&path).unwrap();
    let changes: [&(dyn Fn() + Sync); 5] = [
        &|| open(File::options().write(true)).write_all(b"x").unwrap(),
        &|| open(File::options().append(true)).write_all(b"x").unwrap(),
        &|| open(File::options().write(true)).set_len(100).unwrap(),
        &|| drop(open(File::options().write(true).truncate(true))),
        &|| {
            fallocate(open(File::options().write(true)), rustix::fs::FallocateFlags::empty(), 0, 4096)
                .unwrap()
        },
    ];
    let (by_group, by_list) = (User::new(1001).gid(1005), User::new(1001).groups(&[1005, 1006]));
    for (who, stays) in [(by_group, true), (by_list, true), (User::new(1001), false)] {
        for change in &changes {
            chown(&path, Some(1001), Some(1005)).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(0o6767)).unwrap();
            who.run(change);
            expect(s, if stays { 0o2767 } else { 0o767 });
        }
    }
}

fn reading_clears_nothing(s: &Fixture) {
    let path = dangerous(s);
    stranger().run(|| {
        fs::read(&path).unwrap();
        drop(File::options().read(true).write(true).open(&path).unwrap());
    });
    expect(s, 0o6777);
}

fn with_capability(s: &Fixture) -> PathBuf {
    let path = dangerous(s);
    fs::set_permissions(&path, Permissions::from_mode(0o777)).unwrap();
    setxattr(&path, "security.capability", NET_RAW, XattrFlags::empty()).unwrap();
    assert!(capable(s.path("f")) && capable(s.lower("f")));
    path
}

fn capable(path: PathBuf) -> bool {
    getxattr(path, "security.capability", &mut [0u8; 64]).is_ok()
}

#[track_caller]
fn expect_no_capability(s: &Fixture) {
    assert_eq!((capable(s.lower("f")), capable(s.path("f"))), (false, false), "in the source, in the mirror");
}

/// Any write removes it, even root's: the capability was granted to the old content.
fn write_removes_a_capability(s: &Fixture) {
    let path = with_capability(s);
    stranger().run(|| File::options().write(true).open(&path).unwrap().write_all(b"x").unwrap());
    expect_no_capability(s);
    let path = with_capability(s);
    File::options().write(true).open(&path).unwrap().write_all(b"y").unwrap();
    expect_no_capability(s);
}

fn truncate_removes_a_capability(s: &Fixture) {
    let path = with_capability(s);
    stranger().run(|| File::options().write(true).open(&path).unwrap().set_len(1).unwrap());
    expect_no_capability(s);
    let path = with_capability(s);
    stranger().run(|| drop(File::options().write(true).truncate(true).open(&path).unwrap()));
    expect_no_capability(s);
}

fn chown_removes_a_capability(s: &Fixture) {
    let path = with_capability(s);
    chown(&path, Some(1001), None).unwrap();
    expect_no_capability(s);
}

fn mode_is_seen_at_once_by_others(s: &Fixture) {
    let path = dangerous(s);
    let mut peer = Peer::start(|link| {
        let mode = || fs::metadata(&path).unwrap().mode() & 0o7777;
        assert_eq!(mode(), 0o6777);
        link.send(1);
        link.receive();
        assert_eq!(mode(), 0o777);
    });
    peer.link().receive().expect("looked");
    stranger().run(|| File::options().write(true).open(&path).unwrap().write_all(b"x").unwrap());
    peer.link().send(1);
    peer.done();
}

fn a_privileged_write_keeps_the_bits(s: &Fixture) {
    let path = dangerous(s);
    File::options().write(true).open(&path).unwrap().write_all(b"x").unwrap();
    expect(s, 0o6777);
}

#[test]
fn many_writers_race_with_chmod() {
    fixture::perform(Plan::tmpfs(), |s| {
        let path = dangerous(s);
        for _ in 0..100 {
            fs::set_permissions(&path, Permissions::from_mode(0o6777)).unwrap();
            std::thread::scope(|scope| {
                for n in 0..3 {
                    let path = &path;
                    scope.spawn(move || {
                        stranger().run(|| {
                            File::options().write(true).open(path).unwrap().write_all_at(b"x", n).unwrap();
                        });
                    });
                }
            });
            expect(s, 0o777);
        }
    });
}
