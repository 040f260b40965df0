//! Timestamps: nanoseconds, birth times, and the permission to set them.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, StatxFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, statx, utimensat};
use shunt_test_support::User;
use shunt_tests::{Fixture, Plan};

shunt_tests::behaviours! { everywhere:
    nanoseconds_are_kept, omit_and_now, birth_time, symlinks_own_times, writes_move_mtime_and_ctime,
    metadata_moves_ctime_only, directories_change_with_their_entries, times_before_1970_and_after_2038,
    only_the_owner_sets_times,
}

fn set(path: &Path, atime: (i64, i64), mtime: (i64, i64), flags: AtFlags) -> rustix::io::Result<()> {
    let time = |(tv_sec, tv_nsec)| Timespec { tv_sec, tv_nsec };
    utimensat(CWD, path, &Timestamps { last_access: time(atime), last_modification: time(mtime) }, flags)
}

fn times(path: &Path) -> ((i64, i64), (i64, i64)) {
    let m = fs::symlink_metadata(path).unwrap();
    ((m.atime(), m.atime_nsec()), (m.mtime(), m.mtime_nsec()))
}

fn nanoseconds_are_kept(s: &Fixture) {
    fs::write(s.path("f"), b"").unwrap();
    let (a, m) = ((1_600_000_000, 123_456_789), (1_500_000_000, 987_654_321));
    set(&s.path("f"), a, m, AtFlags::empty()).unwrap();
    assert_eq!(times(&s.path("f")), (a, m));
    assert_eq!(times(&s.lower("f")), (a, m));
    fs::create_dir(s.path("d")).unwrap();
    set(&s.path("d"), a, m, AtFlags::empty()).unwrap();
    assert_eq!(times(&s.path("d")), (a, m));
    let f = File::options().write(true).open(s.path("f")).unwrap();
    let time = |(tv_sec, tv_nsec)| Timespec { tv_sec, tv_nsec };
    rustix::fs::futimens(&f, &Timestamps { last_access: time((7, 8)), last_modification: time((9, 10)) })
        .unwrap();
    assert_eq!(times(&s.path("f")), ((7, 8), (9, 10)));
}

fn omit_and_now(s: &Fixture) {
    fs::write(s.path("f"), b"").unwrap();
    set(&s.path("f"), (100, 1), (200, 2), AtFlags::empty()).unwrap();
    set(&s.path("f"), (0, UTIME_OMIT), (300, 3), AtFlags::empty()).unwrap();
    assert_eq!(times(&s.path("f")), ((100, 1), (300, 3)));
    set(&s.path("f"), (400, 4), (0, UTIME_OMIT), AtFlags::empty()).unwrap();
    assert_eq!(times(&s.path("f")), ((400, 4), (300, 3)));
    set(&s.path("f"), (0, UTIME_NOW), (0, UTIME_OMIT), AtFlags::empty()).unwrap();
    let ((atime, _), mtime) = times(&s.path("f"));
    assert!(atime > 1_700_000_000);
    assert_eq!(mtime, (300, 3));
    set(&s.path("f"), (0, UTIME_OMIT), (0, UTIME_OMIT), AtFlags::empty()).unwrap();
    assert_eq!(times(&s.path("f")).1, (300, 3));
}

fn birth_time(s: &Fixture) {
    fs::write(s.path("f"), b"").unwrap();
    set(&s.path("f"), (100, 1), (200, 2), AtFlags::empty()).unwrap();
    let ask =
        |p: &Path| statx(CWD, p, AtFlags::empty(), StatxFlags::BASIC_STATS | StatxFlags::BTIME).unwrap();
    let (m, l) = (ask(&s.path("f")), ask(&s.lower("f")));
    assert!(m.stx_mask & StatxFlags::BTIME.bits() != 0, "no birth time");
    assert_eq!((m.stx_btime.tv_sec, m.stx_btime.tv_nsec), (l.stx_btime.tv_sec, l.stx_btime.tv_nsec));
    assert!(m.stx_btime.tv_sec > 1_700_000_000);
}

