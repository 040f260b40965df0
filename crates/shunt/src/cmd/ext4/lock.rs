//! Locks a mounted image against other writers: other daemons, and the kernel.
//!
//! A block device is opened exclusively, which the kernel's own mounts respect. A file takes advisory locks, which other mounts
//! of Shunt respect; the kernel uses files through loop devices, which are searched for.
//!
//! | mounted | `flock` of the file | range of bytes (OFD) |
//! |---|---|---|
//! | the whole, to be written | exclusive | |
//! | the whole, to be read | shared | all, shared |
//! | a part, to be written | shared | those of the part, exclusive |
//! | a part, to be read | shared | those of the part, shared |

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

use crate::error::{Code, Failure, Result, failed};
use crate::serve::ExclusiveClaim;

/// How long to wait for a lock: a daemon that has unmounted may take a moment to exit.
const LOCK_TIMEOUT: Duration = Duration::from_millis(500);

/// An open image and its claim.
pub struct Opened {
    pub file: File,
    /// Opened read-write; read-only where writing is not permitted.
    pub writable: bool,
    /// The exclusive claim of a block device, for as long as this is open.
    pub claim: Option<ExclusiveClaim>,
}

impl Opened {
    /// Returns the open file. The exclusive claim of a block device lasts for as long as this file, or a duplicate of it, is
    /// open.
    pub fn into_file(self) -> File {
        self.claim.and_then(ExclusiveClaim::into_exclusive).unwrap_or(self.file)
    }
}

/// Opens an image; a block device is opened exclusively.
pub fn open(path: &Path, write: bool) -> Result<Opened> {
    let try_open = |write: bool| -> io::Result<Opened> {
        let mut options = OpenOptions::new();
        options.read(true).write(write);
        if !fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device()) {
            // O_NONBLOCK: opening a FIFO would block.
            options.custom_flags(OFlags::NONBLOCK.bits().cast_signed());
            return Ok(Opened { file: options.open(path)?, writable: write, claim: None });
        }
        // A write-protected device can be opened for writing, but refuses each write.
        let write = write && !is_protected(path);
        options.write(write);
        // O_EXCL without O_CREAT has a meaning for block devices only.
        let claim = options.custom_flags(OFlags::EXCL.bits().cast_signed()).open(path)?;
        let claim = ExclusiveClaim::new(claim, write)?;
        Ok(Opened { file: claim.file()?, writable: write, claim: Some(claim) })
    };
    let opened = match try_open(write) {
        Err(error)
            if write
                && matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem) =>
        {
            try_open(false)
        }
        opened => opened,
    };
    opened.map_err(|error: io::Error| match error.kind() {
        ErrorKind::ResourceBusy => {
            in_use(path, "it is mounted, or another program has opened it exclusively")
        }
        _ => cannot_open(path, &error),
    })
}

/// Reports whether the kernel has marked a block device read-only.
fn is_protected(path: &Path) -> bool {
    let flag = fs::metadata(path).and_then(|found| {
        let (major, minor) = (rustix::fs::major(found.rdev()), rustix::fs::minor(found.rdev()));
        fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/ro"))
    });
    flag.is_ok_and(|flag| flag.trim_end() != "0")
}

