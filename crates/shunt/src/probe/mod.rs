//! Requests to file systems that may never answer. Each is made by a child process: a thread that waits for a reply of a FUSE daemon
//! cannot be ended even by SIGKILL once the daemon has read the request, and a process with such a thread cannot exit. The child is
//! killed and left behind after a time limit.

mod child;
mod log_tail;
mod space;

use std::path::Path;

use rustix::io::Errno;

pub use log_tail::MAX_FILE_BYTES;
pub use space::Space;

/// The free space of the file system at a path; none if it does not answer.
pub fn statfs(path: &Path) -> Option<Result<Space, Errno>> {
    space::parse(&child::ask("statfs", path)?)
}

/// The free space of the file system that a path is on, or will be on when it is created; none if it does not answer.
pub fn statfs_of_existing(path: &Path) -> Option<Result<Space, Errno>> {
    space::parse(&child::ask("statfs-existing", path)?)
}

/// The last [`MAX_FILE_BYTES`] of a regular file of this user, if it can be read; links are not followed.
pub fn end_of_file(path: &Path, owner: u32) -> Option<Vec<u8>> {
    child::ask(&format!("tail-{owner}"), path)
}

/// Answers a question in the child.
pub fn answer(question: &str, path: &Path) -> Vec<u8> {
    match question {
        "statfs" => space::write(path),
        "statfs-existing" => space::write_of_existing(path),
        _ => question
            .strip_prefix("tail-")
            .and_then(|owner| owner.parse().ok())
            .and_then(|owner| log_tail::read(path, owner))
            .unwrap_or_default(),
    }
}
