//! Size coherence: the kernel's view of a file's length and content when an open of it is answered, and of names that it has
//! cached as absent. Needs root and `/dev/fuse`; in CI (`CI=true`) their absence is a failure.

use std::fs::{self, File, Permissions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::ops::Range;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use shunt_fuse::mount::{MountPoint, Unmount};
use shunt_volume::id::{ObjectId, OwnerId, Seq};
use shunt_volume::object::{Content, Kind, Layout};
use shunt_volume::replica::{Fetcher, LocalObject, NewObject, Options, ROOT, Replica, SetAttr};
use shunt_volumefs::VolumeFs;

/// Returns the byte that fills a content of this size, so that a content identifies its length.
fn filling(size: u64) -> u8 {
    (if size > 65_536 { b'A' } else { b'a' }) + (size % 16) as u8
}

/// Fetcher that supplies any content: as many bytes as it is long.
struct Bytes;

impl Fetcher for Bytes {
    fn fetch(
        &self,
        _id: ObjectId,
        content: &Content,
        _range: Range<u64>,
        into: &File,
    ) -> Result<Range<u64>, Errno> {
        into.write_all_at(&vec![filling(content.size); content.size as usize], 0).map_err(|_| Errno::IO)?;
        Ok(0..content.size)
    }
}

/// Applies other nodes' versions of files once no process writes to the file: new attributes of `others`, then new content of
/// `num`.
fn comes(replica: &Replica, others: &[u64], num: u64, size: u64) {
    // The kernel reports the end of an open a moment after the program closed it.
    while replica.apply(|applying| Ok(applying.writers(num))).unwrap() > 0 {
        std::thread::yield_now();
    }
    comes_now(replica, others, num, size);
}

/// Like [`comes`], without waiting for writers.
fn comes_now(replica: &Replica, others: &[u64], num: u64, size: u64) {
    let applied = replica.apply(|applying| {
        for num in others {
            let node = applying.inode(*num)?.ok_or(Errno::NOENT)?;
            let mut agreed = applying.local(&node)?;
            agreed.created = Seq(1);
            agreed.object.mode ^= 1;
            applying.set_object(node.id, Some(&agreed), LocalObject::Agreed)?;
        }
        let node = applying.inode(num)?.ok_or(Errno::NOENT)?;
        let mut agreed = applying.local(&node)?;
        agreed.created = Seq(1);
        let layout = Layout::Direct(Vec::new());
        agreed.object.content = Content { size, digest: [size as u8; 32], layout };
        applying.set_object(node.id, Some(&agreed), LocalObject::Agreed)
    });
    applied.unwrap();
}

fn make(replica: &Replica, name: &str, kind: Kind, target: &[u8]) -> u64 {
    let new = NewObject { kind, mode: 0o600, owner: OwnerId(0), group: OwnerId(0), target };
    replica.make(ROOT, name.as_bytes(), new).unwrap().ino
}

/// Watchdog that turns a hang into a failure: it aborts the connection, and ends the process if that does not help.
struct Watch {
    over: mpsc::Sender<()>,
    thread: JoinHandle<bool>,
}

impl Watch {
    fn begin(mount: MountPoint) -> Self {
        const LONG: Duration = Duration::from_secs(90);
        let (over, ends) = mpsc::channel();
        let hangs = move |long| ends.recv_timeout(long) == Err(mpsc::RecvTimeoutError::Timeout);
        let thread = std::thread::spawn(move || {
            if !hangs(LONG) {
                return false;
            }
            eprintln!("a request was never answered: its connection is aborted");
            mount.abort().ok();
            if hangs(LONG) {
                std::process::abort();
            }
            true
        });
        Self { over, thread }
    }

    /// Reports whether the time limit was exceeded.
    fn end(self) -> bool {
        drop(self.over);
        self.thread.join().unwrap()
    }
}

/// Runs a test on a mount. With `through` the kernel uses passthrough for complete files; otherwise it reads up to the length
/// that was reported to it.
fn mounted(through: bool, test: impl FnOnce(&Replica, &Path)) {
    let possible = rustix::process::geteuid().is_root() && Path::new("/dev/fuse").exists();
    if !possible {
        assert!(std::env::var_os("CI").is_none(), "needs root and /dev/fuse");
        eprintln!("skipped: needs root and /dev/fuse");
        return;
    }
    // Without waits for a disk, an open follows soon after the change that it sees.
    let memory = Path::new("/dev/shm");
    let dir = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
    fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    let at = dir.path().join("mount");
    fs::create_dir(&at).unwrap();
    let options = Options::new("test", "here".parse().unwrap());
    let replica = Arc::new(Replica::open(&dir.path().join("cache"), options).unwrap());
    replica.set_fetcher(Some(Arc::new(Bytes)));
    let volume = VolumeFs::new(replica.clone());
    let volume = Arc::new(if through { volume } else { volume.without_passthrough() });
    let (config, options) = (volume.config(), volume.mount_options().allow_other(true));
    let mounted = shunt_fuse::mount::<VolumeFs>(volume, config, &at, &options).unwrap();
    let watch = Watch::begin(mounted.mount_point().clone());
    let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| test(&replica, &at)));
    mounted.unmount(Unmount::Lazy).map_err(|failed| failed.1).unwrap().unwrap();
    assert!(!watch.end(), "a request was never answered");
    done.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

