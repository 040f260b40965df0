//! Workers that run during the kills, and check the result of each call.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _, symlink};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, FlockOperation, Mode, OFlags, RenameFlags, XattrFlags,
};
use rustix::io::Errno;
use shunt_tests::Rng;
use shunt_tests::sys::Shared;

use super::{Run, Subject};

type Work = fn(&dyn Subject, &Run);

pub const ALL: &[(&str, Work)] = &[
    ("names", names),
    ("renames", renames),
    ("appends", appends),
    ("xattrs", xattrs),
    ("nameless", nameless),
    ("locks", locks),
    ("data", data),
    ("mappings", mappings),
    ("ranges", ranges),
    ("listings", listings),
];

fn dir(s: &dyn Subject, name: &str) -> PathBuf {
    let dir = s.path(name);
    fs::create_dir(&dir).unwrap();
    dir
}

/// Makes calls that reach the daemon, one after the other. Returns the slow ones.
pub fn pulse(s: &dyn Subject, run: &Run) -> Vec<(Instant, Instant)> {
    let path = dir(s, "pulse").join("d");
    let mut slow = Vec::new();
    while run.goes_on() {
        let begun = Instant::now();
        fs::create_dir(&path).unwrap();
        fs::remove_dir(&path).unwrap();
        let ended = Instant::now();
        if ended - begun > Duration::from_millis(1) {
            slow.push((begun, ended));
        }
        run.count(2);
        std::thread::sleep(Duration::from_micros(200));
    }
    slow
}

/// Names to be created must not exist, names to be removed must: a repeated operation is detected.
fn names(s: &dyn Subject, run: &Run) {
    let dir = dir(s, "names");
    let at = |name: &str| dir.join(name);
    let kind = |e: std::io::Error| e.raw_os_error();
    while run.goes_on() {
        fs::create_dir(at("d")).expect("mkdir");
        assert_eq!(fs::create_dir(at("d")).map_err(kind), Err(Some(libc::EEXIST)), "mkdir twice");
        let mut file = File::options().write(true).create_new(true).open(at("d/f")).expect("create");
        file.write_all(b"new").expect("write");
        let again = File::options().write(true).create_new(true).open(at("d/f")).map(drop);
        assert_eq!(again.map_err(kind), Err(Some(libc::EEXIST)), "create twice");
        drop(file);
        assert_eq!(fs::read(at("d/f")).expect("read"), b"new");
        fs::hard_link(at("d/f"), at("l")).expect("link");
        assert_eq!(fs::hard_link(at("d/f"), at("l")).map_err(kind), Err(Some(libc::EEXIST)), "link twice");
        assert_eq!(fs::metadata(at("l")).expect("stat").nlink(), 2);
        symlink("target", at("s")).expect("symlink");
        assert_eq!(fs::read_link(at("s")).expect("readlink").to_str(), Some("target"));
        rustix::fs::mknodat(CWD, at("p"), FileType::Fifo, Mode::RUSR, 0).expect("mknod");
        fs::rename(at("l"), at("r")).expect("rename");
        assert_eq!(fs::metadata(at("l")).map(drop).map_err(kind), Err(Some(libc::ENOENT)), "after a rename");
        for name in ["d/f", "r", "s", "p"] {
            fs::remove_file(at(name)).unwrap_or_else(|e| panic!("unlink {name}: {e}"));
            assert_eq!(fs::remove_file(at(name)).map_err(kind), Err(Some(libc::ENOENT)), "unlink twice");
        }
        fs::remove_dir(at("d")).expect("rmdir");
        assert_eq!(fs::remove_dir(at("d")).map_err(kind), Err(Some(libc::ENOENT)), "rmdir twice");
        run.count(23);
    }
}

/// Renames of all kinds; exchanging two files twice would undo it.
fn renames(s: &dyn Subject, run: &Run) {
    let dir = dir(s, "renames");
    let at = |name: &str| dir.join(name);
    fs::write(at("a"), "a").unwrap();
    fs::write(at("b"), "b").unwrap();
    fs::create_dir(at("sub")).unwrap();
    let rename = |from: &str, to: &str, flags| rustix::fs::renameat_with(CWD, at(from), CWD, at(to), flags);
    let mut expected = ["a", "b"];
    while run.goes_on() {
        rename("a", "b", RenameFlags::EXCHANGE).expect("exchange");
        expected.swap(0, 1);
        assert_eq!(fs::read(at("a")).unwrap(), expected[0].as_bytes(), "after an exchange");
        assert_eq!(fs::read(at("b")).unwrap(), expected[1].as_bytes(), "after an exchange");
        rename("a", "sub/c", RenameFlags::NOREPLACE).expect("rename without replacing");
        assert_eq!(rename("b", "sub/c", RenameFlags::NOREPLACE), Err(Errno::EXIST));
        fs::write(at("a"), "x").expect("create");
        rename("sub/c", "a", RenameFlags::empty()).expect("rename over");
        assert_eq!(rename("sub/c", "a", RenameFlags::empty()), Err(Errno::NOENT));
        assert_eq!(fs::read(at("a")).unwrap(), expected[0].as_bytes());
        run.count(9);
    }
}

