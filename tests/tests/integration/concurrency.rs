//! Concurrent use of one file: appends, mappings, direct I/O, and files without a name.

use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use shunt_test_support::Peer;
use shunt_tests::Fixture;
use shunt_tests::sys::{Aligned, Shared, open_direct};

shunt_tests::behaviours! { everywhere:
    appends_from_four_processes, direct_io, direct_and_buffered_agree, mapping_and_files_agree,
    mapping_by_two_processes, unlinked_file_lives_on, rename_over_an_open_file, truncate_under_a_reader,
    file_offsets_are_shared_by_dup,
}
shunt_tests::behaviours! { on tmpfs as passed_through: source_and_mirror_share_pages }

fn rw(s: &Fixture, name: &str) -> File {
    File::options().read(true).write(true).create(true).truncate(false).open(s.path(name)).unwrap()
}

fn appends_from_four_processes(s: &Fixture) {
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

fn direct_io(s: &Fixture) {
    fs::write(s.path("f"), vec![3; 65536]).unwrap();
    let f = match open_direct(&s.path("f")) {
        Ok(f) => f,
        // An old tmpfs has no O_DIRECT; the mirror may refuse it then as well.
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
    // At the end of the file: a short read, then an empty one.
    assert_eq!(f.read_at(&mut block, 65536 - 4096).unwrap(), 4096);
    assert_eq!(f.read_at(&mut block, 65536).unwrap(), 0);
    f.write_all_at(&block, 65536).unwrap();
    assert_eq!(f.metadata().unwrap().len(), 65536 + 8192);
}

fn direct_and_buffered_agree(s: &Fixture) {
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

fn mapping_and_files_agree(s: &Fixture) {
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
    // The mapping survives the close of the file.
    drop((f, other));
    map[0] = 0x55;
    map.sync().unwrap();
    assert_eq!(fs::read(s.path("f")).unwrap()[0], 0x55);
    drop(map);
    assert_eq!(fs::read(s.lower("f")).unwrap()[0], 0x55);
}

fn mapping_by_two_processes(s: &Fixture) {
    let path = s.path("f");
    let f = rw(s, "f");
    f.set_len(8192).unwrap();
    let mut map = Shared::new(&f, 8192).unwrap();
    let mut peer = Peer::start(|link| {
        let f = File::options().read(true).write(true).open(&path).unwrap();
        let mut map = Shared::new(&f, 8192).unwrap();
        link.send(1);
        link.receive().expect("the parent wrote");
        assert_eq!(map.peek(4100), 42);
        map[4101] = 43;
        link.send(2);
    });
    peer.link().receive().expect("mapped");
    map[4100] = 42;
    peer.link().send(1);
    peer.link().receive().expect("seen");
    assert_eq!(map.peek(4101), 43);
    peer.done();
}

/// A file with passthrough has one page cache: that of the source.
fn source_and_mirror_share_pages(s: &Fixture) {
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

fn unlinked_file_lives_on(s: &Fixture) {
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
    // Opened again through /proc, as programs do.
    use std::os::fd::AsRawFd as _;
    let again = File::open(format!("/proc/self/fd/{}", f.as_raw_fd())).unwrap();
    assert_eq!(again.metadata().unwrap().len(), 3);
    // A removed directory lists nothing.
    fs::create_dir(s.path("d")).unwrap();
    let d = File::open(s.path("d")).unwrap();
    fs::remove_dir(s.path("d")).unwrap();
    assert_eq!(d.metadata().unwrap().nlink(), 0);
    let made = rustix::fs::openat(&d, "x", OFlags::CREATE | OFlags::WRONLY, Mode::RWXU);
    assert_eq!(made.map(drop), Err(Errno::NOENT));
}

fn rename_over_an_open_file(s: &Fixture) {
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

fn truncate_under_a_reader(s: &Fixture) {
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

fn file_offsets_are_shared_by_dup(s: &Fixture) {
    let mut f = rw(s, "f");
    let mut dup = f.try_clone().unwrap();
    f.write_all(b"12").unwrap();
    dup.write_all(b"34").unwrap();
    drop(f);
    assert_eq!(dup.seek(SeekFrom::End(0)).unwrap(), 4);
    assert_eq!(fs::read(s.path("f")).unwrap(), b"1234");
}
