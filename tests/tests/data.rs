//! File data: holes, sizes, mappings, direct I/O, and files that have lost their name.

use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};

use rustix::fs::{
    AtFlags, CWD, FallocateFlags, Mode, OFlags, copy_file_range, fallocate, linkat, open, seek,
};
use rustix::io::Errno;
use shunt_tests::sys::{Aligned, Shared, open_direct};
use shunt_tests::{Lower, Peer, Rng, Stage};

shunt_tests::behaviours! { everywhere:
    holes_are_found, fallocate_reserves, fallocate_punches, fallocate_moves_ranges, copies_between_files, tmpfile_gets_a_name,
    appends_from_four_processes, direct_io, direct_and_buffered_agree, mapping_and_files_agree, mapping_by_two_processes,
    unlinked_file_lives_on, rename_over_an_open_file, big_reads_and_writes, reads_past_the_end, sparse_terabyte,
    truncate_under_a_reader, execute_from_the_mount, sync_calls, sendfile_and_splice, vectored_and_positioned,
    file_offsets_are_shared_by_dup, random_ops_agree_with_a_model,
}
shunt_tests::behaviours! { on tmpfs as passed_through: source_and_mirror_share_pages }

fn rw(s: &Stage, name: &str) -> File {
    File::options().read(true).write(true).create(true).truncate(false).open(s.path(name)).unwrap()
}

