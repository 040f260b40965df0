//! File data: sizes, holes, ranges, copies, and all calls that transfer data.

use std::fs::{self, File};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};

use rustix::fs::{
    AtFlags, CWD, FallocateFlags, Mode, OFlags, copy_file_range, fallocate, linkat, open, seek,
};
use rustix::io::Errno;
use shunt_test_support::copy_program;
use shunt_tests::{Fixture, Lower, Rng};

shunt_tests::behaviours! { everywhere:
    holes_are_found, fallocate_reserves, fallocate_punches, fallocate_moves_ranges, copies_between_files,
    tmpfile_gets_a_name, big_reads_and_writes, reads_past_the_end, sparse_terabyte,
    execute_from_the_mount, sync_calls, sendfile_and_splice, vectored_and_positioned,
    random_ops_agree_with_a_model, a_running_program_keeps_its_text,
}

fn rw(s: &Fixture, name: &str) -> File {
    File::options().read(true).write(true).create(true).truncate(false).open(s.path(name)).unwrap()
}

fn holes_are_found(s: &Fixture) {
    let f = rw(s, "f");
    f.write_all_at(&[1; 65536], 1 << 20).unwrap();
    f.set_len(4 << 20).unwrap();
    f.sync_all().unwrap();
    use rustix::fs::SeekFrom::{Data, Hole};
    assert_eq!(seek(&f, Data(0)), Ok(1 << 20));
    assert_eq!(seek(&f, Hole(0)), Ok(0));
    assert_eq!(seek(&f, Hole(1 << 20)), Ok((1 << 20) + 65536));
    assert_eq!(seek(&f, Data(2 << 20)), Err(Errno::NXIO));
    assert_eq!(seek(&f, Hole(5 << 20)), Err(Errno::NXIO));
    let m = f.metadata().unwrap();
    assert!(m.blocks() * 512 < 1 << 20, "{} blocks: the hole was filled", m.blocks());
    assert_eq!(m.blocks(), fs::metadata(s.lower("f")).unwrap().blocks());
}

/// Truncating a running program fails without an effect.
fn a_running_program_keeps_its_text(s: &Fixture) {
    let program = s.path("program");
    copy_program("/bin/sleep", &program);
    let size = fs::metadata(&program).unwrap().len();
    let mut child = std::process::Command::new(&program).arg("60").spawn().unwrap();
    let opened = [OFlags::RDONLY, OFlags::WRONLY, OFlags::RDWR]
        .map(|mode| open(&program, mode | OFlags::TRUNC, Mode::empty()).map(drop));
    let after = (fs::metadata(&program).unwrap().len(), fs::metadata(s.lower("program")).unwrap().len());
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(opened, [Err(Errno::TXTBSY); 3]);
    assert_eq!(after, (size, size));
}

fn fallocate_reserves(s: &Fixture) {
    let f = rw(s, "f");
    fallocate(&f, FallocateFlags::empty(), 0, 1 << 20).unwrap();
    let m = f.metadata().unwrap();
    assert_eq!(m.len(), 1 << 20);
    assert!(m.blocks() * 512 >= 1 << 20);
    fallocate(&f, FallocateFlags::KEEP_SIZE, 0, 2 << 20).unwrap();
    assert_eq!(f.metadata().unwrap().len(), 1 << 20);
    assert_eq!(fs::metadata(s.lower("f")).unwrap().len(), 1 << 20);
    let r = File::open(s.path("f")).unwrap();
    assert_eq!(fallocate(&r, FallocateFlags::empty(), 0, 4096), Err(Errno::BADF));
}

fn fallocate_punches(s: &Fixture) {
    let f = rw(s, "f");
    f.write_all_at(&[7; 65536], 0).unwrap();
    fallocate(&f, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 4096, 8192).unwrap();
    let data = fs::read(s.path("f")).unwrap();
    assert!(data[..4096].iter().all(|b| *b == 7));
    assert!(data[4096..12288].iter().all(|b| *b == 0), "a reader sees what the hole replaced");
    assert!(data[12288..].iter().all(|b| *b == 7));
}

