//! Tests with a mirror whose requests are answered in the kernel.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::common::{getxattr, module_is_here};
use super::mirror_cli::{TestMirror, as_user, eventually, listxattr, set, within};

pub const EXCLUSIVE: [&str; 4] = ["--cache", "exclusive", "--extension", "builtin"];
const UNCACHED_OPTIONS: [&str; 5] = ["--cache", "exclusive", "--extension", "builtin", "--no-kernel-cache"];
const COHERENT: [&str; 5] = ["--cache", "coherent", "--extension", "builtin", "--no-kernel-cache"];

/// The bound of `--cache coherent` is 100 ms; an emulator is slower, and much slower on a busy machine.
const INVALIDATION_TIMEOUT: Duration = Duration::from_secs(60);

fn length(path: &Path) -> Option<u64> {
    fs::symlink_metadata(path).ok().map(|found| found.len())
}

#[test]
fn repeated_requests_do_not_reach_the_daemon() {
    if !module_is_here() {
        return;
    }
    let mirror = TestMirror::new("/scratch", &UNCACHED_OPTIONS);
    fs::create_dir(mirror.path("dir")).unwrap();
    let (file, link) = (mirror.path("dir/file"), mirror.path("dir/link"));
    fs::write(&file, "four").unwrap();
    set(&file, "user.x", "value");
    std::os::unix::fs::symlink("file", &link).unwrap();
    let look = || {
        assert_eq!(length(&file), Some(4));
        assert_eq!(length(&mirror.path("dir/absent")), None);
        assert_eq!(getxattr(&file, "user.x").unwrap(), b"value");
        assert!(getxattr(&file, "user.y").is_err());
        assert_eq!(fs::read_link(&link).unwrap(), Path::new("file"));
    };
    // Nothing is stored until the daemon has seen the writer's release.
    assert!(eventually(|| {
        look();
        mirror.counts(&["lookup", "getattr", "statx", "getxattr"], look).0 == 0
    }));
    for operation in ["lookup", "statx", "getxattr"] {
        let (asked, answered) = mirror.counts(&[operation], || (0..100).for_each(|_| look()));
        assert_eq!(asked, 0, "{operation}");
        assert!(answered >= 100, "{operation}: {answered}");
    }
    let table = Command::new("shunt").arg("stat").arg(mirror.path("")).output().unwrap();
    let table = String::from_utf8(table.stdout).unwrap();
    assert!(table.contains("extension") && table.contains("answered"), "{table}");
    println!("{}", table.lines().find(|line| line.starts_with("extension")).unwrap());
}

/// All fields that `statx(2)` returns, and the time of birth, which no other request has.
#[test]
fn statx_in_the_kernel_equals_that_of_the_source() {
    use rustix::fs::{AtFlags, CWD, FileType, Mode, StatxFlags, makedev, mknodat, statx};

    if !module_is_here() {
        return;
    }
    let mirror = TestMirror::new("/scratch", &UNCACHED_OPTIONS);
    fs::write(mirror.source("file"), "text").unwrap();
    fs::create_dir(mirror.source("dir")).unwrap();
    let device = makedev(300, 70_000);
    mknodat(CWD, mirror.source("device"), FileType::CharacterDevice, Mode::from_raw_mode(0o640), device)
        .unwrap();
    for name in ["file", "dir", "device"] {
        let look = |path: &Path| {
            let mask = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
            let found = statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, mask).unwrap();
            assert_ne!(found.stx_mask & StatxFlags::BTIME.bits(), 0, "{name}");
            let time = |time: rustix::fs::StatxTimestamp| (time.tv_sec, time.tv_nsec);
            let times = [found.stx_atime, found.stx_btime, found.stx_ctime, found.stx_mtime].map(time);
            let numbers = (found.stx_mode, found.stx_nlink, found.stx_uid, found.stx_gid, found.stx_blksize);
            let device = (found.stx_rdev_major, found.stx_rdev_minor);
            (times, numbers, device, found.stx_ino, found.stx_size, found.stx_blocks)
        };
        let expected = look(&mirror.source(name));
        let path = mirror.path(name);
        assert_eq!(look(&path), expected, "{name}, by the daemon");
        let (asked, answered) =
            mirror.counts(&["statx"], || (0..10).for_each(|_| assert_eq!(look(&path), expected, "{name}")));
        assert!(asked == 0 && answered == 10, "{name}: {asked} {answered}");
    }
}