fn symlinks_own_times(s: &Fixture) {
    fs::write(s.path("f"), b"").unwrap();
    symlink("f", s.path("l")).unwrap();
    let before = times(&s.path("f"));
    set(&s.path("l"), (5, 6), (7, 8), AtFlags::SYMLINK_NOFOLLOW).unwrap();
    assert_eq!(times(&s.path("l")).1, (7, 8));
    assert_eq!(times(&s.lower("l")).1, (7, 8));
    assert_eq!(times(&s.path("f")), before);
}

fn writes_move_mtime_and_ctime(s: &Fixture) {
    fs::write(s.path("f"), b"x").unwrap();
    set(&s.path("f"), (100, 1), (200, 2), AtFlags::empty()).unwrap();
    let ctime = fs::metadata(s.path("f")).unwrap().ctime_nsec();
    std::thread::sleep(Duration::from_millis(30));
    fs::write(s.path("f"), b"yy").unwrap();
    let m = fs::metadata(s.path("f")).unwrap();
    assert!(m.mtime() > 1_700_000_000);
    assert_ne!(m.ctime_nsec(), ctime);
    let l = fs::metadata(s.lower("f")).unwrap();
    assert_eq!((m.mtime(), m.mtime_nsec(), m.ctime_nsec()), (l.mtime(), l.mtime_nsec(), l.ctime_nsec()));
    // Again while the file is open: fstat must return the new time, not a cached one.
    let f = File::options().write(true).open(s.path("f")).unwrap();
    let before = f.metadata().unwrap().mtime_nsec();
    std::thread::sleep(Duration::from_millis(30));
    rustix::io::write(&f, b"zzz").unwrap();
    assert_ne!(f.metadata().unwrap().mtime_nsec(), before);
}

fn metadata_moves_ctime_only(s: &Fixture) {
    use std::os::unix::fs::PermissionsExt as _;
    fs::write(s.path("f"), b"x").unwrap();
    let before = fs::metadata(s.path("f")).unwrap();
    std::thread::sleep(Duration::from_millis(30));
    fs::set_permissions(s.path("f"), fs::Permissions::from_mode(0o600)).unwrap();
    let after = fs::metadata(s.path("f")).unwrap();
    assert_eq!((before.mtime(), before.mtime_nsec()), (after.mtime(), after.mtime_nsec()));
    assert_ne!(before.ctime_nsec(), after.ctime_nsec());
    std::thread::sleep(Duration::from_millis(30));
    fs::hard_link(s.path("f"), s.path("g")).unwrap();
    let linked = fs::metadata(s.path("f")).unwrap();
    assert_ne!(linked.ctime_nsec(), after.ctime_nsec());
    std::thread::sleep(Duration::from_millis(30));
    fs::remove_file(s.path("g")).unwrap();
    assert_ne!(fs::metadata(s.path("f")).unwrap().ctime_nsec(), linked.ctime_nsec());
}

fn directories_change_with_their_entries(s: &Fixture) {
    fs::create_dir(s.path("d")).unwrap();
    let mtime = || {
        let m = fs::metadata(s.path("d")).unwrap();
        (m.mtime(), m.mtime_nsec())
    };
    let mut last = mtime();
    let mut moved = |what: &str, act: &dyn Fn()| {
        std::thread::sleep(Duration::from_millis(30));
        act();
        let now = mtime();
        assert!(now > last, "{what}: {now:?} after {last:?}");
        last = now;
    };
    moved("create", &|| fs::write(s.path("d/a"), b"").unwrap());
    moved("mkdir", &|| fs::create_dir(s.path("d/e")).unwrap());
    moved("symlink", &|| symlink("x", s.path("d/s")).unwrap());
    moved("link", &|| fs::hard_link(s.path("d/a"), s.path("d/b")).unwrap());
    moved("rename", &|| fs::rename(s.path("d/b"), s.path("d/c")).unwrap());
    moved("rename out", &|| fs::rename(s.path("d/c"), s.path("c")).unwrap());
    moved("unlink", &|| fs::remove_file(s.path("d/a")).unwrap());
    moved("rmdir", &|| fs::remove_dir(s.path("d/e")).unwrap());
}

