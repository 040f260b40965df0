//! Passthrough: all kinds of I/O, the kernel's rules for opens, and requests that are not sent.

use std::fs::{self, File};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};

use shunt_test_support::{needs_mount, needs_tools, requirement, run_for};
use shunt_tests::sys::{Aligned, Shared, open_direct};
use shunt_tests::{Fixture, Lower, Plan, Rng, fixture};

shunt_tests::behaviours! { everywhere:
    fio_libaio, fio_libaio_direct, fio_io_uring, fio_mmap, fio_sync, opens_of_every_kind_at_once,
    open_and_close_in_all_orders, reopened_after_rename_and_unlink, many_files_open_at_once, hard_links_share_one_mode,
}

fn fio(s: &Fixture, options: &[&str]) {
    needs_tools!("fio");
    let file = format!("--filename={}", s.path("fio").display());
    let common = ["--name=t", "--rw=randrw", "--bs=4k", "--size=8m", "--randrepeat=1", "--verify=crc32c"];
    let fatal = ["--verify_fatal=1", "--verify_state_save=0", "--do_verify=1", "--output-format=terse"];
    let ran = run_for(90, std::process::Command::new("fio").args(common).args(fatal).arg(file).args(options));
    assert!(ran.success() && !ran.err.contains("verify:"), "{ran:#?}");
    // The source contains the data that fio verified through the mirror.
    assert!(fs::read(s.path("fio")).unwrap() == fs::read(s.lower("fio")).unwrap());
}

fn fio_libaio(s: &Fixture) {
    fio(s, &["--ioengine=libaio", "--iodepth=32"]);
}

fn fio_libaio_direct(s: &Fixture) {
    if s.on() == Lower::Ext4 {
        fio(s, &["--ioengine=libaio", "--iodepth=32", "--direct=1", "--size=4m"]);
    }
}

fn fio_io_uring(s: &Fixture) {
    let off = fs::read_to_string("/proc/sys/kernel/io_uring_disabled").is_ok_and(|v| v.trim() == "2");
    requirement!(!off, "io_uring is disabled on this machine");
    fio(s, &["--ioengine=io_uring", "--iodepth=32"]);
}

fn fio_mmap(s: &Fixture) {
    fio(s, &["--ioengine=mmap", "--size=4m"]);
}

fn fio_sync(s: &Fixture) {
    fio(s, &["--ioengine=psync", "--size=4m", "--fsync_on_close=1", "--rw=randwrite"]);
}

fn opens_of_every_kind_at_once(s: &Fixture) {
    fs::write(s.path("f"), vec![0; 16384]).unwrap();
    let path = s.path("f");
    let read = File::open(&path).unwrap();
    let both = File::options().read(true).write(true).open(&path).unwrap();
    let direct = open_direct(&path).ok();
    let mut append = File::options().append(true).open(&path).unwrap();
    let sync = File::options().write(true).custom_flags(libc::O_SYNC).open(&path).unwrap();
    let write = File::options().write(true).open(&path).unwrap();
    let map = Shared::new(&both, 4096).unwrap();
    both.write_all_at(&[1; 4096], 0).unwrap();
    sync.write_all_at(&[2; 10], 0).unwrap();
    write.write_all_at(&[3; 10], 10).unwrap();
    append.write_all(b"end").unwrap();
    if let Some(direct) = &direct {
        let mut block = Aligned::new(4096);
        direct.read_exact_at(&mut block, 0).unwrap();
        assert_eq!((block[0], block[10], block[20]), (2, 3, 1));
        block.fill(4);
        direct.write_all_at(&block, 4096).unwrap();
        let mut seen = [0; 4096];
        read.read_exact_at(&mut seen, 4096).unwrap();
        assert!(seen.iter().all(|b| *b == 4));
    }
    assert_eq!((map[0], map[10], map[20]), (2, 3, 1));
    let mut all = Vec::new();
    (&read).read_to_end(&mut all).unwrap();
    assert_eq!((all.len(), &all[16384..]), (16387, &b"end"[..]));
    File::options().write(true).truncate(true).open(&path).unwrap();
    assert_eq!(read.metadata().unwrap().len(), 0);
}

fn open_and_close_in_all_orders(s: &Fixture) {
    fs::write(s.path("f"), b"0123456789").unwrap();
    let mut rng = Rng::new(11);
    let mut open: Vec<File> = Vec::new();
    for step in 0..3000 {
        if open.len() < 12 && rng.below(2) == 0 {
            let mut options = File::options();
            match rng.below(5) {
                0 => options.read(true),
                1 => options.read(true).write(true),
                2 => options.read(true).append(true),
                3 => options.read(true).write(true).custom_flags(libc::O_DIRECT),
                _ => options.read(true).write(true).custom_flags(libc::O_DSYNC),
            };
            open.push(
                options.open(s.path("f")).unwrap_or_else(|e| panic!("step {step}, {} open: {e}", open.len())),
            );
        } else if !open.is_empty() {
            let mut file = open.swap_remove(rng.below(open.len()));
            let mut block = Aligned::new(4096);
            file.rewind().unwrap();
            assert_eq!(file.read(&mut block).unwrap(), 10, "step {step}");
        }
    }
}

