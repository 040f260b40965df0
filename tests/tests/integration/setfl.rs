//! `fcntl(F_SETFL)` on an open file with passthrough: flags that are set or cleared take effect at once.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use shunt_test_support::{needs_mount, run};
use shunt_tests::sys::{Aligned, open_direct};
use shunt_tests::{Fixture, Volume};

shunt_tests::behaviours! { everywhere: flags_of_an_open_file, dd_past_the_cache, pages_of_an_appending_file }

fn flags_of_an_open_file(s: &Fixture) {
    append_comes_and_goes(s.mnt());
    direct_comes_and_goes(s.mnt());
}

fn dd_past_the_cache(s: &Fixture) {
    dd_writes_an_unaligned_tail(s.mnt());
}

fn pages_of_an_appending_file(s: &Fixture) {
    spliced_pages_do_not_stay(s.mnt());
}

#[test]
fn flags_of_an_open_file_of_a_volume() {
    needs_mount!();
    let volume = Volume::new();
    let mount = volume.mount(&[]);
    append_comes_and_goes(mount.at());
    direct_comes_and_goes(mount.at());
    dd_writes_an_unaligned_tail(mount.at());
    spliced_pages_do_not_stay(mount.at());
}

fn give(file: &File, flags: OFlags) {
    fcntl_setfl(file, fcntl_getfl(file).unwrap() | flags).unwrap();
}

fn take(file: &File, flags: OFlags) {
    fcntl_setfl(file, fcntl_getfl(file).unwrap() - flags).unwrap();
}

fn append_comes_and_goes(dir: &Path) {
    let path = dir.join("append");
    fs::write(&path, b"0123").unwrap();
    let first = File::options().read(true).append(true).open(&path).unwrap();
    // Beside a file with passthrough, opened before and after.
    let other = File::options().read(true).write(true).open(&path).unwrap();
    take(&first, OFlags::APPEND);
    first.write_all_at(b"A", 0).unwrap();
    give(&other, OFlags::APPEND);
    (&other).write_all(b"B").unwrap();
    give(&first, OFlags::APPEND);
    first.write_all_at(b"C", 0).unwrap();
    take(&other, OFlags::APPEND);
    other.write_all_at(b"D", 1).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"AD23BC");
    assert_eq!(first.metadata().unwrap().len(), 6);
    // A newly created file.
    let made = File::options().append(true).create_new(true).open(dir.join("made")).unwrap();
    (&made).write_all(b"0123").unwrap();
    take(&made, OFlags::APPEND);
    made.write_all_at(b"x", 0).unwrap();
    assert_eq!(fs::read(dir.join("made")).unwrap(), b"x123");
}

fn direct_comes_and_goes(dir: &Path) {
    let path = dir.join("direct");
    fs::write(&path, [b'0'; 8192]).unwrap();
    let other = File::options().read(true).write(true).open(&path).unwrap();
    let Ok(direct) = open_direct(&path) else { return };
    let mut block = Aligned::new(4096);
    block.fill(b'1');
    direct.write_all_at(&block, 4096).unwrap();
    take(&direct, OFlags::DIRECT);
    direct.write_all_at(b"23", 5).unwrap();
    let mut seen = [0; 3];
    direct.read_exact_at(&mut seen, 4095).unwrap();
    assert_eq!(&seen, b"011");
    give(&direct, OFlags::DIRECT);
    direct.read_exact_at(&mut block, 0).unwrap();
    assert_eq!(&block[4..8], b"0230");
    give(&other, OFlags::DIRECT);
    block.fill(b'4');
    other.write_all_at(&block, 4096).unwrap();
    take(&other, OFlags::DIRECT);
    other.write_all_at(b"5", 4097).unwrap();
    let all = fs::read(&path).unwrap();
    assert_eq!((all.len(), &all[4..8], &all[4095..4099]), (8192, &b"0230"[..], &b"0454"[..]));
}

/// `dd` clears O_DIRECT before the last, short block.
fn dd_writes_an_unaligned_tail(dir: &Path) {
    let (from, to) = (dir.join("from"), dir.join("to"));
    let content: Vec<u8> = (0..100_001u32).map(|n| (n % 251) as u8).collect();
    fs::write(&from, &content).unwrap();
    if open_direct(&from).is_err() {
        return;
    }
    let (from_arg, to_arg) = (format!("if={}", from.display()), format!("of={}", to.display()));
    for flag in ["oflag=direct", "iflag=direct", "oflag=append"] {
        fs::remove_file(&to).ok();
        run(Command::new("dd").args(["bs=8k", "status=none", flag]).args([&from_arg, &to_arg])).ok();
        assert!(fs::read(&to).unwrap() == content, "{flag}");
    }
}

/// `splice` reads a file without passthrough through the page cache of the mount, which other writes bypass.
fn spliced_pages_do_not_stay(dir: &Path) {
    let path = dir.join("spliced");
    fs::write(&path, [b'0'; 8192]).unwrap();
    let appending = File::options().read(true).append(true).open(&path).unwrap();
    let other = File::options().read(true).write(true).custom_flags(libc::O_CLOEXEC).open(&path).unwrap();
    for byte in [b'1', b'2', b'3'] {
        other.write_all_at(&[byte; 4096], 0).unwrap();
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let mut at = 0;
        let flags = rustix::pipe::SpliceFlags::empty();
        let moved = rustix::pipe::splice(&appending, Some(&mut at), &writer, None, 4096, flags).unwrap();
        let mut seen = vec![0; moved];
        assert_eq!(rustix::io::read(reader.as_fd(), &mut seen).unwrap(), moved);
        assert!(moved > 0 && seen.iter().all(|seen| *seen == byte), "{byte} and not {}", seen[0]);
        // The pages are dropped after the reply.
        std::thread::sleep(Duration::from_millis(100));
    }
}
