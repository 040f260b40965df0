//! Files that cannot be opened: all but a few that serving needs. By landlock(7). And rights, which go with them.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{FileType, Mode, OFlags};
use rustix::thread::{CapabilitySet, gettid};
use signal_hook::consts::SIGUSR2;

use crate::control::SocketDir;

const EXECUTE: u64 = 1 << 0;
const WRITE_FILE: u64 = 1 << 1;
const READ_FILE: u64 = 1 << 2;
const READ_DIR: u64 = 1 << 3;
const REMOVE_FILE: u64 = 1 << 5;
const MAKE_CHAR: u64 = 1 << 6;
const MAKE_BLOCK: u64 = 1 << 11;
const TRUNCATE: u64 = 1 << 14;
const IOCTL_DEVICE: u64 = 1 << 15;
/// What there is to do with a file itself.
const OF_FILES: u64 = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEVICE;

/// Rights on files that a version of landlock knows; from the fourth on, two on TCP; from the sixth on, abstract sockets
/// and signals are kept within.
const fn handled(version: i64) -> [u64; 3] {
    let files = match version {
        1 => (1 << 13) - 1,
        2 => (1 << 14) - 1,
        3 | 4 => (1 << 15) - 1,
        _ => (1 << 16) - 1,
    };
    [files, if version >= 4 { 3 } else { 0 }, if version >= 6 { 3 } else { 0 }]
}

/// The first version with which files can be renamed from one directory into another.
const RENAMES: i64 = 2;

/// Files and directories of who speaks to other machines.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// To write, with all that is below.
    pub writable: Vec<PathBuf>,
    /// To read, with all that is below.
    pub readable: Vec<PathBuf>,
}

/// How long a thread may take to lock itself in.
const LOCK_IN_TIMEOUT: Duration = Duration::from_secs(2);

/// What the threads are locked in by, while they are.
static RULES: AtomicI32 = AtomicI32::new(-1);
/// The rights that they keep, as bits.
static KEPT: AtomicU64 = AtomicU64::new(0);
static LOCKED: AtomicU32 = AtomicU32::new(0);
static FAILED: AtomicU32 = AtomicU32::new(0);

/// Locks all threads of this process in, and those that come, with no capabilities but these.
///
/// `rules` are those for files; where there are none for want of landlock the capabilities go all the same.
///
/// Landlock and capabilities are those of the thread that asks. So each is interrupted by a signal, and asks for itself; who was
/// started by one that is locked in is, too.
pub fn forbid(rules: io::Result<Rules>, kept: CapabilitySet) -> io::Result<()> {
    RULES.store(rules.as_ref().map_or(-1, |rules| rules.fd.as_raw_fd()), Ordering::SeqCst);
    KEPT.store(kept.bits(), Ordering::SeqCst);
    // SAFETY: the handler makes system calls and changes atomics, nothing else.
    let handler = unsafe { signal_hook::low_level::register(SIGUSR2, lock_in) }?;
    let done = all_threads();
    signal_hook::low_level::unregister(handler);
    RULES.store(-1, Ordering::SeqCst);
    rules?;
    done
}

/// Threads that locked themselves in, each after a look whether it is.
pub fn locked() -> u32 {
    LOCKED.load(Ordering::SeqCst) - FAILED.load(Ordering::SeqCst)
}

/// Locks this process in, which has one thread: with all rights on files below a directory, where one is given, else with none.
pub fn forbid_all_but(below: Option<BorrowedFd<'_>>, kept: CapabilitySet) -> io::Result<()> {
    let rules = Rules::new();
    if let (Ok(rules), Some(directory)) = (&rules, below) {
        rules.allow(directory, u64::MAX)?;
    }
    RULES.store(rules.as_ref().map_or(-1, |rules| rules.fd.as_raw_fd()), Ordering::SeqCst);
    KEPT.store(kept.bits(), Ordering::SeqCst);
    lock_in();
    RULES.store(-1, Ordering::SeqCst);
    rules.map(drop)
}

fn all_threads() -> io::Result<()> {
    let me = gettid().as_raw_nonzero().get();
    let mut known = vec![me];
    loop {
        let tasks = std::fs::read_dir("/proc/self/task")?.flatten();
        let tasks: Vec<i32> = tasks.filter_map(|task| task.file_name().to_str()?.parse().ok()).collect();
        let new: Vec<i32> = tasks.into_iter().filter(|task| !known.contains(task)).collect();
        if new.is_empty() {
            break;
        }
        for task in new {
            one_thread(task)?;
            known.push(task);
        }
    }
    // Last: from then on no signal reaches the others where signals are kept within.
    lock_in();
    if FAILED.load(Ordering::SeqCst) > 0 { Err(io::ErrorKind::PermissionDenied.into()) } else { Ok(()) }
}

fn one_thread(task: i32) -> io::Result<()> {
    let before = LOCKED.load(Ordering::SeqCst);
    // SAFETY: numbers alone.
    if unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), task, SIGUSR2) } != 0 {
        // It has ended.
        return Ok(());
    }
    let begun = Instant::now();
    let path = format!("/proc/self/task/{task}");
    while LOCKED.load(Ordering::SeqCst) == before && Path::new(&path).exists() {
        if begun.elapsed() > LOCK_IN_TIMEOUT {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "a thread does not hear"));
        }
        std::thread::sleep(Duration::from_micros(100));
    }
    Ok(())
}