fn reopened_after_rename_and_unlink(s: &Fixture) {
    fs::write(s.path("a"), b"first").unwrap();
    let held = File::options().read(true).write(true).open(s.path("a")).unwrap();
    fs::rename(s.path("a"), s.path("b")).unwrap();
    let again = File::options().read(true).write(true).open(s.path("b")).unwrap();
    again.write_all_at(b"FIRST", 0).unwrap();
    let mut seen = [0; 5];
    held.read_exact_at(&mut seen, 0).unwrap();
    assert_eq!(&seen, b"FIRST");
    fs::remove_file(s.path("b")).unwrap();
    fs::write(s.path("b"), b"second").unwrap();
    held.write_all_at(b"third", 0).unwrap();
    assert_eq!(fs::read(s.path("b")).unwrap(), b"second");
}

fn many_files_open_at_once(s: &Fixture) {
    let mut files: Vec<File> = (0..500)
        .map(|n| {
            File::options().read(true).write(true).create_new(true).open(s.path(format!("{n}"))).unwrap()
        })
        .collect();
    for (n, file) in files.iter_mut().enumerate() {
        file.write_all(format!("file {n}").as_bytes()).unwrap();
    }
    for (n, file) in files.iter_mut().enumerate() {
        let mut text = String::new();
        file.rewind().unwrap();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, format!("file {n}"));
    }
}

fn hard_links_share_one_mode(s: &Fixture) {
    fs::write(s.path("a"), b"one").unwrap();
    fs::hard_link(s.path("a"), s.path("b")).unwrap();
    let (a, b) = (
        File::options().read(true).write(true).open(s.path("a")).unwrap(),
        File::options().read(true).write(true).open(s.path("b")).unwrap(),
    );
    a.write_all_at(b"two", 0).unwrap();
    let mut seen = [0; 3];
    b.read_exact_at(&mut seen, 0).unwrap();
    assert_eq!(&seen, b"two");
    // A hard link made in the source, without the mirror's knowledge, to a file that is open in the mount.
    fs::hard_link(s.lower("a"), s.lower("c")).unwrap();
    let mut c = File::options().read(true).write(true).open(s.path("c")).unwrap();
    let mut text = String::new();
    c.read_to_string(&mut text).unwrap();
    assert_eq!(text, "two");
}

/// Without the V2 contract the kernel requests `security.capability` before every write.
fn writes_ask_nothing(plan: Plan) {
    needs_mount!();
    fixture::perform(plan, |s| {
        requirement!(s.passthrough(), "passthrough is off: {:?}", s.entry());
        let f = File::create(s.path("f")).unwrap();
        f.write_all_at(&[1; 4096], 0).unwrap();
        let before = s.stat();
        for n in 0..10_000 {
            f.write_all_at(&[n as u8; 4096], (n % 256) * 4096).unwrap();
        }
        let after = s.stat();
        for name in ["getxattr", "write", "read", "getattr", "setattr"] {
            let count = |v: &serde_json::Value| v["requests"][name]["count"].as_u64().unwrap_or(0);
            let more = count(&after) - count(&before);
            assert_eq!(more, 0, "10,000 writes of 4 KiB sent {more} {name} requests");
        }
    });
}

#[test]
fn writes_ask_nothing_on_tmpfs() {
    writes_ask_nothing(Plan::tmpfs());
}

#[test]
fn writes_ask_nothing_on_ext4() {
    writes_ask_nothing(Plan::ext4());
}

#[test]
fn writes_through_the_daemon_ask_for_no_attribute() {
    needs_mount!();
    fixture::perform(Plan::daemon(), |s| {
        assert!(!s.passthrough());
        let f = File::create(s.path("f")).unwrap();
        // The kernel requests it once, and remembers that there is nothing to clear.
        f.write_all_at(&[1; 4096], 0).unwrap();
        let before = s.requests("getxattr");
        (0..10_000).for_each(|n| f.write_all_at(&[1; 4096], (n % 256) * 4096).unwrap());
        assert_eq!(s.requests("getxattr") - before, 0);
        assert!(s.requests("write") > 0);
    });
}

/// A close releases the backing file: none of 5,000 opens remains in the daemon.
#[test]
fn opens_leak_nothing() {
    needs_mount!();
    fixture::perform(Plan::tmpfs(), |s| {
        fs::write(s.path("f"), b"x").unwrap();
        let fds = || shunt_tests::mounts::open_files(s.pid());
        drop(File::open(s.path("f")).unwrap());
        let before = fds();
        for n in 0..5000 {
            fs::write(s.path(format!("g{}", n % 50)), b"y").unwrap();
            assert_eq!(fs::read(s.path("f")).unwrap(), b"x");
        }
        assert!(
            shunt_test_support::cmd::within(std::time::Duration::from_secs(2), || fds() <= before + 5),
            "{before} {}",
            fds()
        );
    });
}