/// Otherwise a program would read nothing and replace the content with its own.
#[test]
fn an_open_shows_all_of_the_version_that_it_opens() {
    mounted(false, |replica, at| {
        let path = at.join("file");
        File::create(&path).unwrap().write_all(b"x").unwrap();
        let num = replica.lookup(ROOT, b"file").unwrap().ino;
        let make = |n: u32| make(replica, &n.to_string(), Kind::Symlink, b"nowhere");
        // The invalidations of these take time.
        let others: Vec<u64> = (0..1000).map(make).collect();
        for size in 2..80 {
            comes(replica, &others, num, size);
            let mut file = File::options().read(true).write(true).open(&path).unwrap();
            // First operation on the file: an earlier one might make the kernel request the length.
            match size % 2 {
                0 => assert_eq!(file.read(&mut [0; 4096]).unwrap() as u64, size),
                _ => assert_eq!(file.seek(SeekFrom::End(0)).unwrap(), size),
            }
        }
    });
}

/// A remote change creates a name that the kernel has cached as absent: an open that would create it opens the existing file.
#[test]
fn a_file_that_the_kernel_believes_absent_is_opened_as_it_is() {
    mounted(false, |replica, at| {
        replica.set(ROOT, SetAttr { mode: Some(0o777), ..SetAttr::default() }).unwrap();
        let paths = ["file", "link", "directory", "private"].map(|name| at.join(name));
        for path in &paths {
            assert!(!path.exists());
        }
        let num = make(replica, "file", Kind::Regular, b"");
        let opened = replica.open_file(num, true, false).unwrap();
        opened.file.write_all_at(b"longer than what comes", 0).unwrap();
        replica.release_open(num, true, opened.session);
        make(replica, "link", Kind::Symlink, b"file");
        make(replica, "directory", Kind::Directory, b"");
        make(replica, "private", Kind::Regular, b"");
        let [file, link, directory, private] = &paths;
        fs::write(file, "short").unwrap();
        assert_eq!(fs::read_to_string(file).unwrap(), "short");
        File::options().append(true).create(true).open(link).unwrap().write_all(b" and more").unwrap();
        assert_eq!(fs::read_to_string(file).unwrap(), "short and more");
        assert_eq!(File::create(directory).unwrap_err().raw_os_error(), Some(Errno::ISDIR.raw_os_error()));
        let mut append = Command::new("sh");
        append.args(["-c", "echo x >> \"$0\""]).arg(private).uid(12345).gid(12345);
        let printed = append.output().unwrap().stderr;
        assert!(String::from_utf8_lossy(&printed).contains("Permission denied"), "{printed:?}");
        assert_eq!(replica.lookup(ROOT, b"private").unwrap().size, 0);
    });
}

/// A program keeps the older version open: writes through a later open go to the newer version.
#[test]
fn write_next_to_older_version_goes_to_newer() {
    for through in [true, false] {
        mounted(through, |replica, at| {
            let path = at.join("file");
            File::create(&path).unwrap().write_all(b"older").unwrap();
            let num = replica.lookup(ROOT, b"file").unwrap().ino;
            let older = File::open(&path).unwrap();
            comes(replica, &[], num, 9000);
            let mut newer = File::options().read(true).append(true).open(&path).unwrap();
            newer.write_all(b"and more").unwrap();
            let read = |file: &File| {
                let mut bytes = vec![0; 10_000];
                let length = file.read_at(&mut bytes, 0).unwrap();
                bytes.truncate(length);
                bytes
            };
            assert_eq!(read(&older), b"older");
            let wanted = [&[filling(9000); 9000][..], b"and more"].concat();
            assert!(read(&newer) == wanted);
            drop(newer);
            assert_eq!(replica.get(num).unwrap().size, 9008);
            // The older version's content is not shown to others, although it was read once more.
            assert_eq!(read(&older), b"older");
            drop(older);
            let shown = fs::read(&path).unwrap();
            assert!(shown == wanted, "{} bytes, {:?} by the kernel", shown.len(), through);
        });
    }
}

