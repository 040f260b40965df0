//! Programs that must not take over a mount, selected by their file name. The file `shunt` beside it does the work that they do
//! not.

use std::ffi::OsStr;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, exit};
use std::time::Duration;

fn main() {
    let path = std::env::current_exe().expect("a program");
    let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
    let probed = std::env::args_os().any(|argument| argument == "--probe");
    match (name, probed) {
        ("other", true) => println!(r#"{{"takeover":4294967295,"version":"99.0.0"}}"#),
        ("chatty", true) => println!("{}", "a lot ".repeat(100)),
        ("mute", true) | ("hangs", false) => std::thread::sleep(Duration::from_secs(60)),
        ("fails", false) => exit(1),
        ("short-lived", false) => {
            let soon = libc::timeval { tv_sec: 0, tv_usec: 300_000 };
            let timer =
                libc::itimerval { it_interval: libc::timeval { tv_sec: 0, tv_usec: 0 }, it_value: soon };
            // SAFETY: both structures outlive the call. The alarm ends whatever program runs in this process then.
            unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut()) };
            go_on(&path);
        }
        _ => go_on(&path),
    }
}

fn go_on(path: &Path) {
    let mut command = Command::new(path.with_file_name("shunt"));
    command.args(std::env::args_os().skip(1));
    panic!("{}", command.exec());
}