fn holes_are_found(s: &Stage) {
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

fn fallocate_reserves(s: &Stage) {
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

fn fallocate_punches(s: &Stage) {
    let f = rw(s, "f");
    f.write_all_at(&[7; 65536], 0).unwrap();
    fallocate(&f, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 4096, 8192).unwrap();
    let data = fs::read(s.path("f")).unwrap();
    assert!(data[..4096].iter().all(|b| *b == 7));
    assert!(data[4096..12288].iter().all(|b| *b == 0), "a reader sees what the hole replaced");
    assert!(data[12288..].iter().all(|b| *b == 7));
}

fn fallocate_moves_ranges(s: &Stage) {
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
        // tmpfs knows none of these. Whoever stands between must say the same, not something like EIO.
        let native = fallocate(File::options().write(true).open(s.lower("f")).unwrap(), zero, 4096, 4096);
        assert_eq!(fallocate(&f, zero, 4096, 4096), native);
        return;
    }
    fallocate(&f, zero, 4096, 4096).unwrap();
    assert_eq!((at(0), at(1), at(2)), (0, 0, 2));
    // FUSE carries hole punching and zeroing only: the kernel refuses the rest before the server is asked.
    let collapse = fallocate(&f, FallocateFlags::COLLAPSE_RANGE, 2 * 4096, 4096);
    if s.mounted() {
        assert_eq!(collapse, Err(Errno::OPNOTSUPP));
        assert_eq!((at(2), at(3)), (2, 3));
    } else {
        assert_eq!((collapse, at(2)), (Ok(()), 3));
    }
}

fn copies_between_files(s: &Stage) {
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

fn tmpfile_gets_a_name(s: &Stage) {
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
    // O_EXCL: it may never have one.
    let fd = open(s.mnt(), flags | OFlags::EXCL, Mode::RUSR).unwrap();
    assert_eq!(linkat(&fd, "", CWD, s.path("never"), AtFlags::EMPTY_PATH), Err(Errno::NOENT));
}

fn appends_from_four_processes(s: &Stage) {
    const EACH: usize = 500;
    let path = s.path("log");
    File::create(&path).unwrap();
    let peers: Vec<_> = (0..4u8)
        .map(|n| {
            Peer::start(|_| {
                let mut f = File::options().append(true).open(&path).unwrap();
                for i in 0..EACH {
                    f.write_all(format!("{n} {i:06}\n").as_bytes()).unwrap();
                }
            })
        })
        .collect();
    peers.into_iter().for_each(Peer::done);
    let text = fs::read_to_string(&path).unwrap();
    assert_eq!(text.len(), 4 * EACH * 9, "records were overwritten");
    for n in 0..4 {
        let mine: Vec<_> = text.lines().filter_map(|l| l.strip_prefix(&format!("{n} "))).collect();
        assert_eq!(mine.len(), EACH);
        assert!(mine.is_sorted(), "process {n}'s records are out of order");
    }
}

fn direct_io(s: &Stage) {
    fs::write(s.path("f"), vec![3; 65536]).unwrap();
    let f = match open_direct(&s.path("f")) {
        Ok(f) => f,
        // An old tmpfs has no O_DIRECT; the mirror then may refuse it as well.
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) && open_direct(&s.lower("f")).is_err() => return,
        Err(e) => panic!("{e}"),
    };
    let mut block = Aligned::new(8192);
    block.fill(9);
    f.write_all_at(&block, 8192).unwrap();
    block.fill(0);
    f.read_exact_at(&mut block, 8192).unwrap();
    assert!(block.iter().all(|b| *b == 9));
    let all = fs::read(s.lower("f")).unwrap();
    assert!(all[8192..16384].iter().all(|b| *b == 9) && all[..8192].iter().all(|b| *b == 3));
    // At the end of the file: a short read, then none.
    assert_eq!(f.read_at(&mut block, 65536 - 4096).unwrap(), 4096);
    assert_eq!(f.read_at(&mut block, 65536).unwrap(), 0);
    f.write_all_at(&block, 65536).unwrap();
    assert_eq!(f.metadata().unwrap().len(), 65536 + 8192);
}

fn direct_and_buffered_agree(s: &Stage) {
    fs::write(s.path("f"), vec![1; 32768]).unwrap();
    let Ok(direct) = open_direct(&s.path("f")) else { return };
    let buffered = rw(s, "f");
    let mut block = Aligned::new(4096);
    for round in 0..50u8 {
        buffered.write_all_at(&[round; 4096], 4096).unwrap();
        direct.read_exact_at(&mut block, 4096).unwrap();
        assert!(block.iter().all(|b| *b == round), "direct read after a buffered write, round {round}");
        block.fill(round ^ 0xff);
        direct.write_all_at(&block, 4096).unwrap();
        let mut seen = [0; 4096];
        buffered.read_exact_at(&mut seen, 4096).unwrap();
        assert!(seen.iter().all(|b| *b == round ^ 0xff), "buffered read after a direct write, round {round}");
    }
}

fn mapping_and_files_agree(s: &Stage) {
    let f = rw(s, "f");
    f.set_len(16384).unwrap();
    let mut map = Shared::new(&f, 16384).unwrap();
    let other = rw(s, "f");
    other.write_all_at(b"by write", 5000).unwrap();
    assert_eq!(&map[5000..5008], b"by write");
    map[9000..9006].copy_from_slice(b"by map");
    let mut seen = [0; 6];
    other.read_exact_at(&mut seen, 9000).unwrap();
    assert_eq!(&seen, b"by map");
    map.sync().unwrap();
    assert_eq!(&fs::read(s.lower("f")).unwrap()[9000..9006], b"by map");
    // The file may be closed: the mapping holds on.
    drop((f, other));
    map[0] = 0x55;
    map.sync().unwrap();
    assert_eq!(fs::read(s.path("f")).unwrap()[0], 0x55);
    drop(map);
    assert_eq!(fs::read(s.lower("f")).unwrap()[0], 0x55);
}

fn mapping_by_two_processes(s: &Stage) {
    let path = s.path("f");
    let f = rw(s, "f");
    f.set_len(8192).unwrap();
    let mut map = Shared::new(&f, 8192).unwrap();
    let mut peer = Peer::start(|link| {
        let f = File::options().read(true).write(true).open(&path).unwrap();
        let mut map = Shared::new(&f, 8192).unwrap();
        link.say(1);
        link.hear().expect("the parent wrote");
        assert_eq!(map.peek(4100), 42);
        map[4101] = 43;
        link.say(2);
    });
    peer.link().hear().expect("mapped");
    map[4100] = 42;
    peer.link().say(1);
    peer.link().hear().expect("seen");
    assert_eq!(map.peek(4101), 43);
    peer.done();
}

/// While a file is passed through there is one page cache: the source's.
fn source_and_mirror_share_pages(s: &Stage) {
    let f = rw(s, "f");
    f.write_all_at(&[1; 8192], 0).unwrap();
    let lower = File::options().read(true).write(true).open(s.lower("f")).unwrap();
    let (map, mut under) = (Shared::new(&f, 8192).unwrap(), Shared::new(&lower, 8192).unwrap());
    under[100] = 77;
    assert_eq!(map.peek(100), 77);
    lower.write_all_at(b"below", 4096).unwrap();
    let mut seen = [0; 5];
    f.read_exact_at(&mut seen, 4096).unwrap();
    assert_eq!(&seen, b"below");
    f.write_all_at(b"above", 0).unwrap();
    assert_eq!(&under[..5], b"above");
}

fn unlinked_file_lives_on(s: &Stage) {
    let mut f = rw(s, "f");
    f.write_all(b"before").unwrap();
    fs::remove_file(s.path("f")).unwrap();
    assert!(!s.path("f").exists() && !s.lower("f").exists());
    f.write_all(b" after").unwrap();
    f.rewind().unwrap();
    let mut text = String::new();
    f.read_to_string(&mut text).unwrap();
    assert_eq!(text, "before after");
    let m = f.metadata().unwrap();
    assert_eq!((m.nlink(), m.len()), (0, 12));
    f.set_len(3).unwrap();
    assert_eq!(f.metadata().unwrap().len(), 3);
    use std::os::unix::fs::PermissionsExt as _;
    f.set_permissions(fs::Permissions::from_mode(0o604)).unwrap();
    assert_eq!(f.metadata().unwrap().mode() & 0o777, 0o604);
    f.sync_all().unwrap();
    // The name is free, and a new file of that name is another file.
    fs::write(s.path("f"), b"new").unwrap();
    assert_eq!(f.metadata().unwrap().len(), 3);
    let names: Vec<_> = fs::read_dir(s.src()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names, ["f"], "no leftovers of a hidden name");
    // Reached again through /proc, as programs do.
    use std::os::fd::AsRawFd as _;
    let again = File::open(format!("/proc/self/fd/{}", f.as_raw_fd())).unwrap();
    assert_eq!(again.metadata().unwrap().len(), 3);
    // A directory that is gone lists nothing.
    fs::create_dir(s.path("d")).unwrap();
    let d = File::open(s.path("d")).unwrap();
    fs::remove_dir(s.path("d")).unwrap();
    assert_eq!(d.metadata().unwrap().nlink(), 0);
    let made = rustix::fs::openat(&d, "x", OFlags::CREATE | OFlags::WRONLY, Mode::RWXU);
    assert_eq!(made.map(drop), Err(Errno::NOENT));
}

fn rename_over_an_open_file(s: &Stage) {
    fs::write(s.path("old"), b"old data").unwrap();
    let old = rw(s, "old");
    fs::write(s.path("new"), b"new").unwrap();
    let new = rw(s, "new");
    fs::rename(s.path("new"), s.path("old")).unwrap();
    let mut text = String::new();
    (&old).read_to_string(&mut text).unwrap();
    assert_eq!(text, "old data");
    old.write_all_at(b"OLD", 0).unwrap();
    assert_eq!(fs::read(s.path("old")).unwrap(), b"new");
    new.write_all_at(b"N", 0).unwrap();
    assert_eq!(fs::read(s.path("old")).unwrap(), b"New");
    assert_eq!((old.metadata().unwrap().nlink(), new.metadata().unwrap().nlink()), (0, 1));
}

fn big_reads_and_writes(s: &Stage) {
    let data = Rng::new(2).bytes(5 << 20);
    let mut f = rw(s, "f");
    // Odd sizes and offsets, larger than one request can carry.
    for part in data.chunks(1_234_567) {
        f.write_all(part).unwrap();
    }
    assert!(fs::read(s.path("f")).unwrap() == data);
    assert!(fs::read(s.lower("f")).unwrap() == data);
    let mut middle = vec![0; 3_000_001];
    f.read_exact_at(&mut middle, 999_999).unwrap();
    assert!(middle == data[999_999..999_999 + 3_000_001]);
}

fn reads_past_the_end(s: &Stage) {
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

fn sparse_terabyte(s: &Stage) {
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

fn truncate_under_a_reader(s: &Stage) {
    let f = rw(s, "f");
    f.write_all_at(&[1; 20_000], 0).unwrap();
    let mut seen = vec![0; 20_000];
    f.read_exact_at(&mut seen, 0).unwrap();
    rw(s, "f").set_len(5000).unwrap();
    assert_eq!(f.read_at(&mut seen, 0).unwrap(), 5000);
    rw(s, "f").set_len(20_000).unwrap();
    f.read_exact_at(&mut seen, 0).unwrap();
    assert!(seen[5000..].iter().all(|b| *b == 0), "old data came back after a truncate");
}

fn execute_from_the_mount(s: &Stage) {
    fs::copy("/bin/true", s.path("prog")).unwrap();
    assert!(std::process::Command::new(s.path("prog")).status().unwrap().success());
    fs::write(s.path("script"), "#!/bin/sh\nexit 7\n").unwrap();
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(s.path("script"), fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(std::process::Command::new(s.path("script")).status().unwrap().code(), Some(7));
    fs::set_permissions(s.path("script"), fs::Permissions::from_mode(0o644)).unwrap();
    let e = std::process::Command::new(s.path("script")).status().unwrap_err();
    assert_eq!(e.raw_os_error(), Some(libc::EACCES), "not even root runs what nobody may run");
}

fn sync_calls(s: &Stage) {
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

fn sendfile_and_splice(s: &Stage) {
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

fn vectored_and_positioned(s: &Stage) {
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

fn file_offsets_are_shared_by_dup(s: &Stage) {
    let mut f = rw(s, "f");
    let mut dup = f.try_clone().unwrap();
    f.write_all(b"12").unwrap();
    dup.write_all(b"34").unwrap();
    drop(f);
    assert_eq!(dup.seek(SeekFrom::End(0)).unwrap(), 4);
    assert_eq!(fs::read(s.path("f")).unwrap(), b"1234");
}

fn random_ops_agree_with_a_model(s: &Stage) {
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
