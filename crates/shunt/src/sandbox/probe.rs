//! Tries what must not work, for the tests: `--sandbox-probe`.

use std::fs::File;
use std::net::TcpStream;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

static WANTED: AtomicBool = AtomicBool::new(false);

/// Has [`enter`](super::enter) try, and say on standard output what came of it.
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
    println!("probe: {} of {threads} threads", super::files::locked());
    all();
    // Threads to come are locked in as well.
    let _ = std::thread::spawn(all).join();
}

fn ring() -> std::io::Result<()> {
    let mut parameters = [0_u64; 15];
    // SAFETY: the call writes 120 bytes at most, which are there.
    let ring = unsafe { libc::syscall(libc::SYS_io_uring_setup, 1, parameters.as_mut_ptr()) };
    if ring < 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
}
