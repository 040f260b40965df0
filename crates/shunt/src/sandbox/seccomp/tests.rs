//! Tests of the filters, each on threads and processes of its own, so that other tests are not affected.

use std::io;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, socket};
use seccompiler::apply_filter;

use super::*;

const PLAIN: DaemonFeatures = DaemonFeatures { rings: false, kernel: false };
const RINGS: DaemonFeatures = DaemonFeatures { rings: true, kernel: false };
const ALL: DaemonFeatures = DaemonFeatures { rings: true, kernel: true };

/// An errno that no call returns by itself.
const OURS: u32 = 1234;

/// Runs `work` on a sandboxed thread.
fn inside(whom: Profile, work: impl FnOnce() + Send + 'static) {
    let locked = move || {
        apply_filter(&without_clone3().unwrap()).unwrap();
        #[cfg(target_arch = "x86_64")]
        apply_filter(&without_x32()).unwrap();
        apply_filter(&filter(whom, REFUSED_CALL).unwrap()).unwrap();
        work();
    };
    std::thread::spawn(locked).join().unwrap();
}

fn call(number: libc::c_long, arguments: [usize; 4]) -> Result<(), i32> {
    let [a, b, c, d] = arguments;
    // SAFETY: the callers pass numbers that refer to no memory.
    let result = unsafe { libc::syscall(number, a, b, c, d, 0, 0) };
    if result < 0 { Err(io::Error::last_os_error().raw_os_error().unwrap()) } else { Ok(()) }
}

/// Reports whether a sandboxed process may make a call with all its arguments zero.
fn is_allowed(program: &BpfProgram, number: libc::c_long) -> bool {
    // SAFETY: the child only makes system calls, touches no memory, and ends by one.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        // SAFETY: as above. Descriptor 0 is closed, since an allowed call would operate on it. A call that blocks is allowed as
        // well; the alarm ends it.
        unsafe {
            libc::syscall(libc::SYS_close_range, 0, libc::c_uint::MAX, 0);
            libc::alarm(1);
            let refused = apply_filter(program).is_ok()
                && libc::syscall(number, 0, 0, 0, 0, 0, 0) < 0
                && *libc::__errno_location() == OURS.cast_signed();
            libc::_exit(if refused { 42 } else { 0 });
        }
    }
    let pid = rustix::process::Pid::from_raw(child);
    let ended = rustix::process::waitpid(pid, rustix::process::WaitOptions::empty()).unwrap().unwrap();
    // If even exit were refused, the alarm would end the child; no list does that.
    ended.1.exit_status() != Some(42)
}

/// The widest filter of each kind, and its list in the repository.
#[cfg(target_arch = "x86_64")]
const LISTS: [(Profile, &str); 4] = [
    (Profile::Image(ALL), include_str!("allowed/image.txt")),
    (Profile::Extract, include_str!("allowed/extract.txt")),
    (Profile::Guest, include_str!("allowed/guest.txt")),
    (Profile::Network(ALL), include_str!("allowed/network.txt")),
];

/// The lists in the repository agree with the filters, call by call.
#[test]
#[cfg(target_arch = "x86_64")]
fn allowed_calls_match_the_list() {
    for (whom, list) in LISTS {
        let lines = list.lines().filter(|line| !line.starts_with('#'));
        let listed = lines.map(|line| {
            let (call, reason) = line.split_once("  ").expect("two spaces before the reason");
            assert!(!reason.is_empty(), "{line}");
            let mut words = call.split(' ');
            let number: i64 = words.next().unwrap().parse().unwrap();
            (number, words.nth(1) == Some("part"))
        });
        let listed: BTreeMap<_, _> = listed.collect();
        assert!(listed.len() <= 90, "{whom:?}: {} calls", listed.len());
        let rules = allowed(whom).unwrap();
        assert!(listed.keys().eq(rules.keys()), "{whom:?}: {:?}", rules.keys());
        let program = compile(rules, SeccompAction::Errno(OURS), SeccompAction::Allow).unwrap();
        for number in 0..=600 {
            match listed.get(&number) {
                // Allowed or not depending on arguments.
                Some(true) => {}
                // `uretprobe(2)` and `uprobe(2)` bypass all filters, and work only from code that the kernel injected.
                None if matches!(number, 335 | 336) => {}
                listed => {
                    assert_eq!(is_allowed(&program, number), listed.is_some(), "{whom:?}: call {number}");
                }
            }
        }
        // The x32 table, which an allow list of numbers must not match.
        for number in [0, 1, 59, 101, 257, 520] {
            assert!(!is_allowed(&program, 0x4000_0000 | number), "{whom:?}: call {number} of x32");
        }
    }
}

