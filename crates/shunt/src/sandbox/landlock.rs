//! The landlock(7) sandbox: restricts the files that each thread can open to those that serving needs, and drops its
//! capabilities.

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
/// The rights that apply to a file itself.
const FILE_RIGHTS: u64 = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEVICE;

/// The rights on files that a version of landlock handles; from version 4 on, two on TCP; from version 6 on, scopes that confine
/// abstract sockets and signals.
const fn handled(version: i64) -> [u64; 3] {
    let files = match version {
        1 => (1 << 13) - 1,
        2 => (1 << 14) - 1,
        3 | 4 => (1 << 15) - 1,
        _ => (1 << 16) - 1,
    };
    [files, if version >= 4 { 3 } else { 0 }, if version >= 6 { 3 } else { 0 }]
}

/// The first version that supports renames between directories.
const MIN_ABI_FOR_RENAMES: i64 = 2;

/// Files and directories of a daemon that uses the network.
#[derive(Clone, Debug, Default)]
pub struct AccessiblePaths {
    /// Directories and files to be written, with everything below.
    pub writable: Vec<PathBuf>,
    /// Directories and files to be read, with everything below.
    pub readable: Vec<PathBuf>,
}

/// How long a thread may take to restrict itself.
const LOCK_IN_TIMEOUT: Duration = Duration::from_secs(2);

/// The descriptor of the ruleset, while threads restrict themselves.
static RULES: AtomicI32 = AtomicI32::new(-1);
/// The capabilities that they keep, as bits.
static KEPT_CAPABILITIES: AtomicU64 = AtomicU64::new(0);
static LOCKED_THREADS: AtomicU32 = AtomicU32::new(0);
static FAILED_THREADS: AtomicU32 = AtomicU32::new(0);

/// Restricts all threads of this process, and those that they start later, to the given capabilities and files.
///
/// `rules` are the rules for files. Without landlock they are an error, and only the capabilities are dropped.
///
/// Landlock and capabilities apply to the calling thread. So each thread is interrupted by a signal and restricts itself in the
/// handler; a thread inherits the restrictions of the thread that starts it.
pub fn forbid(rules: io::Result<Rules>, kept: CapabilitySet) -> io::Result<()> {
    RULES.store(rules.as_ref().map_or(-1, |rules| rules.fd.as_raw_fd()), Ordering::SeqCst);
    KEPT_CAPABILITIES.store(kept.bits(), Ordering::SeqCst);
    // SAFETY: the handler only makes system calls and changes atomics.
    let handler = unsafe { signal_hook::low_level::register(SIGUSR2, lock_in) }?;
    let done = all_threads();
    signal_hook::low_level::unregister(handler);
    RULES.store(-1, Ordering::SeqCst);
    rules?;
    done
}

/// The number of threads that verified their restriction.
pub fn locked() -> u32 {
    LOCKED_THREADS.load(Ordering::SeqCst) - FAILED_THREADS.load(Ordering::SeqCst)
}

/// Restricts this process, which has a single thread: with all rights on files below a directory, if one is given, else with
/// none.
pub fn forbid_all_but(below: Option<BorrowedFd<'_>>, kept: CapabilitySet) -> io::Result<()> {
    let rules = Rules::new();
    if let (Ok(rules), Some(directory)) = (&rules, below) {
        rules.allow(directory, u64::MAX)?;
    }
    RULES.store(rules.as_ref().map_or(-1, |rules| rules.fd.as_raw_fd()), Ordering::SeqCst);
    KEPT_CAPABILITIES.store(kept.bits(), Ordering::SeqCst);
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
    // This thread comes last: with signals confined, it could no longer signal the others.
    lock_in();
    if FAILED_THREADS.load(Ordering::SeqCst) > 0 {
        Err(io::ErrorKind::PermissionDenied.into())
    } else {
        Ok(())
    }
}

fn one_thread(task: i32) -> io::Result<()> {
    let before = LOCKED_THREADS.load(Ordering::SeqCst);
    // SAFETY: passes numbers only.
    if unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), task, SIGUSR2) } != 0 {
        // The thread has ended.
        return Ok(());
    }
    let begun = Instant::now();
    let path = format!("/proc/self/task/{task}");
    while LOCKED_THREADS.load(Ordering::SeqCst) == before && Path::new(&path).exists() {
        if begun.elapsed() > LOCK_IN_TIMEOUT {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "a thread did not respond in time"));
        }
        std::thread::sleep(Duration::from_micros(100));
    }
    Ok(())
}

/// Restricts this thread, and verifies that by opening `/`.
fn lock_in() {
    drop_rights();
    // SAFETY: passes numbers, and a string with a static lifetime.
    let opened = unsafe {
        // Landlock requires no_new_privs or CAP_SYS_ADMIN.
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        libc::syscall(libc::SYS_landlock_restrict_self, RULES.load(Ordering::SeqCst), 0);
        // Fails if the thread is restricted, as no ruleset allows it.
        libc::open(c"/".as_ptr(), libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC)
    };
    if opened >= 0 {
        FAILED_THREADS.fetch_add(1, Ordering::SeqCst);
        // SAFETY: the descriptor was just opened here and nothing else uses it.
        unsafe { libc::close(opened) };
    }
    LOCKED_THREADS.fetch_add(1, Ordering::SeqCst);
}