#[test]
fn names_of_attributes_are_not_asked_again_until_one_comes_or_goes() {
    if !module_is_here() {
        return;
    }
    for arguments in [&EXCLUSIVE[..], &UNCACHED_OPTIONS] {
        let mirror = TestMirror::new("/scratch", arguments);
        let (file, bare) = (mirror.path("file"), mirror.path("bare"));
        for path in [&file, &bare] {
            fs::write(path, "").unwrap();
        }
        set(&file, "user.a", "1");
        set(&file, "trusted.b", "2");
        let is = |path: &Path, names: &[&str]| {
            let mut list = listxattr(path);
            list.sort();
            assert_eq!(list, names, "{arguments:?}");
        };
        let look = || {
            is(&file, &["trusted.b", "user.a"]);
            is(&bare, &[]);
            // Other users do not see root's attributes.
            as_user(1000, || is(&file, &["user.a"]));
        };
        assert!(eventually(|| {
            look();
            mirror.counts(&["listxattr"], look).0 == 0
        }));
        let (asked, answered) = mirror.counts(&["listxattr"], || (0..100).for_each(|_| look()));
        assert!(asked == 0 && answered >= 300, "{asked} {answered}");
        println!("listxattr: {asked} requests to the daemon, {answered} answers in the kernel");
        for round in 0..20 {
            let name = format!("user.n{round}");
            look();
            set(&bare, &name, "");
            is(&bare, &[&name]);
            as_user(1000, || is(&bare, &[&name]));
            rustix::fs::removexattr(&bare, name.as_str()).unwrap();
            look();
            rustix::fs::removexattr(&file, "user.a").unwrap();
            is(&file, &["trusted.b"]);
            as_user(1000, || is(&file, &[]));
            set(&file, "user.a", "1");
        }
    }
}

#[test]
fn a_listing_fills_the_tables() {
    if !module_is_here() {
        return;
    }
    let mirror = TestMirror::new("/scratch", &UNCACHED_OPTIONS);
    let names: Vec<String> = (0..200).map(|n| format!("file{n}")).collect();
    names.iter().for_each(|name| fs::write(mirror.source(name), name).unwrap());
    assert_eq!(fs::read_dir(mirror.path("")).unwrap().count(), names.len());
    let (asked, answered) = mirror.counts(&["lookup", "getattr"], || {
        for name in &names {
            assert_eq!(length(&mirror.path(name)), Some(name.len() as u64));
        }
    });
    println!("200 names after a listing: {asked} requests to the daemon, {answered} answers in the kernel");
    assert!(asked <= 20 && answered >= 180, "{asked} {answered}");
}