fn fallocate_moves_ranges(s: &Fixture) {
    let f = rw(s, "f");
    let block = |n: u8| vec![n; 4096];
    for n in 0..8 {
        f.write_all_at(&block(n), u64::from(n) * 4096).unwrap();
    }
    f.sync_all().unwrap();
    let at = |n: u64| {
        let mut byte = [0];
        f.read_exact_at(&mut byte, n * 4096).unwrap();
        byte[0]
    };
    let zero = FallocateFlags::ZERO_RANGE;
    if s.on() == Lower::Tmpfs {
        // tmpfs supports none of these. The mirror must return the same error, not something like EIO.
        let native = fallocate(File::options().write(true).open(s.lower("f")).unwrap(), zero, 4096, 4096);
        assert_eq!(fallocate(&f, zero, 4096, 4096), native);
        return;
    }
    fallocate(&f, zero, 4096, 4096).unwrap();
    assert_eq!((at(0), at(1), at(2)), (0, 0, 2));
    // FUSE supports hole punching and zeroing only: the kernel refuses the rest without a request.
    let collapse = fallocate(&f, FallocateFlags::COLLAPSE_RANGE, 2 * 4096, 4096);
    if s.mounted() {
        assert_eq!(collapse, Err(Errno::OPNOTSUPP));
        assert_eq!((at(2), at(3)), (2, 3));
    } else {
        assert_eq!((collapse, at(2)), (Ok(()), 3));
    }
}

fn copies_between_files(s: &Fixture) {
    let data = Rng::new(1).bytes(300_000);
    fs::write(s.path("a"), &data).unwrap();
    let (a, b) = (File::open(s.path("a")).unwrap(), rw(s, "b"));
    let (mut from, mut to, mut left) = (1000, 500, 250_000);
    while left > 0 {
        let n = copy_file_range(&a, Some(&mut from), &b, Some(&mut to), left).unwrap();
        assert!(n > 0);
        left -= n;
    }
    assert_eq!(fs::read(s.path("b")).unwrap()[500..], data[1000..251_000]);
    assert_eq!(b.metadata().unwrap().len(), 250_500);
    assert_eq!(fs::read(s.lower("b")).unwrap()[500..], data[1000..251_000]);
    fs::copy(s.path("a"), s.path("c")).unwrap();
    assert_eq!(fs::read(s.path("c")).unwrap(), data);
}

fn tmpfile_gets_a_name(s: &Fixture) {
    let flags = OFlags::TMPFILE | OFlags::RDWR;
    let fd = open(s.mnt(), flags, Mode::from_raw_mode(0o640)).unwrap();
    let mut f = File::from(fd);
    f.write_all(b"nameless").unwrap();
    assert_eq!(f.metadata().unwrap().nlink(), 0);
    assert_eq!(fs::read_dir(s.mnt()).unwrap().count(), 0);
    linkat(&f, "", CWD, s.path("named"), AtFlags::EMPTY_PATH).unwrap();
    assert_eq!(fs::read(s.path("named")).unwrap(), b"nameless");
    assert_eq!(fs::read(s.lower("named")).unwrap(), b"nameless");
    assert_eq!(f.metadata().unwrap().nlink(), 1);
    assert_eq!(fs::metadata(s.path("named")).unwrap().ino(), f.metadata().unwrap().ino());
    // O_EXCL: the file may never get a name.
    let fd = open(s.mnt(), flags | OFlags::EXCL, Mode::RUSR).unwrap();
    assert_eq!(linkat(&fd, "", CWD, s.path("never"), AtFlags::EMPTY_PATH), Err(Errno::NOENT));
}

fn big_reads_and_writes(s: &Fixture) {
    let data = Rng::new(2).bytes(5 << 20);
    let mut f = rw(s, "f");
    // Odd sizes and offsets, larger than one request.
    for part in data.chunks(1_234_567) {
        f.write_all(part).unwrap();
    }
    assert!(fs::read(s.path("f")).unwrap() == data);
    assert!(fs::read(s.lower("f")).unwrap() == data);
    let mut middle = vec![0; 3_000_001];
    f.read_exact_at(&mut middle, 999_999).unwrap();
    assert!(middle == data[999_999..999_999 + 3_000_001]);
}

fn reads_past_the_end(s: &Fixture) {
    let f = rw(s, "f");
    f.write_all_at(b"12345", 0).unwrap();
    let mut buffer = [0; 10];
    assert_eq!(f.read_at(&mut buffer, 0).unwrap(), 5);
    assert_eq!(f.read_at(&mut buffer, 5).unwrap(), 0);
    assert_eq!(f.read_at(&mut buffer, 5 << 30).unwrap(), 0);
    f.write_all_at(b"x", 9).unwrap();
    assert_eq!(f.read_at(&mut buffer, 0).unwrap(), 10);
    assert_eq!(&buffer, b"12345\0\0\0\0x");
}

