//! Per-thread credentials for file operations.
//!
//! The daemon runs as root, and the client has checked permissions before it sends a request. Two things still depend
//! on credentials: files that a caller creates must belong to the caller, and some of root's privileges must not apply
//! to requests. Credentials are per thread, so this module bypasses libc, which would apply changes to all threads.

use std::cell::Cell;
use std::marker::PhantomData;
use std::os::fd::AsFd;

use rustix::fs::{AtFlags, Mode, StatxFlags};
use rustix::io::Errno;
use rustix::process::Pid;
use rustix::thread::{CapabilitiesSecureBits, CapabilitySet, CapabilitySets, Gid};

use super::sys;

/// Capabilities that are never effective on a serving thread.
///
/// With FSETID, writes would leave setuid and setgid bits in place. The kernel performs I/O on backing files with the
/// rights of the thread that registered them, so this also holds for data that the daemon never sees. With
/// SYS_RESOURCE, quotas would not be enforced. (Blocks that ext4 reserves for root are available to every caller: ext4
/// checks the user id.)
const DROPPED_CAPABILITIES: CapabilitySet = CapabilitySet::FSETID.union(CapabilitySet::SYS_RESOURCE);

/// Capabilities needed to act as another user and still open every file.
const NEEDED: CapabilitySet = CapabilitySet::SETUID
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETPCAP)
    .union(CapabilitySet::DAC_OVERRIDE);

#[derive(Clone, Copy)]
struct Thread {
    /// The thread may act as other users.
    privileged: bool,
    /// The thread may change its supplementary groups: not in a user namespace whose `setgroups` is denied, which an
    /// unprivileged user creates.
    regroups: bool,
    usual: CapabilitySets,
    /// The usual capabilities plus CAP_FSETID, if the process has it.
    with_fsetid: Option<CapabilitySets>,
    uid: u32,
    gid: u32,
}

thread_local! {
    static THREAD: Cell<Option<Thread>> = const { Cell::new(None) };
}

/// Reports whether this process may act as its callers.
#[cfg(test)]
pub(super) fn privileged() -> bool {
    rustix::thread::capabilities(None).is_ok_and(|sets| sets.permitted.contains(NEEDED))
}

/// Prepares the calling thread for serving; does nothing if that was done before.
///
/// Afterwards the thread has a umask of its own, an empty list of supplementary groups, neither CAP_FSETID nor
/// CAP_SYS_RESOURCE, and keeps its capabilities when it acts as another user. In a user namespace whose `setgroups` is
/// denied it keeps the groups of the user who started the daemon: the only user whose id such a namespace has.
///
/// # Errors
/// The error of `unshare(2)`, `capset(2)`, `prctl(2)` or `setgroups(2)`, except for groups that no process may change
/// here.
pub(super) fn enter_thread() -> Result<(), Errno> {
    if THREAD.get().is_some() {
        return Ok(());
    }
    sys::unshare_fs()?;
    let mut usual = rustix::thread::capabilities(None)?;
    let privileged = usual.permitted.contains(NEEDED);
    let mut regroups = privileged;
    if privileged {
        // Otherwise the kernel would drop the file-system capabilities when the user id changes from 0.
        let bits = rustix::thread::capabilities_secure_bits()?;
        rustix::thread::set_capabilities_secure_bits(bits | CapabilitiesSecureBits::NO_SETUID_FIXUP)?;
        match rustix::thread::set_thread_groups(&[]) {
            Err(Errno::PERM) if groups_are_fixed() => regroups = false,
            result => result?,
        }
    }
    let fsetid = usual.permitted.contains(CapabilitySet::FSETID);
    usual.effective.remove(DROPPED_CAPABILITIES);
    rustix::thread::set_capabilities(None, usual)?;
    let with_fsetid =
        fsetid.then(|| CapabilitySets { effective: usual.effective | CapabilitySet::FSETID, ..usual });
    THREAD.set(Some(Thread {
        privileged,
        regroups,
        usual,
        with_fsetid,
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
    }));
    Ok(())
}

/// Reports whether the user namespace denies `setgroups(2)`.
fn groups_are_fixed() -> bool {
    std::fs::read("/proc/thread-self/setgroups").is_ok_and(|word| word.trim_ascii() == b"deny")
}

fn thread() -> Result<Thread, Errno> {
    enter_thread()?;
    THREAD.get().ok_or(Errno::PERM)
}