#[test]
fn changes_through_the_mount_are_seen_at_once() {
    if !module_is_here() {
        return;
    }
    for arguments in [&EXCLUSIVE[..], &UNCACHED_OPTIONS, &COHERENT] {
        let mirror = TestMirror::new("/scratch", arguments);
        let (file, other) = (mirror.path("file"), mirror.path("other"));
        fs::write(&file, "").unwrap();
        for round in 1..40u64 {
            let mut open = File::options().append(true).open(&file).unwrap();
            assert_eq!(length(&file), Some(round - 1));
            open.write_all(b"x").unwrap();
            assert_eq!(length(&file), Some(round));
            drop(open);
            assert_eq!(length(&file), Some(round));
            assert_eq!(fs::read(&file).unwrap().len() as u64, round);
            let mode = 0o600 + (round % 8) as u32;
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(fs::metadata(&file).unwrap().mode() & 0o7777, mode);
            let value = format!("{round}");
            set(&file, "user.x", &value);
            assert_eq!(getxattr(&file, "user.x").unwrap(), value.as_bytes());
            assert_eq!(length(&other), None);
            fs::hard_link(&file, &other).unwrap();
            assert_eq!(fs::metadata(&file).unwrap().nlink(), 2);
            fs::remove_file(&other).unwrap();
            assert_eq!((length(&other), fs::metadata(&file).unwrap().nlink()), (None, 1));
            fs::rename(&file, &other).unwrap();
            assert_eq!((length(&file), length(&other)), (None, Some(round)));
            std::os::unix::fs::symlink(format!("to{round}"), &file).unwrap();
            assert_eq!(fs::read_link(&file).unwrap(), Path::new(&format!("to{round}")));
            fs::rename(&other, &file).unwrap();
            assert_eq!((length(&file), length(&other)), (Some(round), None));
        }
    }
}

/// A write removes the capabilities of a program, though it bypasses the daemon.
#[test]
fn a_write_past_the_daemon_takes_capabilities() {
    if !module_is_here() {
        return;
    }
    let mirror = TestMirror::new("/dev/shm", &EXCLUSIVE);
    let file = mirror.path("program");
    // CAP_NET_RAW, permitted.
    let capability = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    for _ in 0..10 {
        fs::write(&file, "program").unwrap();
        rustix::fs::setxattr(&file, "security.capability", &capability, rustix::fs::XattrFlags::empty())
            .unwrap();
        assert_eq!(getxattr(&file, "security.capability").unwrap().len(), 20);
        assert_eq!(getxattr(&file, "security.capability").unwrap().len(), 20);
        let open = File::options().write(true).open(&file).unwrap();
        assert_eq!(getxattr(&file, "security.capability").unwrap().len(), 20);
        open.write_all_at(b"virus", 0).unwrap();
        assert!(getxattr(&file, "security.capability").is_err());
        drop(open);
        assert!(getxattr(&file, "security.capability").is_err());
    }
}

#[test]
fn changes_in_the_source_are_seen_soon() {
    if !module_is_here() {
        return;
    }
    let mirror = TestMirror::new("/scratch", &COHERENT);
    assert!(mirror.log().contains("coherent by fanotify"), "{}", mirror.log());
    let (below, above) = (mirror.source("file"), mirror.path("file"));
    let (new_below, new_above) = (mirror.source("new"), mirror.path("new"));
    fs::write(&below, "").unwrap();
    let warm = || {
        for _ in 0..3 {
            length(&above);
            length(&new_above);
            getxattr(&above, "user.x").ok();
            fs::read(&above).ok();
            fs::read_link(&new_above).ok();
        }
    };
    let soon = |what: &dyn Fn() -> bool| assert!(within(INVALIDATION_TIMEOUT, what), "not seen in time");
    for round in 1..15u64 {
        warm();
        let value = format!("{round}");
        set(&below, "user.x", &value);
        soon(&|| getxattr(&above, "user.x").is_ok_and(|found| found == value.as_bytes()));
        warm();
        File::options().append(true).open(&below).unwrap().write_all(b"x").unwrap();
        soon(&|| length(&above) == Some(round));
        assert_eq!(fs::read(&above).unwrap().len() as u64, round);
        // Absent, then present; another file under a known name; absent again.
        std::os::unix::fs::symlink(&value, &new_below).unwrap();
        soon(&|| fs::read_link(&new_above).is_ok_and(|target| target == Path::new(&value)));
        warm();
        fs::remove_file(&new_below).unwrap();
        soon(&|| length(&new_above).is_none());
        fs::write(&new_below, "a".repeat(round as usize)).unwrap();
        fs::rename(&new_below, &below).unwrap();
        soon(&|| fs::read(&above).is_ok_and(|found| found == "a".repeat(round as usize).as_bytes()));
        assert!(getxattr(&above, "user.x").is_err());
    }
    // Without changes, the program answers here too.
    let mut counts = (0, 0);
    assert!(
        eventually(|| {
            warm();
            counts = mirror.counts(&["getxattr"], || {
                (0..100).for_each(|_| assert!(getxattr(&above, "user.x").is_err()));
            });
            counts == (0, 100)
        }),
        "{counts:?}"
    );
}