fn sparse_terabyte(s: &Fixture) {
    let f = rw(s, "f");
    f.write_all_at(b"far", 1 << 40).unwrap();
    assert_eq!(f.metadata().unwrap().len(), (1 << 40) + 3);
    let mut seen = [9; 3];
    f.read_exact_at(&mut seen, 1 << 40).unwrap();
    assert_eq!(&seen, b"far");
    f.read_exact_at(&mut seen, 1 << 39).unwrap();
    assert_eq!(seen, [0; 3]);
    f.set_len(0).unwrap();
}

fn execute_from_the_mount(s: &Fixture) {
    copy_program("/bin/true", s.path("prog"));
    assert!(std::process::Command::new(s.path("prog")).status().unwrap().success());
    fs::write(s.aside().join("script"), "#!/bin/sh\nexit 7\n").unwrap();
    copy_program(s.aside().join("script"), s.path("script"));
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(s.path("script"), fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(std::process::Command::new(s.path("script")).status().unwrap().code(), Some(7));
    fs::set_permissions(s.path("script"), fs::Permissions::from_mode(0o644)).unwrap();
    let e = std::process::Command::new(s.path("script")).status().unwrap_err();
    assert_eq!(e.raw_os_error(), Some(libc::EACCES), "not even root runs what nobody may run");
}

fn sync_calls(s: &Fixture) {
    let mut f = rw(s, "f");
    f.write_all(b"x").unwrap();
    f.sync_all().unwrap();
    f.sync_data().unwrap();
    let d = File::open(s.mnt()).unwrap();
    d.sync_all().unwrap();
    rustix::fs::syncfs(&d).unwrap();
    File::options()
        .write(true)
        .custom_flags(libc::O_SYNC)
        .open(s.path("f"))
        .unwrap()
        .write_all(b"y")
        .unwrap();
    assert_eq!(fs::read(s.lower("f")).unwrap(), b"y");
}

fn sendfile_and_splice(s: &Fixture) {
    let data = Rng::new(3).bytes(200_000);
    fs::write(s.path("a"), &data).unwrap();
    let (a, b) = (File::open(s.path("a")).unwrap(), rw(s, "b"));
    let mut left = data.len();
    while left > 0 {
        left -= rustix::fs::sendfile(&b, &a, None, left).unwrap();
    }
    assert!(fs::read(s.lower("b")).unwrap() == data);
    let (mut from, to) = std::io::pipe().unwrap();
    let none = rustix::pipe::SpliceFlags::empty();
    let got = rustix::pipe::splice(&a, Some(&mut 1000), &to, None, 30_000, none).unwrap();
    drop(to);
    let mut seen = Vec::new();
    from.read_to_end(&mut seen).unwrap();
    assert!(got > 0 && seen == data[1000..1000 + got]);
}

fn vectored_and_positioned(s: &Fixture) {
    use rustix::io::{preadv, pwritev};
    let f = rw(s, "f");
    let parts =
        [std::io::IoSlice::new(b"one "), std::io::IoSlice::new(b"two "), std::io::IoSlice::new(b"three")];
    assert_eq!(pwritev(&f, &parts, 10).unwrap(), 13);
    let (mut a, mut b) = ([0; 6], [0; 7]);
    let mut into = [std::io::IoSliceMut::new(&mut a), std::io::IoSliceMut::new(&mut b)];
    assert_eq!(preadv(&f, &mut into, 10).unwrap(), 13);
    assert_eq!((&a, &b), (b"one tw", b"o three"));
    assert_eq!((&f).stream_position().unwrap(), 0);
}

fn random_ops_agree_with_a_model(s: &Fixture) {
    let mut rng = Rng::new(4);
    let mut model: Vec<u8> = Vec::new();
    let mut files = [rw(s, "f"), rw(s, "f"), rw(s, "f")];
    for step in 0..2000 {
        let f = rng.below(3);
        let at = rng.below(300_000);
        let len = 1 + rng.below(40_000);
        match rng.below(8) {
            0..=2 => {
                let data = vec![step as u8; len];
                files[f].write_all_at(&data, at as u64).unwrap();
                model.resize(model.len().max(at + len), 0);
                model[at..at + len].copy_from_slice(&data);
            }
            3..=5 => {
                let mut seen = vec![0; len];
                let got = files[f].read_at(&mut seen, at as u64).unwrap();
                let want = model.get(at..model.len().min(at + len)).unwrap_or(&[]);
                assert!(seen[..got] == *want, "step {step}: read of {len} at {at}");
            }
            6 => {
                files[f].set_len(at as u64).unwrap();
                model.resize(at, 0);
            }
            _ => files[f] = rw(s, "f"),
        }
        assert_eq!(files[f].metadata().unwrap().len(), model.len() as u64, "step {step}");
    }
    assert!(fs::read(s.lower("f")).unwrap() == model);
}
