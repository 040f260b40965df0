//! User namespaces that map ids, for `MOUNT_ATTR_IDMAP`.

use std::fmt::Write as _;
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};

use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use rustix::process::Pid;

use super::{IdMap, sys};

/// Creates a user namespace that maps each id of the source to the one shown. It exists as long as its descriptor.
pub(super) fn mapping(users: &IdMap, groups: &IdMap) -> Result<OwnedFd, Errno> {
    let failed = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
    let child = NamespaceHolder::fork()?;
    let proc = format!("/proc/{}", child.pid());
    for (file, map) in [("uid_map", users), ("gid_map", groups)] {
        // A single write: the kernel accepts only one.
        let mut file = fs::OpenOptions::new().write(true).open(format!("{proc}/{file}")).map_err(failed)?;
        file.write_all(lines(map).as_bytes()).map_err(failed)?;
    }
    fs::File::open(format!("{proc}/ns/user")).map(Into::into).map_err(failed)
}

/// Formats a map for `/proc/PID/uid_map`. Unmapped ids map to themselves, unless another id is shown as their number.
fn lines(map: &IdMap) -> String {
    // The largest number is not a valid id.
    const END: u64 = u32::MAX as u64;
    let mut lines = String::new();
    let mut taken: Vec<(u64, u64)> = Vec::new();
    for (lower, shown, count) in map.runs() {
        let _ = writeln!(lines, "{lower} {shown} {count}");
        taken.extend([lower, shown].map(|start| (start.into(), u64::from(start) + u64::from(count))));
    }
    taken.push((END, END));
    taken.sort_unstable();
    let mut free = 0;
    for (start, end) in taken {
        if start > free {
            let _ = writeln!(lines, "{free} {free} {}", start - free);
        }
        free = free.max(end);
    }
    lines
}

/// A process that only holds its user namespace; it exits when this is dropped.
struct NamespaceHolder {
    pid: Pid,
    /// The process exits when this pipe is closed.
    exit_writer: Option<OwnedFd>,
}

impl NamespaceHolder {
    /// Forks a process that only holds a new user namespace.
    fn fork() -> Result<Self, Errno> {
        let (exit_reader, exit_writer) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        let (ready_reader, ready_writer) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        // SAFETY: the child calls nothing but system calls on numbers and on memory of its own stack, then ends.
        let pid = unsafe {
            match libc::fork() {
                0 => {
                    libc::close(exit_writer.as_raw_fd());
                    let mut byte = 0u8;
                    if libc::unshare(libc::CLONE_NEWUSER) == 0
                        && libc::write(ready_writer.as_raw_fd(), (&raw const byte).cast(), 1) == 1
                    {
                        // Block until the other end is closed.
                        libc::read(exit_reader.as_raw_fd(), (&raw mut byte).cast(), 1);
                    }
                    libc::_exit(0)
                }
                pid => pid,
            }
        };
        drop(ready_writer);
        let pid =
            sys::check(pid.into()).ok().and_then(|pid| Pid::from_raw(pid as i32)).ok_or(Errno::AGAIN)?;
        Self { pid, exit_writer: Some(exit_writer) }.wait_until_ready(ready_reader)
    }

    fn pid(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// Waits until the process is in its namespace.
    fn wait_until_ready(self, ready_reader: OwnedFd) -> Result<Self, Errno> {
        let mut answer = [0];
        match fs::File::from(ready_reader).read(&mut answer) {
            Ok(1) => Ok(self),
            _ => Err(Errno::PERM),
        }
    }
}

impl Drop for NamespaceHolder {
    fn drop(&mut self) {
        drop(self.exit_writer.take());
        let _ = rustix::process::waitpid(Some(self.pid), rustix::process::WaitOptions::empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unmapped_ids_stay_unchanged() {
        assert_eq!(lines(&IdMap::default()), "0 0 4294967295\n");
        let map: IdMap = "1000:2000:10".parse().unwrap();
        assert_eq!(lines(&map), "1000 2000 10\n0 0 1000\n1010 1010 990\n2010 2010 4294965285\n");
        let swapped: IdMap = "0:1,1:0".parse().unwrap();
        assert_eq!(lines(&swapped), "0 1 1\n1 0 1\n2 2 4294967293\n");
    }
}