/// Reads the whole file through a new open.
fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

#[test]
fn known_files_are_opened_without_the_daemon() {
    if !module_is_here() {
        return;
    }
    for arguments in [&EXCLUSIVE[..], &COHERENT] {
        let mirror = TestMirror::new("/scratch", arguments);
        let path = mirror.path("file");
        fs::write(mirror.source("file"), "first").unwrap();
        assert_eq!((read(&path), read(&path)), ("first".into(), "first".into()));
        let operations = ["open", "release", "flush", "read"];
        // In coherent mode, the event of the write in the source ends the first opens at some moment.
        assert!(eventually(|| {
            let (asked, answered) =
                mirror.counts(&operations, || (0..100).for_each(|_| assert_eq!(read(&path), "first")));
            asked == 0 && answered >= 200 && mirror.stat()["extension"]["files"] == 1
        }));

        // An open by the program in addition to an open by the daemon: they share a backing file.
        let mut known = File::open(&path).unwrap();
        let writer = File::options().read(true).write(true).open(&path).unwrap();
        writer.write_all_at(b"1", 0).unwrap();
        assert_eq!(read(&path), "1irst");
        writer.set_len(3).unwrap();
        assert_eq!(known.metadata().unwrap().len(), 3);
        assert_eq!(read(&path), "1ir");
        // Operations that need a handle.
        known.sync_all().unwrap();
        let fd = std::os::fd::AsFd::as_fd(&known);
        assert_eq!(rustix::fs::seek(fd, rustix::fs::SeekFrom::Hole(0)).unwrap(), 3);
        known.seek(SeekFrom::Start(0)).unwrap();
        let copy = File::create(mirror.path("copy")).unwrap();
        assert_eq!(rustix::fs::copy_file_range(&known, None, &copy, None, 3).unwrap(), 3);
        assert_eq!(read(&mirror.path("copy")), "1ir");
        let mut text = String::new();
        known.seek(SeekFrom::Start(0)).unwrap();
        known.read_to_string(&mut text).unwrap();
        assert_eq!(text, "1ir");
        drop(writer);

        // Removed while open, the file stays readable; its space is freed with its last open.
        let lower = fs::metadata(mirror.source("file")).unwrap().ino();
        fs::remove_file(&path).unwrap();
        assert!(!path.exists() && !mirror.source("file").exists());
        known.seek(SeekFrom::Start(0)).unwrap();
        text.clear();
        known.read_to_string(&mut text).unwrap();
        assert_eq!(text, "1ir");
        drop(known);
        fs::remove_file(mirror.path("copy")).unwrap();
        assert!(eventually(|| mirror.stat()["extension"]["files"] == 0), "{}", mirror.stat());
        assert!(eventually(|| {
            fs::write(mirror.source("again"), "").unwrap();
            let reused = fs::metadata(mirror.source("again")).unwrap().ino() == lower;
            fs::remove_file(mirror.source("again")).unwrap();
            reused
        }));
    }
}