/// Locks this thread in, and looks whether it is.
fn lock_in() {
    drop_rights();
    // SAFETY: numbers alone, and a string that lives for ever.
    let opened = unsafe {
        // Takes that, or root's rights.
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        libc::syscall(libc::SYS_landlock_restrict_self, RULES.load(Ordering::SeqCst), 0);
        // No rules allow that, and without rules everybody may.
        libc::open(c"/".as_ptr(), libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC)
    };
    if opened >= 0 {
        FAILED.fetch_add(1, Ordering::SeqCst);
        // SAFETY: it is ours, and nobody else knows of it.
        unsafe { libc::close(opened) };
    }
    LOCKED.fetch_add(1, Ordering::SeqCst);
}

/// Gives up this thread's capabilities but for those that are kept: nobody keeps what they do not have.
fn drop_rights() {
    let kept = KEPT.load(Ordering::Relaxed);
    // `struct __user_cap_header_struct` of version 3, for this thread; effective, permitted and inheritable in two halves.
    let header = [0x2008_0522_u32, 0];
    let sets = [kept as u32, kept as u32, 0, (kept >> 32) as u32, (kept >> 32) as u32, 0];
    // SAFETY: the kernel reads these two, which are as long as version 3 has them.
    unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr()) };
}

/// What may still be done with files: nothing but what was allowed.
pub struct Rules {
    fd: OwnedFd,
    /// The rights that this kernel's landlock knows.
    known: u64,
}

impl Rules {
    fn new() -> io::Result<Self> {
        Self::made(handled(version()?))
    }

    fn made(handled: [u64; 3]) -> io::Result<Self> {
        // SAFETY: reads the array, of the size given.
        let made = unsafe {
            libc::syscall(libc::SYS_landlock_create_ruleset, handled.as_ptr(), size_of_val(&handled), 0)
        };
        let made = checked(made)? as i32;
        // SAFETY: it was just made, and nobody else has it.
        Ok(Self { fd: unsafe { OwnedFd::from_raw_fd(made) }, known: handled[0] })
    }

    /// Gives rights on a file, or on all below a directory.
    fn allow(&self, file: BorrowedFd<'_>, rights: u64) -> io::Result<()> {
        // Those of directories are none that a file could have.
        let kind = FileType::from_raw_mode(rustix::fs::fstat(file)?.st_mode);
        let meant = if kind == FileType::Directory { u64::MAX } else { OF_FILES };
        let rights = rights & meant & self.known;
        let mut rule = [0; 12];
        rule[..8].copy_from_slice(&rights.to_ne_bytes());
        rule[8..].copy_from_slice(&file.as_raw_fd().to_ne_bytes());
        // SAFETY: reads the twelve bytes of a rule of kind 1, a right on all below a descriptor.
        checked(unsafe {
            libc::syscall(libc::SYS_landlock_add_rule, self.fd.as_raw_fd(), 1, rule.as_ptr(), 0)
        })
        .map(drop)
    }

    /// The same by a path, where there is something.
    fn allow_at(&self, path: &Path, rights: u64) -> io::Result<()> {
        match rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
            Ok(file) => self.allow(file.as_fd(), rights),
            Err(_) => Ok(()),
        }
    }
}

/// The version of this kernel's landlock.
fn version() -> io::Result<i64> {
    // SAFETY: asks for the version; nothing is read.
    checked(unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u64>(), 0, 1) })
}

/// What the daemon of an image may still open.
pub fn of_image() -> io::Result<Rules> {
    let rules = Rules::new()?;
    serving(&rules)?;
    Ok(rules)
}

/// What resolving names, certificates and libraries that are loaded for it take.
const SYSTEM: [&str; 11] = [
    "/etc",
    "/usr",
    "/lib",
    "/lib64",
    "/bin",
    "/run/systemd/resolve",
    "/run/resolvconf",
    "/run/NetworkManager",
    "/run/nscd",
    "/dev/null",
    "/dev/urandom",
];

/// What who speaks to other machines may still open: these, whole, to write, and the others to read.
pub fn of_network(places: &Places) -> io::Result<Rules> {
    let version = version()?;
    if version < RENAMES {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "this takes Linux 5.19"));
    }
    let [files, _, scopes] = handled(version);
    let rules = Rules::made([files, 0, scopes])?;
    serving(&rules)?;
    for place in SYSTEM.iter().map(Path::new).chain(places.readable.iter().map(PathBuf::as_path)) {
        rules.allow_at(place, READ_FILE | READ_DIR)?;
    }
    for place in &places.writable {
        // EXECUTE: the kernel opens what it passes through with our rights, for programs that others start from a volume.
        // We start none: the filter of system calls has no call for that.
        rules.allow_at(place, !(MAKE_CHAR | MAKE_BLOCK))?;
    }
    Ok(rules)
}

/// The directory of this process in procfs. It stays open: a rule is for an inode, and where nobody uses it the kernel drops this
/// one, and makes another, for which there is no rule.
fn own_process() -> Option<BorrowedFd<'static>> {
    static OPEN: OnceLock<Option<OwnedFd>> = OnceLock::new();
    let open = || rustix::fs::open("/proc/self", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok();
    OPEN.get_or_init(open).as_ref().map(AsFd::as_fd)
}

/// What all daemons may still open.
fn serving(rules: &Rules) -> io::Result<()> {
    // More threads that read requests.
    rules.allow_at("/dev/fuse".as_ref(), READ_FILE | WRITE_FILE | IOCTL_DEVICE)?;
    // What `shunt stat` tells of us.
    if let Some(process) = own_process() {
        rules.allow(process, READ_FILE | READ_DIR)?;
    }
    // The control socket goes with us.
    if let Ok(dir) = SocketDir::own() {
        rules.allow_at(&dir.path, REMOVE_FILE)?;
    }
    Ok(())
}

fn checked(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
