//! Whose rights a thread uses.
//!
//! The daemon runs as root, and the other side has checked permissions before it asks. Two things must still be done
//! in somebody else's name: what a caller makes belongs to the caller, and some of root's privileges must not leak
//! into what is done for others. All of it is per thread, so everything here goes past libc, which would apply it to
//! all threads.

use std::cell::Cell;
use std::marker::PhantomData;
use std::os::fd::AsFd;

use rustix::fs::{AtFlags, Mode, StatxFlags};
use rustix::io::Errno;
use rustix::process::Pid;
use rustix::thread::{CapabilitiesSecureBits, CapabilitySet, CapabilitySets, Gid};

use super::sys;

/// Never effective on a thread that serves.
///
/// FSETID: with it, writes leave setuid and setgid bits in place. The kernel performs I/O on backing files with the
/// rights of the thread that registered them, so this holds for data that the daemon never sees. SYS_RESOURCE: with
/// it, quotas do not bind. (Blocks that ext4 reserves for root bind nobody here: they go by the user id.)
const DROPPED: CapabilitySet = CapabilitySet::FSETID.union(CapabilitySet::SYS_RESOURCE);

/// What it takes to act as somebody else and still open every file.
const NEEDED: CapabilitySet = CapabilitySet::SETUID
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETPCAP)
    .union(CapabilitySet::DAC_OVERRIDE);

#[derive(Clone, Copy)]
struct Thread {
    /// May act as others.
    privileged: bool,
    /// May change its supplementary groups: not in a user namespace whose `setgroups` is denied, which an unprivileged user
    /// makes.
    regroups: bool,
    usual: CapabilitySets,
    /// The usual ones with CAP_FSETID, where the process has it.
    with_fsetid: Option<CapabilitySets>,
    uid: u32,
    gid: u32,
}

thread_local! {
    static THREAD: Cell<Option<Thread>> = const { Cell::new(None) };
}

/// Whether this process may act as its callers.
pub fn privileged() -> bool {
    rustix::thread::capabilities(None).is_ok_and(|sets| sets.permitted.contains(NEEDED))
}

/// Prepares the calling thread to serve; at once where that was done before.
///
/// Afterwards the thread has a umask of its own, an empty list of supplementary groups, neither CAP_FSETID nor
/// CAP_SYS_RESOURCE, and keeps its capabilities when it acts as another user. In a user namespace whose `setgroups` is denied
/// it keeps the groups of who started the daemon: the only user whose id such a namespace has.
///
/// # Errors
/// Those of `unshare(2)`, `capset(2)`, `prctl(2)` and `setgroups(2)`, except for groups that nobody may change here.
pub fn enter_thread() -> Result<(), Errno> {
    if THREAD.get().is_some() {
        return Ok(());
    }
    sys::unshare_fs()?;
    let mut usual = rustix::thread::capabilities(None)?;
    let privileged = usual.permitted.contains(NEEDED);
    let mut regroups = privileged;
    if privileged {
        // Else the kernel takes the file-system capabilities away whenever the user id leaves 0.
        let bits = rustix::thread::capabilities_secure_bits()?;
        rustix::thread::set_capabilities_secure_bits(bits | CapabilitiesSecureBits::NO_SETUID_FIXUP)?;
        match rustix::thread::set_thread_groups(&[]) {
            Err(Errno::PERM) if groups_are_fixed() => regroups = false,
            result => result?,
        }
    }
    let fsetid = usual.permitted.contains(CapabilitySet::FSETID);
    usual.effective.remove(DROPPED);
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

/// Whether the user namespace forbids `setgroups(2)` to everybody in it.
fn groups_are_fixed() -> bool {
    std::fs::read("/proc/thread-self/setgroups").is_ok_and(|word| word.trim_ascii() == b"deny")
}

fn thread() -> Result<Thread, Errno> {
    enter_thread()?;
    THREAD.get().ok_or(Errno::PERM)
}

/// In whose name something is made. Ids are those of the lower file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caller {
    /// File-system user id.
    pub uid: u32,
    /// File-system group id.
    pub gid: u32,
    /// A supplementary group that matters for the parent directory.
    pub group: Option<u32>,
    /// The process, where it can be seen from here.
    pub pid: Option<Pid>,
}

impl Caller {
    /// root.
    pub const ROOT: Caller = Caller { uid: 0, gid: 0, group: None, pid: None };

    /// Whether the caller is held to have CAP_FSETID, which requests do not tell.
    pub fn keeps_setid(&self) -> bool {
        self.uid == 0
    }

    /// Whether `group` is the caller's, or among its supplementary groups, which requests do not tell either. All ids are those
    /// of the asking side.
    pub fn is_in(&self, group: u32) -> bool {
        let listed = |pid: Pid| {
            let status = std::fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).ok()?;
            let groups = status.lines().find_map(|line| line.strip_prefix("Groups:"))?;
            Some(groups.split_ascii_whitespace().any(|listed| listed.parse() == Ok(group)))
        };
        self.gid == group || self.pid.and_then(listed) == Some(true)
    }
}

/// While this lives, the thread makes files as the caller, and with the caller's umask.
#[derive(Debug)]
pub struct AsCaller {
    /// The thread's own ids, where they were changed.
    own: Option<(u32, u32)>,
    groups: bool,
    /// The change is the thread's: it must end there.
    thread_bound: PhantomData<*const ()>,
}

impl AsCaller {
    /// Becomes the caller. Without the privilege only the umask is set: all callers are the daemon's own user then.
    ///
    /// # Errors
    /// EPERM where the kernel refuses an id (4294967295 is none).
    pub fn enter(caller: Caller, umask: u32) -> Result<Self, Errno> {
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
            // Going back to one's own ids cannot fail. A thread that did would serve others in the wrong name.
            std::process::abort();
        }
    }
}

/// While this lives, the thread counts as a member of a file's group as the caller does: setgid without group execution stays
/// when a member writes.
#[derive(Debug)]
pub struct AsMember {
    /// The thread's own group, where it was changed.
    own: Option<u32>,
    thread_bound: PhantomData<*const ()>,
}

impl AsMember {
    /// Joins the group of `file`, where the file has setgid without group execution, the caller is a member and the thread may.
    /// `is_member` is asked for the group as the lower file system has it.
    ///
    /// # Errors
    /// Those of [`enter_thread`].
    pub fn of(file: impl AsFd, is_member: impl FnOnce(&u32) -> bool) -> Result<Self, Errno> {
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
            // As above.
            std::process::abort();
        }
    }
}

/// While this lives, setuid and setgid bits stay where the kernel would clear them: the caller may do that.
#[derive(Debug)]
pub struct KeepSetid {
    raised: bool,
    thread_bound: PhantomData<*const ()>,
}

impl KeepSetid {
    /// Raises CAP_FSETID where `keep` says so and the process has it.
    ///
    /// # Errors
    /// Those of `capset(2)`.
    pub fn when(keep: bool) -> Result<Self, Errno> {
        let mut raised = false;
        if keep && let Some(sets) = thread()?.with_fsetid {
            rustix::thread::set_capabilities(None, sets)?;
            raised = true;
        }
        Ok(Self { raised, thread_bound: PhantomData })
    }

    /// The same for what is done to `file`. Where it has neither bit there is nothing to keep, and a look at it costs
    /// less than two changes of capabilities.
    ///
    /// # Errors
    /// Those of `capset(2)`.
    pub fn of(file: impl AsFd, keep: bool) -> Result<Self, Errno> {
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
            // Giving a capability up cannot fail. With it kept, writes of others would leave setuid bits in place.
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
            assert!(!effective().intersects(DROPPED));
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