#[test]
fn arguments_are_looked_at() {
    inside(Profile::Image(PLAIN), || {
        let refused = Err(libc::EPERM);
        let executable = (libc::PROT_READ | libc::PROT_EXEC) as usize;
        assert_eq!(call(libc::SYS_mmap, [0, 4096, executable, libc::MAP_ANONYMOUS as usize]), refused);
        assert_eq!(call(libc::SYS_mprotect, [0, 4096, executable, 0]), refused);
        assert_eq!(call(libc::SYS_clone, [libc::SIGCHLD as usize, 0, 0, 0]), refused, "a process");
        assert_eq!(call(libc::SYS_clone3, [0; 4]), Err(libc::ENOSYS));
        assert_eq!(call(libc::SYS_ioctl, [0, libc::TIOCSTI as usize, 0, 0]), refused);
        assert_eq!(call(libc::SYS_prctl, [libc::PR_SET_DUMPABLE as usize, 1, 0, 0]), refused);
        assert_eq!(call(libc::SYS_prlimit64, [0, 7, 4096, 0]), refused, "a limit is set");
        assert_eq!(call(libc::SYS_tgkill, [1, 1, 0, 0]), refused);
        assert_eq!(call(libc::SYS_io_uring_setup, [1, 0, 0, 0]), refused);
        rustix::process::getrlimit(rustix::process::Resource::Nofile);
        std::thread::spawn(|| vec![0_u8; 1 << 22]).join().unwrap();
    });
    inside(Profile::Image(RINGS), || {
        assert_eq!(call(libc::SYS_io_uring_register, [0, 1, 0, 0]), Err(libc::EPERM), "files of a ring");
        assert_eq!(call(libc::SYS_io_uring_setup, [1, 0, 0, 0]), Err(libc::EPERM));
    });
}

/// Calls that would escape a deny list.
#[test]
fn metadata_of_others_are_out_of_reach() {
    inside(Profile::Image(PLAIN), || {
        for number in [
            libc::SYS_fchmodat2,
            libc::SYS_fchmodat,
            #[cfg(target_arch = "x86_64")]
            libc::SYS_lchown,
            libc::SYS_fchownat,
            libc::SYS_setxattr,
            libc::SYS_utimensat,
            libc::SYS_setresuid,
            libc::SYS_setgroups,
            libc::SYS_shmget,
            libc::SYS_pidfd_open,
            libc::SYS_kill,
            libc::SYS_memfd_create,
            libc::SYS_capset,
        ] {
            assert_eq!(call(number, [0; 4]), Err(libc::EPERM), "{number}");
        }
    });
}

#[test]
fn programs_and_sockets_are_refused() {
    inside(Profile::Image(PLAIN), || {
        assert_eq!(socket(AddressFamily::INET, SocketType::STREAM, None).unwrap_err(), Errno::PERM);
        assert_eq!(socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap_err(), Errno::PERM);
        let program = std::process::Command::new("/bin/true").spawn();
        assert_eq!(program.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        std::fs::read("/proc/self/statm").unwrap();
    });
}

#[test]
fn guest_filter_permits_threads_but_no_namespaces() {
    use rustix::thread::{UnshareFlags, unshare_unsafe};
    inside(Profile::Guest, || {
        // SAFETY: this thread shares nothing by memory that is unshared.
        unsafe {
            unshare_unsafe(UnshareFlags::FS).unwrap();
            assert_eq!(unshare_unsafe(UnshareFlags::NEWUSER), Err(Errno::PERM));
            assert_eq!(unshare_unsafe(UnshareFlags::FS | UnshareFlags::NEWNS), Err(Errno::PERM));
        }
        let flags = libc::CLONE_NEWUSER | libc::SIGCHLD;
        assert_eq!(call(libc::SYS_clone, [flags as usize, 0, 0, 0]), Err(libc::EPERM));
        let this = rustix::process::getpid();
        assert_eq!(rustix::process::test_kill_process(this), Err(Errno::PERM));
        #[cfg(target_arch = "x86_64")]
        assert_eq!(call(0x4000_0000 | libc::SYS_getpid, [0; 4]), Err(libc::EPERM));
        std::thread::spawn(|| ()).join().unwrap();
    });
}