fn times_before_1970_and_after_2038(s: &Fixture) {
    fs::write(s.path("f"), b"").unwrap();
    for seconds in [-1_000_000, 4_000_000_000] {
        set(&s.path("f"), (seconds, 5), (seconds, 6), AtFlags::empty()).unwrap();
        assert_eq!(times(&s.path("f")), ((seconds, 5), (seconds, 6)));
        assert_eq!(times(&s.lower("f")), ((seconds, 5), (seconds, 6)));
    }
}

fn only_the_owner_sets_times(s: &Fixture) {
    use std::os::unix::fs::{PermissionsExt as _, chown};
    fs::write(s.path("f"), b"").unwrap();
    chown(s.path("f"), Some(1001), Some(1001)).unwrap();
    fs::set_permissions(s.path("f"), fs::Permissions::from_mode(0o666)).unwrap();
    let path = s.path("f");
    User::new(1001).run(|| set(&path, (1, 2), (3, 4), AtFlags::empty()).unwrap());
    User::new(1002).run(|| {
        assert_eq!(set(&path, (5, 6), (7, 8), AtFlags::empty()), Err(rustix::io::Errno::PERM));
        // Any user with write permission may set the times to now, and only to that.
        set(&path, (0, UTIME_NOW), (0, UTIME_NOW), AtFlags::empty()).unwrap();
    });
    assert!(times(&path).1.0 > 1_700_000_000);
}

/// Reports whether two reads through a mirror with these options update the access time of a file and of a directory in the
/// source. The first read finds a time that relatime would update, the second one that it would not.
fn reads_are_noted(plan: Plan) -> [(bool, bool); 2] {
    let mut noted = [(false, false); 2];
    shunt_tests::fixture::perform(plan, |s| {
        fs::create_dir(s.lower("d")).unwrap();
        for (name, noted) in ["f", "d"].iter().zip(&mut noted) {
            if *name == "f" {
                fs::write(s.lower(name), b"content").unwrap();
            }
            let read = |from: (i64, i64)| {
                set(&s.lower(name), from, (1000, 0), AtFlags::empty()).unwrap();
                let before = times(&s.lower(name)).0;
                match *name {
                    "f" => assert_eq!(fs::read(s.path(name)).unwrap(), b"content"),
                    _ => assert_eq!(fs::read_dir(s.path(name)).unwrap().count(), 0),
                }
                times(&s.lower(name)).0 != before
            };
            let now = i64::try_from(std::time::UNIX_EPOCH.elapsed().unwrap().as_secs()).unwrap();
            // Older than the last change, and newer: only strictatime updates the latter.
            *noted = (read((500, 0)), read((now + 1000, 0)));
        }
    });
    noted
}

/// For passthrough files the kernel uses the options of the daemon's own mount of the source, not those of the FUSE mount.
#[test]
fn access_times_of_the_source_are_as_the_mount_says() {
    shunt_test_support::needs_mount!();
    shunt_test_support::requirement!(rustix::process::geteuid().is_root(), "needs root");
    for passthrough in ["auto", "off"] {
        let noted = |option| {
            let args = ["-o", option, "--passthrough", passthrough, "--cache", "none"];
            reads_are_noted(Plan::tmpfs().args(&args))
        };
        assert_eq!(noted("noatime"), [(false, false); 2], "{passthrough}");
        assert_eq!(noted("relatime"), [(true, false); 2], "{passthrough}");
        assert_eq!(noted("strictatime"), [(true, true); 2], "{passthrough}");
        assert_eq!(noted("strictatime,nodiratime"), [(true, true), (false, false)], "{passthrough}");
        // The options of the source's mount.
        assert_eq!(noted("rw"), [(true, false); 2], "{passthrough}");
    }
}