/// The user on whose behalf a file is created. Ids are those of the lower file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Caller {
    /// File-system user id.
    pub uid: u32,
    /// File-system group id.
    pub gid: u32,
    /// A supplementary group that matters for the parent directory.
    pub group: Option<u32>,
    /// The process, if it is visible from here.
    pub pid: Option<Pid>,
}

impl Caller {
    /// root.
    #[cfg(test)]
    pub(crate) const ROOT: Caller = Caller { uid: 0, gid: 0, group: None, pid: None };

    /// Reports whether the caller is assumed to have CAP_FSETID; requests do not carry capabilities.
    pub(crate) fn keeps_setid(&self) -> bool {
        self.uid == 0
    }

    /// Reports whether `group` is the caller's, or among its supplementary groups, which requests do not carry. All ids
    /// are those of the client.
    pub(crate) fn is_in(&self, group: u32) -> bool {
        let listed = |pid: Pid| {
            let status = std::fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).ok()?;
            let groups = status.lines().find_map(|line| line.strip_prefix("Groups:"))?;
            Some(groups.split_ascii_whitespace().any(|listed| listed.parse() == Ok(group)))
        };
        self.gid == group || self.pid.and_then(listed) == Some(true)
    }
}

/// A guard under which the thread creates files as the caller, and with the caller's umask.
#[derive(Debug)]
pub(super) struct AsCaller {
    /// The thread's own ids, if they were changed.
    own: Option<(u32, u32)>,
    groups: bool,
    /// Credentials belong to the thread, so the guard must be dropped on it.
    thread_bound: PhantomData<*const ()>,
}

impl AsCaller {
    /// Switches to the caller. Without the privilege only the umask is set: all callers are then the daemon's own user.
    ///
    /// # Errors
    /// EPERM if the kernel rejects an id (4294967295 is invalid).
    pub(super) fn enter(caller: Caller, umask: u32) -> Result<Self, Errno> {
        let thread = thread()?;
        let mut guard = Self { own: None, groups: false, thread_bound: PhantomData };
        if thread.privileged {
            if let Some(group) = caller.group.filter(|_| thread.regroups) {
                if group == u32::MAX {
                    return Err(Errno::PERM);
                }
                rustix::thread::set_thread_groups(&[Gid::from_raw(group)])?;
                guard.groups = true;
            }
            if (caller.uid, caller.gid) != (thread.uid, thread.gid) {
                guard.own = Some((thread.uid, thread.gid));
                let valid = caller.uid != u32::MAX && caller.gid != u32::MAX;
                if !(valid && sys::set_fsgid(caller.gid) && sys::set_fsuid(caller.uid)) {
                    return Err(Errno::PERM);
                }
            }
        }
        rustix::process::umask(Mode::from_raw_mode(umask & 0o777));
        Ok(guard)
    }
}

impl Drop for AsCaller {
    fn drop(&mut self) {
        let restored = self.own.is_none_or(|(uid, gid)| sys::set_fsuid(uid) && sys::set_fsgid(gid))
            && (!self.groups || rustix::thread::set_thread_groups(&[]).is_ok());
        if !restored {
            // Restoring one's own ids cannot fail. A thread that failed would serve others under the wrong ids.
            std::process::abort();
        }
    }
}

/// A guard under which the thread is a member of a file's group if the caller is: a write by a member keeps a setgid
/// bit without group execution.
#[derive(Debug)]
pub(super) struct AsMember {
    /// The thread's own group, if it was changed.
    own: Option<u32>,
    thread_bound: PhantomData<*const ()>,
}

impl AsMember {
    /// Joins the group of `file` if the file has setgid without group execution, the caller is a member and the thread
    /// is privileged. `is_member` receives the group id of the lower file system.
    ///
    /// # Errors
    /// The error of [`enter_thread`].
    pub(super) fn of(file: impl AsFd, is_member: impl FnOnce(&u32) -> bool) -> Result<Self, Errno> {
        let thread = thread()?;
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let stat = rustix::fs::statx(file, c"", flags, StatxFlags::MODE | StatxFlags::GID).ok();
        let group = stat.filter(|stat| stat.stx_mode & 0o2010 == 0o2000).map(|stat| stat.stx_gid);
        let joins = |group: &u32| thread.privileged && *group != thread.gid && *group != u32::MAX;
        let own = group.filter(joins).filter(is_member).filter(|group| sys::set_fsgid(*group));
        Ok(Self { own: own.map(|_| thread.gid), thread_bound: PhantomData })
    }
}