/// Every record is present once, in order.
fn appends(s: &dyn Subject, run: &Run) {
    let path = dir(s, "appends").join("log");
    let mut rng = Rng::new(7);
    while run.goes_on() {
        let mut file = File::options().append(true).create(true).open(&path).expect("open");
        let mut expected = Vec::new();
        for number in 0..200u32 {
            let mut record = vec![number as u8; 1 + rng.below(9000)];
            record.extend(number.to_le_bytes());
            assert_eq!(file.write(&record).expect("append"), record.len());
            expected.extend(record);
            if !run.goes_on() {
                break;
            }
        }
        let found = fs::read(&path).expect("read");
        assert_eq!(found.len(), expected.len(), "appended once, and all of it");
        assert!(found == expected, "what was appended");
        fs::remove_file(&path).expect("unlink");
        run.count(200);
    }
}

fn xattrs(s: &dyn Subject, run: &Run) {
    let path = s.path("xattrs");
    fs::write(&path, "").unwrap();
    if rustix::fs::setxattr(&path, c"user.try", b"x", XattrFlags::empty()).is_err() {
        while run.goes_on() {
            std::thread::sleep(Duration::from_millis(50));
        }
        return;
    }
    let mut value = [0; 64];
    for round in 0u64.. {
        if !run.goes_on() {
            return;
        }
        let bytes = round.to_le_bytes();
        rustix::fs::setxattr(&path, c"user.a", &bytes, XattrFlags::CREATE).expect("setxattr, new");
        let again = rustix::fs::setxattr(&path, c"user.a", b"other", XattrFlags::CREATE);
        assert_eq!(again, Err(Errno::EXIST), "an attribute made twice");
        let length = rustix::fs::getxattr(&path, c"user.a", &mut value[..]).expect("getxattr");
        assert_eq!(value[..length], bytes);
        rustix::fs::setxattr(&path, c"user.a", b"third", XattrFlags::REPLACE).expect("setxattr, other");
        rustix::fs::removexattr(&path, c"user.a").expect("removexattr");
        assert_eq!(rustix::fs::removexattr(&path, c"user.a"), Err(Errno::NODATA), "removed twice");
        run.count(6);
    }
}

/// Files without a name: never named, and deleted while open.
fn nameless(s: &dyn Subject, run: &Run) {
    let dir = dir(s, "nameless");
    let mut rng = Rng::new(9);
    while run.goes_on() {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::open(&dir, flags, Mode::RUSR | Mode::WUSR).expect("O_TMPFILE"));
        let block = rng.bytes(5000);
        file.write_all_at(&block, 0).expect("write without a name");
        std::thread::sleep(Duration::from_millis(rng.below(30) as u64));
        let mut found = vec![0; block.len()];
        file.read_exact_at(&mut found, 0).expect("read without a name");
        assert!(found == block, "a file without a name");
        assert_eq!(file.metadata().expect("fstat").nlink(), 0);
        let path = dir.join("named");
        let by_fd = format!("/proc/self/fd/{}", file.as_raw_fd());
        rustix::fs::linkat(CWD, by_fd, CWD, &path, AtFlags::SYMLINK_FOLLOW).expect("link what had no name");
        assert!(fs::read(&path).expect("read by name") == block);
        fs::remove_file(&path).expect("unlink while open");
        std::thread::sleep(Duration::from_millis(rng.below(30) as u64));
        file.write_all_at(b"after", 100).expect("write to a deleted file");
        file.read_exact_at(&mut found, 0).expect("read a deleted file");
        assert_eq!(&found[100..105], b"after");
        file.set_len(50).expect("truncate a deleted file");
        assert_eq!(file.metadata().expect("fstat of a deleted file").len(), 50);
        run.count(11);
    }
}

/// A lock survives any end of the daemon.
fn locks(s: &dyn Subject, run: &Run) {
    let path = dir(s, "locks").join("f");
    let open =
        || File::options().read(true).write(true).create(true).truncate(false).open(&path).expect("open");
    let (one, two) = (open(), open());
    let lock = |file: &File, kind: libc::c_int| {
        let lock = libc::flock { l_type: kind as i16, l_whence: 0, l_start: 10, l_len: 10, l_pid: 0 };
        // SAFETY: the structure outlives the call.
        let done = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) };
        if done == 0 { Ok(()) } else { Err(std::io::Error::last_os_error().raw_os_error()) }
    };
    let mut rng = Rng::new(11);
    while run.goes_on() {
        assert_eq!(lock(&one, libc::F_WRLCK), Ok(()));
        rustix::fs::flock(&one, FlockOperation::NonBlockingLockExclusive).expect("flock");
        for _ in 0..10 {
            std::thread::sleep(Duration::from_millis(rng.below(20) as u64));
            assert_eq!(lock(&two, libc::F_WRLCK), Err(Some(libc::EAGAIN)), "a lock was lost");
            let flock = rustix::fs::flock(&two, FlockOperation::NonBlockingLockShared);
            assert_eq!(flock, Err(Errno::WOULDBLOCK), "a flock was lost");
        }
        rustix::fs::flock(&one, FlockOperation::Unlock).expect("unlock");
        assert_eq!(lock(&one, libc::F_UNLCK), Ok(()));
        assert_eq!(lock(&two, libc::F_RDLCK), Ok(()), "nobody holds it");
        assert_eq!(lock(&two, libc::F_UNLCK), Ok(()));
        run.count(26);
    }
}

