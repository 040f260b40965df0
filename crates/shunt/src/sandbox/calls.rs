//! System calls that are refused.

use std::collections::BTreeMap;

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

/// Calls that no daemon has a use for once its mount and its sockets are there. They give EPERM.
const FORBIDDEN: &[libc::c_long] = &[
    // Programs.
    libc::SYS_execve,
    libc::SYS_execveat,
    // The network, and other daemons' sockets.
    libc::SYS_socket,
    libc::SYS_socketpair,
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_listen,
    // Other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    // The kernel itself.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_sethostname,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_fanotify_init,
    // A ring does what no filter sees.
    libc::SYS_io_uring_setup,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    // What is seen of the file tree.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsmount,
    libc::SYS_fsconfig,
    libc::SYS_mount_setattr,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_setns,
];

/// Calls by which others' files are reached, made and changed. Who shows a directory has a use for them.
const MIRRORING: &[libc::c_long] = &[
    libc::SYS_unshare,
    libc::SYS_open_by_handle_at,
    // Who we are, and what is there.
    libc::SYS_setuid,
    libc::SYS_setgid,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chmod,
    libc::SYS_fchmodat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chown,
    libc::SYS_fchownat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_link,
    libc::SYS_linkat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_symlink,
    libc::SYS_symlinkat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_mknod,
    libc::SYS_mknodat,
];

/// Starting a ring that was made disabled: `IORING_REGISTER_ENABLE_RINGS`.
const START: u64 = 12;

/// Calls that only who serves a guest can do without.
const GUEST: &[libc::c_long] = &[
    // Other processes, of which root may signal all.
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_tgkill,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_send_signal,
];

/// Flags of `clone(2)` that threads are not made with.
const NAMESPACES: [libc::c_int; 7] = [
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWCGROUP,
];

/// Whom the filter is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum For {
    /// Who serves an image. `rings`: requests come by io_uring.
    Image { rings: bool },
    /// Who shows a guest a directory.
    Guest,
}

/// Where requests come by rings, those that are there are started and entered; what they may be asked for was settled when
/// they were made.
fn filter(whom: For) -> Result<BpfProgram, BackendError> {
    let more = if whom == For::Guest { GUEST } else { MIRRORING };
    let forbidden = FORBIDDEN.iter().chain(more);
    let mut rules: BTreeMap<i64, _> = forbidden.map(|number| (*number, Vec::new())).collect();
    if whom == For::Guest {
        // Threads have working directories and umasks of their own. No namespaces, in which they would have rights.
        let own = libc::CLONE_FS.cast_unsigned().into();
        let other = SeccompCondition::new(0, SeccompCmpArgLen::Qword, SeccompCmpOp::Ne, own)?;
        rules.insert(libc::SYS_unshare, vec![SeccompRule::new(vec![other])?]);
        let namespaces = NAMESPACES.iter().map(|flag| {
            let flag = u64::from(flag.cast_unsigned());
            let set = SeccompCmpOp::MaskedEq(flag);
            SeccompRule::new(vec![SeccompCondition::new(0, SeccompCmpArgLen::Qword, set, flag)?])
        });
        rules.insert(libc::SYS_clone, namespaces.collect::<Result<_, _>>()?);
    }
    let mut register = Vec::new();
    if whom == (For::Image { rings: true }) {
        let other = SeccompCondition::new(1, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, START)?;
        register.push(SeccompRule::new(vec![other])?);
    } else {
        rules.insert(libc::SYS_io_uring_enter, Vec::new());
    }
    rules.insert(libc::SYS_io_uring_register, register);
    let refused = SeccompAction::Errno(libc::EPERM.cast_unsigned());
    SeccompFilter::new(rules, SeccompAction::Allow, refused, std::env::consts::ARCH.try_into()?)?.try_into()
}

/// The flags of `clone3` no filter can see: libraries go back to `clone` where it is not there.
fn without_clone3() -> Result<BpfProgram, BackendError> {
    let rules = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    let absent = SeccompAction::Errno(libc::ENOSYS.cast_unsigned());
    SeccompFilter::new(rules, SeccompAction::Allow, absent, std::env::consts::ARCH.try_into()?)?.try_into()
}

/// Locks all threads of this process in, and those that come. A set-user-id program has no effect from then on.
pub fn forbid(whom: For) -> Result<(), String> {
    let lock = |filter: Result<BpfProgram, BackendError>| {
        let filter = filter.map_err(|error| error.to_string())?;
        seccompiler::apply_filter_all_threads(&filter).map_err(|error| error.to_string())
    };
    lock(filter(whom))?;
    if whom == For::Guest { lock(without_clone3()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;
    use rustix::net::{AddressFamily, SocketType, socket};

    use super::*;

    #[test]
    fn what_is_forbidden_is_refused() {
        // On a thread of its own: the other tests go on as they are.
        let inside = || {
            seccompiler::apply_filter(&filter(For::Image { rings: false }).unwrap()).unwrap();
            assert_eq!(socket(AddressFamily::INET, SocketType::STREAM, None).unwrap_err(), Errno::PERM);
            assert_eq!(socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap_err(), Errno::PERM);
            let program = std::process::Command::new("/bin/true").spawn();
            assert_eq!(program.unwrap_err().kind(), std::io::ErrorKind::PermissionDenied);
            std::fs::read("/proc/self/statm").unwrap();
        };
        std::thread::spawn(inside).join().unwrap();
    }

    #[test]
    fn who_serves_a_guest_makes_threads_and_no_namespaces() {
        use rustix::thread::{UnshareFlags, unshare_unsafe};
        let inside = || {
            seccompiler::apply_filter(&filter(For::Guest).unwrap()).unwrap();
            seccompiler::apply_filter(&without_clone3().unwrap()).unwrap();
            // SAFETY: nothing that this thread shares by memory is unshared.
            unsafe {
                unshare_unsafe(UnshareFlags::FS).unwrap();
                assert_eq!(unshare_unsafe(UnshareFlags::NEWUSER), Err(Errno::PERM));
                assert_eq!(unshare_unsafe(UnshareFlags::FS | UnshareFlags::NEWNS), Err(Errno::PERM));
            }
            let flags = libc::CLONE_NEWUSER | libc::SIGCHLD;
            // SAFETY: as a fork, if it worked; it does not.
            let cloned = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
            assert_eq!(cloned, -1);
            let this = rustix::process::getpid();
            assert_eq!(rustix::process::test_kill_process(this), Err(Errno::PERM));
            std::thread::spawn(|| ()).join().unwrap();
        };
        std::thread::spawn(inside).join().unwrap();
    }
}