impl Drop for AsMember {
    fn drop(&mut self) {
        if self.own.is_some_and(|gid| !sys::set_fsgid(gid)) {
            // Restoring one's own group cannot fail: see [`AsCaller`].
            std::process::abort();
        }
    }
}

/// A guard under which the kernel keeps setuid and setgid bits, because the caller has the right to.
#[derive(Debug)]
pub(super) struct KeepSetid {
    raised: bool,
    thread_bound: PhantomData<*const ()>,
}

impl KeepSetid {
    /// Raises CAP_FSETID if `keep` is set and the process has it.
    ///
    /// # Errors
    /// The error of `capset(2)`.
    pub(super) fn when(keep: bool) -> Result<Self, Errno> {
        let mut raised = false;
        if keep && let Some(sets) = thread()?.with_fsetid {
            rustix::thread::set_capabilities(None, sets)?;
            raised = true;
        }
        Ok(Self { raised, thread_bound: PhantomData })
    }

    /// Raises CAP_FSETID for an operation on `file`. Does nothing if the file has neither bit: the `statx` costs less
    /// than two changes of capabilities.
    ///
    /// # Errors
    /// The error of `capset(2)`.
    pub(super) fn of(file: impl AsFd, keep: bool) -> Result<Self, Errno> {
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let has_bits = || {
            let stat = rustix::fs::statx(file, c"", flags, StatxFlags::MODE);
            stat.map_or(true, |stat| stat.stx_mode & 0o6000 != 0)
        };
        Self::when(keep && has_bits())
    }
}

impl Drop for KeepSetid {
    fn drop(&mut self) {
        if !self.raised {
            return;
        }
        let lowered =
            THREAD.get().is_some_and(|thread| rustix::thread::set_capabilities(None, thread.usual).is_ok());
        if !lowered {
            // Dropping a capability cannot fail. If it stayed, writes of other callers would leave setuid bits in
            // place.
            std::process::abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_thread(test: impl FnOnce() + Send) {
        std::thread::scope(|scope| scope.spawn(test).join().unwrap());
    }

    fn effective() -> CapabilitySet {
        rustix::thread::capabilities(None).unwrap().effective
    }

    fn fsids() -> (String, String, String) {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = |key: &str| status.lines().find(|line| line.starts_with(key)).unwrap().trim().to_owned();
        (line("Uid:"), line("Gid:"), line("Groups:"))
    }

    #[test]
    fn a_serving_thread_lacks_fsetid_and_resource() {
        in_thread(|| {
            enter_thread().unwrap();
            assert!(!effective().intersects(DROPPED_CAPABILITIES));
        });
    }

    #[test]
    fn the_callers_ids_are_taken_and_given_back() {
        if !privileged() {
            eprintln!("skipped: needs root");
            return;
        }
        in_thread(|| {
            enter_thread().unwrap();
            let (before, capabilities) = (fsids(), effective());
            {
                let _guard =
                    AsCaller::enter(Caller { uid: 1234, gid: 2345, group: Some(3456), pid: None }, 0o77)
                        .unwrap();
                let (uid, gid, groups) = fsids();
                assert!(uid.ends_with("1234") && gid.ends_with("2345") && groups.ends_with("3456"));
                assert_eq!(effective(), capabilities, "capabilities stay");
            }
            assert_eq!(fsids(), before);
            assert_eq!(effective(), capabilities);
            assert_eq!(
                AsCaller::enter(Caller { uid: u32::MAX, gid: 0, group: None, pid: None }, 0).unwrap_err(),
                Errno::PERM
            );
            assert_eq!(fsids(), before);
        });
    }

    #[test]
    fn fsetid_is_raised_for_one_call() {
        if !privileged() {
            eprintln!("skipped: needs root");
            return;
        }
        in_thread(|| {
            {
                let _keep = KeepSetid::when(true).unwrap();
                assert!(effective().contains(CapabilitySet::FSETID));
            }
            assert!(!effective().contains(CapabilitySet::FSETID));
            let _keep = KeepSetid::when(false).unwrap();
            assert!(!effective().contains(CapabilitySet::FSETID));
        });
    }

    #[test]
    fn the_umask_is_the_threads_own() {
        in_thread(|| {
            drop(AsCaller::enter(Caller { uid: 0, gid: 0, group: None, pid: None }, 0o123).unwrap());
            in_thread(|| {
                drop(AsCaller::enter(Caller { uid: 0, gid: 0, group: None, pid: None }, 0o456).unwrap());
            });
            assert_eq!(rustix::process::umask(Mode::empty()).as_raw_mode(), 0o123);
        });
    }
}