/// A file that stays open for the whole run, compared with its expected content.
fn data(s: &dyn Subject, run: &Run) {
    let path = dir(s, "data").join("f");
    let file =
        File::options().read(true).write(true).create_new(true).mode(0o600).open(&path).expect("create");
    let mut model = vec![0; 1 << 20];
    file.set_len(model.len() as u64).expect("truncate");
    let mut rng = Rng::new(13);
    while run.goes_on() {
        let at = rng.below(model.len() - 300_000);
        let length = 1 + if rng.below(8) == 0 { rng.below(300_000) } else { rng.below(5000) };
        let byte = rng.below(256) as u8;
        model[at..at + length].fill(byte);
        file.write_all_at(&vec![byte; length], at as u64).expect("write");
        let (from, length) = (rng.below(model.len() - 70_000), 1 + rng.below(70_000));
        let mut found = vec![0; length];
        let mut other = File::open(&path).expect("open");
        other.seek(SeekFrom::Start(from as u64)).expect("seek");
        other.read_exact(&mut found).expect("read");
        assert!(found == model[from..from + length], "what was written is not what is read");
        run.count(5);
    }
    assert!(fs::read(s.lower("data/f")).unwrap() == model, "the source");
}

/// A file written through a mapping, whose open file may be closed meanwhile, and read otherwise.
fn mappings(s: &dyn Subject, run: &Run) {
    const LENGTH: usize = 64 << 10;
    let path = dir(s, "mappings").join("f");
    let mut rng = Rng::new(19);
    while run.goes_on() {
        let file = File::options().read(true).write(true).create_new(true).open(&path).expect("create");
        file.set_len(LENGTH as u64).expect("truncate");
        let mut mapping = Shared::new(&file, LENGTH).expect("mmap");
        let file = (rng.below(2) == 0).then_some(file);
        let mut model = vec![0; LENGTH];
        for _ in 0..20 {
            let (at, byte) = (rng.below(LENGTH - 5000), rng.below(256) as u8);
            model[at..at + 5000].fill(byte);
            mapping[at..at + 5000].fill(byte);
            mapping.sync().expect("msync");
            assert!(fs::read(&path).expect("read") == model, "what was mapped is not what is read");
            std::thread::sleep(Duration::from_millis(rng.below(10) as u64));
        }
        drop((mapping, file));
        assert!(fs::read(&path).expect("read") == model, "after the mapping ended");
        fs::remove_file(&path).expect("unlink");
        run.count(60);
    }
}

/// Ranges that are punched and rewritten.
fn ranges(s: &dyn Subject, run: &Run) {
    const BLOCK: u64 = 4096;
    let path = dir(s, "ranges").join("f");
    let mut file = File::options().read(true).write(true).create_new(true).open(&path).expect("create");
    let mut model: Vec<u8> = (0..16u8).flat_map(|n| [n; BLOCK as usize]).collect();
    file.write_all(&model).expect("write");
    let mut rng = Rng::new(17);
    while run.goes_on() {
        let at = (1 + rng.below(14)) as u64 * BLOCK;
        let place = at as usize..(at + BLOCK) as usize;
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&file, punch, at, BLOCK).expect("punch");
        model[place.clone()].fill(0);
        assert!(fs::read(&path).expect("read") == model, "after a range was emptied");
        let byte = rng.below(256) as u8;
        file.write_all_at(&[byte; BLOCK as usize], at).expect("write");
        model[place].fill(byte);
        run.count(4);
    }
}

/// A listing in progress continues, and returns each name once.
fn listings(s: &dyn Subject, run: &Run) {
    let dir = dir(s, "listings");
    let names: BTreeSet<String> = (0..2000).map(|n| format!("a-name-of-some-length-{n}")).collect();
    for name in &names {
        fs::write(s.lower("listings").join(name), "").unwrap();
    }
    while run.goes_on() {
        let mut found = BTreeSet::new();
        for (number, entry) in fs::read_dir(&dir).expect("opendir").enumerate() {
            let name = entry.expect("readdir").file_name().into_string().unwrap();
            assert!(found.insert(name), "a name listed twice");
            if number % 400 == 0 {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        assert_eq!(found.len(), names.len(), "names listed");
        run.count(2000);
    }
}
