//! The landlock(7) sandbox: restricts the files that each thread can open to those that serving needs, and drops its
//! capabilities.
//!
//! Rulesets are made by the crate `landlock`, which leaves out what the running kernel does not handle. Only
//! `landlock_restrict_self` is called directly: each thread calls it in a signal handler, where the crate may not allocate.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible as _, PathBeneath, Ruleset,
    RulesetAttr as _, RulesetCreated, RulesetCreatedAttr as _, RulesetError, Scope, make_bitflags,
};
use rustix::fs::{Mode, OFlags};
use rustix::thread::{CapabilitySet, gettid};
use signal_hook::consts::SIGUSR2;

use crate::control::SocketDir;

/// The version of landlock whose rights on files are handled: all that it knows, as far as the kernel does.
const FILE_ABI: ABI = ABI::V5;
/// The version whose rights on TCP are handled: all of them.
const NETWORK_ABI: ABI = ABI::V4;
/// The version whose scopes are handled: they confine abstract sockets and signals.
const SCOPE_ABI: ABI = ABI::V6;

/// Files and directories of a daemon that uses the network.
#[derive(Clone, Debug, Default)]
pub struct AccessiblePaths {
    /// Directories and files to be written, with everything below.
    pub writable: Vec<PathBuf>,
    /// Directories and files to be read, with everything below.
    pub readable: Vec<PathBuf>,
}

/// Timeout for a thread to restrict itself.
const RESTRICTION_TIMEOUT: Duration = Duration::from_secs(2);

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
    RULES.store(rules.as_ref().map_or(-1, |rules| rules.0.as_raw_fd()), Ordering::SeqCst);
    KEPT_CAPABILITIES.store(kept.bits(), Ordering::SeqCst);
    // SAFETY: the handler only makes system calls and changes atomics.
    let handler = unsafe { signal_hook::low_level::register(SIGUSR2, restrict_this_thread) }?;
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
pub fn restrict_process_to(below: Option<BorrowedFd<'_>>, kept: CapabilitySet) -> io::Result<()> {
    let build = || -> io::Result<Rules> {
        let mut rules = Builder::new()?;
        if let Some(directory) = below {
            rules.allow(directory, AccessFs::from_all(FILE_ABI))?;
        }
        rules.finish()
    };
    let rules = build();
    RULES.store(rules.as_ref().map_or(-1, |rules| rules.0.as_raw_fd()), Ordering::SeqCst);
    KEPT_CAPABILITIES.store(kept.bits(), Ordering::SeqCst);
    restrict_this_thread();
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
    restrict_this_thread();
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
        if begun.elapsed() > RESTRICTION_TIMEOUT {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "a thread did not respond in time"));
        }
        std::thread::sleep(Duration::from_micros(100));
    }
    Ok(())
}

/// Restricts this thread, and verifies that by opening `/`.
fn restrict_this_thread() {
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
pub struct Rules(OwnedFd);

/// A ruleset to which rules are added.
struct Builder(RulesetCreated);

impl Builder {
    /// All accesses to files and to TCP, and the scopes.
    fn new() -> io::Result<Self> {
        Self::made(|rules| rules.handle_access(AccessNet::from_all(NETWORK_ABI)))
    }

    /// All accesses to files, the scopes, and what `further` adds.
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`] if the kernel has no landlock, or lacks what `further` requires.
    fn made(further: impl FnOnce(Ruleset) -> Result<Ruleset, RulesetError>) -> io::Result<Self> {
        let created = || -> Result<RulesetCreated, RulesetError> {
            let rules = further(Ruleset::default())?
                .set_compatibility(CompatLevel::BestEffort)
                .handle_access(AccessFs::from_all(FILE_ABI))?
                .scope(Scope::from_all(SCOPE_ABI))?;
            rules.create()
        };
        created().map(Self).map_err(unsupported)
    }

    /// Allows rights on a file, or on everything below a directory.
    fn allow(&mut self, file: BorrowedFd<'_>, rights: BitFlags<AccessFs>) -> io::Result<()> {
        // Rights of directories are left out of a rule for a file, and rights that the kernel does not handle of all rules.
        (&mut self.0).add_rule(PathBeneath::new(file, rights)).map(drop).map_err(io::Error::other)
    }

    /// Allows rights on the file at a path, if it exists.
    fn allow_at(&mut self, path: &Path, rights: BitFlags<AccessFs>) -> io::Result<()> {
        match rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
            Ok(file) => self.allow(file.as_fd(), rights),
            Err(_) => Ok(()),
        }
    }

    /// The finished ruleset.
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`] if the kernel has no landlock.
    fn finish(self) -> io::Result<Rules> {
        let file: Option<OwnedFd> = self.0.into();
        file.map(Rules).ok_or_else(|| {
            io::Error::new(io::ErrorKind::Unsupported, "the kernel lacks Landlock or does not enable it")
        })
    }
}

