//! `--sandbox-probe`, for the tests: tries operations that must fail in the sandbox.

use std::fs::File;
use std::net::TcpStream;
use std::os::fd::BorrowedFd;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::FileType;

static WANTED: AtomicBool = AtomicBool::new(false);

/// Has [`enter`](super::enter) try them, and print the results on standard output.
pub fn on_entry() {
    WANTED.store(true, Ordering::Relaxed);
}

pub(super) fn run() {
    if !WANTED.load(Ordering::Relaxed) {
        return;
    }
    let all = || {
        let number = |error: std::io::Error| error.raw_os_error().unwrap_or(-1);
        let tried = |result: std::io::Result<()>| result.map_or_else(number, |()| 0);
        println!(
            "probe: open {} write {} list {} execve {} connect {} umount {} ring {} self {}",
            tried(File::open("/etc/passwd").map(drop)),
            tried(File::create("/tmp/shunt-probe").map(drop)),
            tried(std::fs::read_dir("/etc").map(drop)),
            tried(Command::new("/bin/true").spawn().map(drop)),
            tried(TcpStream::connect("127.0.0.1:9").map(drop)),
            tried(rustix::mount::unmount("/proc", rustix::mount::UnmountFlags::EXPIRE).map_err(Into::into)),
            tried(ring()),
            tried(File::open("/proc/self/statm").map(drop)),
        );
    };
    let threads = std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count);
    println!("probe: {} of {threads} threads", super::landlock::locked());
    all();
    // Threads started later are sandboxed as well.
    let _ = std::thread::spawn(all).join();
    println!("probe: descriptors {}", descriptors().join(" "));
}

/// The kind of each open descriptor but the first three: each is access that the sandbox leaves.
fn descriptors() -> Vec<String> {
    let max_fd =
        rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(65536).min(65536);
    (3..max_fd as i32).filter_map(kind).collect()
}

fn kind(number: i32) -> Option<String> {
    // SAFETY: only queried, and not kept.
    let fd = unsafe { BorrowedFd::borrow_raw(number) };
    let stat = rustix::fs::fstat(fd).ok()?;
    Some(match FileType::from_raw_mode(stat.st_mode) {
        FileType::Socket => format!("socket:{}", if is_listening(fd) { "listening" } else { "connected" }),
        FileType::CharacterDevice => {
            format!("device:{}:{}", rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev))
        }
        FileType::Fifo => "pipe".to_owned(),
        FileType::RegularFile => format!("file:{}", stat.st_ino),
        FileType::Directory => format!("directory:{}", stat.st_ino),
        FileType::BlockDevice => "disk".to_owned(),
        FileType::Symlink => "link".to_owned(),
        // Rings, eventfds and the like have no type.
        FileType::Unknown => "anonymous".to_owned(),
    })
}

fn is_listening(socket: BorrowedFd<'_>) -> bool {
    rustix::net::sockopt::socket_acceptconn(socket).is_ok_and(|listening| listening)
}

fn ring() -> std::io::Result<()> {
    let mut parameters = [0_u64; 15];
    // SAFETY: the call writes at most 120 bytes, the size of the array.
    let ring = unsafe { libc::syscall(libc::SYS_io_uring_setup, 1, parameters.as_mut_ptr()) };
    if ring < 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
}