/// Locks an open image, or a part of it, for as long as it is open; several readers may share it. Retries until [`LOCK_TIMEOUT`],
/// since a daemon that has just unmounted it is about to exit.
pub fn take(path: &Path, file: &File, write: bool, part: Option<Range<u64>>) -> Result<()> {
    let how = match write && part.is_none() {
        true => FlockOperation::NonBlockingLockExclusive,
        false => FlockOperation::NonBlockingLockShared,
    };
    let begun = Instant::now();
    let patiently = |lock: &dyn Fn() -> rustix::io::Result<()>| loop {
        match lock() {
            Err(Errno::WOULDBLOCK | Errno::ACCESS) if begun.elapsed() < LOCK_TIMEOUT => {
                sleep(Duration::from_millis(10));
            }
            taken => return taken,
        }
    };
    let ranged = |range: &Range<u64>| patiently(&|| lock_range(file, range, write));
    let taken = patiently(&|| flock(file, how)).and_then(|()| match &part {
        Some(range) => ranged(range),
        None if write => Ok(()),
        None => ranged(&(0..u64::MAX)),
    });
    match taken {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK | Errno::ACCESS) => {
            let who = holder(file).unwrap_or_else(|| "another program".to_owned());
            return Err(in_use(path, &format!("{who} has locked it")));
        }
        Err(errno) => {
            let error = io::Error::from(errno);
            return Err(failed(format_args!("cannot lock {}: {error}", path.display())));
        }
    }
    match loop_device(file, write) {
        Some(device) => {
            let device = device.display();
            Err(in_use(
                path,
                &format!("it backs the loop device {device}; detach that with `losetup -d {device}`"),
            ))
        }
        None => Ok(()),
    }
}

/// Locks bytes of a file with an open-file-description lock. Offsets are capped at the largest one of a file.
fn lock_range(file: &File, range: &Range<u64>, write: bool) -> rustix::io::Result<()> {
    let offset = |at: u64| i64::try_from(at).unwrap_or(i64::MAX);
    let start = offset(range.start);
    let lock = libc::flock {
        l_type: if write { libc::F_WRLCK } else { libc::F_RDLCK }.try_into().expect("a small number"),
        l_whence: libc::SEEK_SET.try_into().expect("zero"),
        l_start: start,
        l_len: offset(range.end) - start,
        // Required to be 0 for OFD locks.
        l_pid: 0,
    };
    // SAFETY: the call reads one `flock`.
    let done = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) };
    if done < 0 {
        Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO))
    } else {
        Ok(())
    }
}

/// The error of opening an image.
pub fn cannot_open(path: &Path, error: &io::Error) -> Failure {
    let code = match error.kind() {
        ErrorKind::PermissionDenied => Code::Privilege,
        ErrorKind::ResourceBusy => Code::Busy,
        _ => Code::Failed,
    };
    Failure::new(code, format_args!("cannot open {}: {error}", path.display()))
}

fn in_use(path: &Path, why: &str) -> Failure {
    Failure::new(Code::Busy, format_args!("{} is in use: {why}", path.display()))
}

/// The process that holds a `flock` on this file, if `/proc` shows it: the first one other than this process, which may already
/// hold the shared lock itself.
fn holder(file: &File) -> Option<String> {
    let ours = file.metadata().ok()?;
    let (major, minor) = (rustix::fs::major(ours.dev()), rustix::fs::minor(ours.dev()));
    let lock_file = format!("{major:02x}:{minor:02x}:{}", ours.ino());
    let locks = fs::read_to_string("/proc/locks").ok()?;
    // A line such as `1: FLOCK  ADVISORY  WRITE 4711 fd:00:1234 0 EOF`.
    let own = std::process::id().to_string();
    let pid = locks.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let (kind, pid) = (words.next()?, words.nth(2)?);
        // OFD locks belong to open files and show no process.
        (kind == "FLOCK" && words.next()? == lock_file && pid != own).then_some(pid)
    })?;
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(format!("process {pid} ({})", name.trim_end()))
}

/// A loop device through which the kernel may write to this file, or read it while this daemon writes.
fn loop_device(file: &File, write: bool) -> Option<PathBuf> {
    let ours = file.metadata().ok()?;
    let devices = fs::read_dir("/sys/block").ok()?.flatten();
    devices.map(|entry| entry.path()).find_map(|block| {
        // Loop devices that are not attached have no such file.
        let backing = fs::read_to_string(block.join("loop/backing_file")).ok()?;
        let theirs = fs::metadata(backing.trim_end_matches('\n')).ok()?;
        let writes = fs::read_to_string(block.join("ro")).ok()?.trim_end() == "0";
        let in_the_way = writes || write;
        let same = (theirs.dev(), theirs.ino()) == (ours.dev(), ours.ino());
        (same && in_the_way).then(|| Path::new("/dev").join(block.file_name().unwrap_or_default()))
    })
}