/// The files that the daemon of an image can still open.
pub fn of_image() -> io::Result<Rules> {
    let mut rules = Builder::new()?;
    serving(&mut rules)?;
    rules.finish()
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
pub fn of_network(paths: &AccessiblePaths) -> io::Result<Rules> {
    // Renames between directories cannot be allowed without this right, which Linux 5.19 added.
    let renames =
        |rules: Ruleset| rules.set_compatibility(CompatLevel::HardRequirement).handle_access(AccessFs::Refer);
    let mut rules = Builder::made(renames).map_err(|error| {
        io::Error::new(io::ErrorKind::Unsupported, format!("renames require Linux 5.19: {error}"))
    })?;
    serving(&mut rules)?;
    for path in SYSTEM.iter().map(Path::new).chain(paths.readable.iter().map(PathBuf::as_path)) {
        rules.allow_at(path, make_bitflags!(AccessFs::{ReadFile | ReadDir}))?;
    }
    let (all, devices) = (AccessFs::from_all(FILE_ABI), make_bitflags!(AccessFs::{MakeChar | MakeBlock}));
    for path in &paths.writable {
        // EXECUTE: the kernel opens backing files with the daemon's rights, for programs that users run from a volume. The daemon
        // itself runs none: its seccomp filter has no execve.
        rules.allow_at(path, all & !devices)?;
    }
    rules.finish()
}

/// The directory of this process in procfs. It stays open: a rule applies to an inode, and the kernel drops an unused inode of
/// procfs and later creates another one, without a rule.
fn own_process() -> Option<BorrowedFd<'static>> {
    static OPEN: OnceLock<Option<OwnedFd>> = OnceLock::new();
    let open = || rustix::fs::open("/proc/self", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok();
    OPEN.get_or_init(open).as_ref().map(AsFd::as_fd)
}

/// Allows the files that every daemon opens.
fn serving(rules: &mut Builder) -> io::Result<()> {
    // For further threads that read requests.
    rules.allow_at("/dev/fuse".as_ref(), make_bitflags!(AccessFs::{ReadFile | WriteFile | IoctlDev}))?;
    // For the statistics of `shunt stat`.
    if let Some(process) = own_process() {
        rules.allow(process, make_bitflags!(AccessFs::{ReadFile | ReadDir}))?;
    }
    // The daemon removes its control socket at the end.
    if let Ok(dir) = SocketDir::own() {
        rules.allow_at(&dir.path, AccessFs::RemoveFile.into())?;
    }
    Ok(())
}

fn unsupported(error: RulesetError) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, error)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rights, as bits, that a kernel of a version handles.
    fn handled(kernel: ABI) -> [u64; 3] {
        [
            (AccessFs::from_all(FILE_ABI) & AccessFs::from_all(kernel)).bits(),
            (AccessNet::from_all(NETWORK_ABI) & AccessNet::from_all(kernel)).bits(),
            (Scope::from_all(SCOPE_ABI) & Scope::from_all(kernel)).bits(),
        ]
    }

    /// A crate of another version must neither give rights away nor deny ones that serving needs.
    #[test]
    fn each_version_handles_its_rights_and_later_ones_no_more() {
        assert_eq!(handled(ABI::V1), [(1 << 13) - 1, 0, 0]);
        assert_eq!(handled(ABI::V2), [(1 << 14) - 1, 0, 0]);
        assert_eq!(handled(ABI::V3), [(1 << 15) - 1, 0, 0]);
        assert_eq!(handled(ABI::V4), [(1 << 15) - 1, 3, 0]);
        assert_eq!(handled(ABI::V5), [(1 << 16) - 1, 3, 0]);
        for later in [ABI::V6, ABI::V7, ABI::V8, ABI::V9, ABI::V10] {
            assert_eq!(handled(later), [(1 << 16) - 1, 3, 3]);
        }
    }
}