/// Opens race with removals: an open may fail only because the name is absent.
#[test]
fn opens_race_with_changes() {
    if !module_is_here() {
        return;
    }
    let mirror = TestMirror::new("/scratch", &EXCLUSIVE);
    let path = mirror.path("file");
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    match fs::read_to_string(&path) {
                        Ok(text) => assert!(text.is_empty() || text == "text", "{text:?}"),
                        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::NotFound),
                    }
                }
            });
        }
        for round in 0..super::common::rounds(100) {
            fs::write(&path, "text").unwrap();
            std::thread::sleep(Duration::from_millis(3));
            if round % 2 == 0 {
                fs::remove_file(&path).unwrap();
            } else {
                fs::write(mirror.path("new"), "text").unwrap();
                fs::rename(mirror.path("new"), &path).unwrap();
            }
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert_eq!(mirror.stat()["errors"]["open"], serde_json::Value::Null);
}

/// The daemon is killed repeatedly: the next one attaches a program of its own, and open files keep working.
#[test]
fn another_daemon_goes_on() {
    if !module_is_here() {
        return;
    }
    let mirror = TestMirror::new("/scratch", &UNCACHED_OPTIONS);
    let (path, other) = (mirror.path("file"), mirror.path("other"));
    let mut writer = File::create(&path).unwrap();
    fs::write(&other, "text").unwrap();
    set(&other, "user.x", "value");
    for round in 1..=super::common::rounds(3) as u64 {
        assert_eq!((length(&path), length(&other)), (Some(2 * round - 2), Some(4)));
        let pid = mirror.stat()["pid"].as_u64().unwrap();
        writer.write_all(b"x").unwrap();
        assert!(Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap().success());
        assert_eq!(length(&path), Some(2 * round - 1));
        assert!(eventually(|| {
            let stat = mirror.try_stat();
            stat.is_some_and(|stat| stat["pid"] != pid && stat["takeovers"] == round)
        }));
        assert_eq!(mirror.stat()["extension"]["attached"], true, "{}", mirror.log());
        // Still open for writing, and written bypassing the daemon: no stale attributes may be returned.
        assert_eq!(length(&path), Some(2 * round - 1));
        writer.write_all(b"x").unwrap();
        assert_eq!(length(&path), Some(2 * round));
        let look = || {
            assert_eq!(length(&other), Some(4));
            assert_eq!(getxattr(&other, "user.x").unwrap(), b"value");
        };
        look();
        let (asked, answered) = mirror.counts(&["getxattr", "lookup"], || (0..50).for_each(|_| look()));
        assert!(asked == 0 && answered >= 100, "{asked} {answered}");
    }
}

#[test]
fn a_program_of_ones_own() {
    if !module_is_here() {
        return;
    }
    let mirror = TestMirror::new("/scratch", &["--extension", "/lab/example.bpf.o", "--no-kernel-cache"]);
    fs::write(mirror.path("file"), "text").unwrap();
    assert_eq!(read(&mirror.path("file")), "text");
    assert_eq!(mirror.stat()["extension"]["attached"], true);
    assert!(mirror.counts(&["open"], || drop(File::open(mirror.path("file")))).0 == 1);
}

/// If no program can be attached, one log line reports it, and the daemon answers.
#[test]
fn without_the_module_a_line_says_so() {
    if std::env::var_os("SHUNT_LAB").is_none() || Path::new("/sys/module/shunt_fuse_ext").exists() {
        return;
    }
    let mirror = TestMirror::new("/scratch", &EXCLUSIVE);
    let log = mirror.log();
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("extension")).collect();
    assert_eq!(lines.len(), 1, "{log}");
    assert!(
        lines[0].ends_with("no extension in the kernel: the module shunt_fuse_ext is not loaded"),
        "{log}"
    );
    assert!(!log.contains("libbpf"), "{log}");
    fs::write(mirror.path("file"), "text").unwrap();
    assert_eq!(read(&mirror.path("file")), "text");
    let stat = mirror.stat();
    assert_eq!(stat["extension"]["attached"], false);
    assert_eq!(stat["extension"]["reason"], "the module shunt_fuse_ext is not loaded");
    println!("{}", lines[0]);
}