/// Drops this thread's capabilities except those in `KEPT_CAPABILITIES`; it cannot gain any that it does not have.
fn drop_rights() {
    let kept = KEPT_CAPABILITIES.load(Ordering::Relaxed);
    // `struct __user_cap_header_struct` of version 3, for this thread; effective, permitted and inheritable in two halves.
    let header = [0x2008_0522_u32, 0];
    let sets = [kept as u32, kept as u32, 0, (kept >> 32) as u32, (kept >> 32) as u32, 0];
    // SAFETY: the kernel reads these two, whose lengths are those of version 3.
    unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr()) };
}

/// A landlock ruleset: every access to files is denied unless a rule allows it.
pub struct Rules {
    fd: OwnedFd,
    /// The rights that this kernel's landlock handles.
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
        // SAFETY: it was just created, and nothing else owns it.
        Ok(Self { fd: unsafe { OwnedFd::from_raw_fd(made) }, known: handled[0] })
    }

    /// Allows rights on a file, or on everything below a directory.
    fn allow(&self, file: BorrowedFd<'_>, rights: u64) -> io::Result<()> {
        // The kernel rejects rights of directories in a rule for a file.
        let kind = FileType::from_raw_mode(rustix::fs::fstat(file)?.st_mode);
        let meant = if kind == FileType::Directory { u64::MAX } else { FILE_RIGHTS };
        let rights = rights & meant & self.known;
        let mut rule = [0; 12];
        rule[..8].copy_from_slice(&rights.to_ne_bytes());
        rule[8..].copy_from_slice(&file.as_raw_fd().to_ne_bytes());
        // SAFETY: reads the twelve bytes of a rule of type 1 (`LANDLOCK_RULE_PATH_BENEATH`).
        checked(unsafe {
            libc::syscall(libc::SYS_landlock_add_rule, self.fd.as_raw_fd(), 1, rule.as_ptr(), 0)
        })
        .map(drop)
    }

    /// Allows rights on the file at a path, if it exists.
    fn allow_at(&self, path: &Path, rights: u64) -> io::Result<()> {
        match rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
            Ok(file) => self.allow(file.as_fd(), rights),
            Err(_) => Ok(()),
        }
    }
}

/// The version of this kernel's landlock.
fn version() -> io::Result<i64> {
    // SAFETY: queries the version; no memory is read.
    checked(unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u64>(), 0, 1) })
}

/// The files that the daemon of an image can still open.
pub fn of_image() -> io::Result<Rules> {
    let rules = Rules::new()?;
    serving(&rules)?;
    Ok(rules)
}

/// Files for resolving names, for certificates, and for libraries loaded on demand.
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

/// The files that a daemon that uses the network can still open: its writable files with all rights but making device nodes, the
/// others for reading.
pub fn of_network(places: &AccessiblePaths) -> io::Result<Rules> {
    let version = version()?;
    if version < MIN_ABI_FOR_RENAMES {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "requires Linux 5.19"));
    }
    let [files, _, scopes] = handled(version);
    let rules = Rules::made([files, 0, scopes])?;
    serving(&rules)?;
    for place in SYSTEM.iter().map(Path::new).chain(places.readable.iter().map(PathBuf::as_path)) {
        rules.allow_at(place, READ_FILE | READ_DIR)?;
    }
    for place in &places.writable {
        // EXECUTE: the kernel opens backing files with the daemon's rights, for programs that users run from a volume. The daemon
        // itself runs none: its seccomp filter has no execve.
        rules.allow_at(place, !(MAKE_CHAR | MAKE_BLOCK))?;
    }
    Ok(rules)
}

/// The directory of this process in procfs. It stays open: a rule applies to an inode, and the kernel drops an unused inode of
/// procfs and later creates another one, without a rule.
fn own_process() -> Option<BorrowedFd<'static>> {
    static OPEN: OnceLock<Option<OwnedFd>> = OnceLock::new();
    let open = || rustix::fs::open("/proc/self", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok();
    OPEN.get_or_init(open).as_ref().map(AsFd::as_fd)
}

/// Allows the files that every daemon opens.
fn serving(rules: &Rules) -> io::Result<()> {
    // For further threads that read requests.
    rules.allow_at("/dev/fuse".as_ref(), READ_FILE | WRITE_FILE | IOCTL_DEVICE)?;
    // For the statistics of `shunt stat`.
    if let Some(process) = own_process() {
        rules.allow(process, READ_FILE | READ_DIR)?;
    }
    // The daemon removes its control socket at the end.
    if let Ok(dir) = SocketDir::own() {
        rules.allow_at(&dir.path, REMOVE_FILE)?;
    }
    Ok(())
}

fn checked(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