/// The kernel keeps the older version's backing file as long as any open of the file exists.
#[test]
fn write_after_close_of_older_version_goes_to_newer() {
    mounted(true, |replica, at| {
        let path = at.join("file");
        File::create(&path).unwrap().write_all(b"older").unwrap();
        let num = replica.lookup(ROOT, b"file").unwrap().ino;
        let older = File::open(&path).unwrap();
        comes(replica, &[], num, 9000);
        let append = || File::options().append(true).open(&path).unwrap();
        let mut beside = append();
        drop(older);
        // Files with extended attributes are not passed through for writing.
        replica.set_xattr(num, b"user.x", Some(b"1"), None).unwrap();
        append().write_all(b"and more").unwrap();
        assert_eq!(fs::read(&path).unwrap().len(), 9008);
        beside.write_all(b" still").unwrap();
        drop(beside);
        assert_eq!(replica.get(num).unwrap().size, 9014);
    });
}

/// A deleted file is still open and is restored by a remote change.
#[test]
fn truncate_through_older_version_affects_that_version() {
    for through in [true, false] {
        mounted(through, |replica, at| {
            let path = at.join("file");
            let mut older = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
            older.write_all(b"older").unwrap();
            let num = replica.lookup(ROOT, b"file").unwrap().ino;
            fs::remove_file(&path).unwrap();
            comes_now(replica, &[], num, 9000);
            older.set_len(2).unwrap();
            assert_eq!(replica.get(num).unwrap().size, 9000);
            let opened = replica.open_file(num, false, false).unwrap();
            assert_eq!(opened.file.metadata().unwrap().len(), 9000);
            replica.release_open(num, false, opened.session);
        });
    }
}

/// The kernel may have cached the length of the previous version, and must not fill the content with zeros up to that.
#[test]
fn a_shorter_version_that_comes_while_it_is_opened_has_its_own_length() {
    shorter_versions_come(true);
}

#[test]
fn so_it_has_where_the_kernel_reads_through_its_pages() {
    shorter_versions_come(false);
}

fn shorter_versions_come(through: bool) {
    const LENGTHS: [u64; 2] = [75_000, 11_322];
    mounted(through, |replica, at| {
        let path = at.join("file");
        let num = make(replica, "file", Kind::Regular, b"");
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            // Stands for background downloads.
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    replica.fetch_in_background(&[num]).ok();
                }
            });
            scope.spawn(|| {
                let begun = Instant::now();
                for n in (0..).take_while(|_| begun.elapsed() < Duration::from_secs(4)) {
                    comes_now(replica, &[], num, LENGTHS[n % 2] + n as u64 / 2 % 8);
                    std::thread::sleep(Duration::from_micros(300 + n as u64 * 37 % 900));
                }
                is_over.store(true, Ordering::Relaxed);
            });
            let (mut bytes, mut whole) = (vec![0; 65_536], 0);
            while !is_over.load(Ordering::Relaxed) {
                let Ok(file) = File::open(&path) else { continue };
                // A refused read returns the data before that point, and the next one fails.
                let Ok(length) = file.read_at(&mut bytes, 0) else { continue };
                if file.read_at(&mut [0], length as u64).is_err() {
                    continue;
                }
                let is_it = |size: &u64| filling(*size) == bytes[0];
                let size = LENGTHS.iter().flat_map(|least| *least..least + 8).find(is_it).unwrap_or_default();
                let alike = bytes[..length].iter().take_while(|byte| **byte == bytes[0]).count();
                let is_whole = (length, alike) == (bytes.len().min(size as usize), length);
                is_over.fetch_or(!is_whole, Ordering::Relaxed);
                assert!(is_whole, "{length} bytes of {size}, of which {alike} are its own");
                whole += u32::from(length < bytes.len());
            }
            assert!(whole >= 10, "the shorter one was read {whole} times");
        });
    });
}
