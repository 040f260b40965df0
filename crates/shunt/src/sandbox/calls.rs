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
    libc::SYS_unshare,
    libc::SYS_setns,
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

/// Where requests come by rings, those that are there are started and entered; what they may be asked for was settled when
/// they were made.
fn filter(rings: bool) -> Result<BpfProgram, BackendError> {
    let mut rules: BTreeMap<i64, _> = FORBIDDEN.iter().map(|number| (*number, Vec::new())).collect();
    let mut register = Vec::new();
    if rings {
        let other = SeccompCondition::new(1, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, START)?;
        register.push(SeccompRule::new(vec![other])?);
    } else {
        rules.insert(libc::SYS_io_uring_enter, Vec::new());
    }
    rules.insert(libc::SYS_io_uring_register, register);
    let refused = SeccompAction::Errno(libc::EPERM.cast_unsigned());
    SeccompFilter::new(rules, SeccompAction::Allow, refused, std::env::consts::ARCH.try_into()?)?.try_into()
}

/// Locks all threads of this process in, and those that come. `rings`: requests come by io_uring. A set-user-id program has no effect from then on.
pub fn forbid(rings: bool) -> Result<(), String> {
    let filter = filter(rings).map_err(|error| error.to_string())?;
    seccompiler::apply_filter_all_threads(&filter).map_err(|error| error.to_string())
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
            seccompiler::apply_filter(&filter(false).unwrap()).unwrap();
            assert_eq!(socket(AddressFamily::INET, SocketType::STREAM, None).unwrap_err(), Errno::PERM);
            assert_eq!(socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap_err(), Errno::PERM);
            let program = std::process::Command::new("/bin/true").spawn();
            assert_eq!(program.unwrap_err().kind(), std::io::ErrorKind::PermissionDenied);
            std::fs::read("/proc/self/statm").unwrap();
        };
        std::thread::spawn(inside).join().unwrap();
    }
}
