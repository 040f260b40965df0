//! Running work as another user.

use rustix::fs::Mode;
use rustix::thread::{Gid, Uid};

/// An unprivileged caller.
#[derive(Clone, Debug)]
pub struct User {
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
    umask: u32,
}

impl User {
    /// Creates a user with a group of the same number, without other groups, and with umask 022.
    pub fn new(uid: u32) -> Self {
        Self { uid, gid: uid, groups: Vec::new(), umask: 0o022 }
    }

    /// Sets the primary group.
    pub fn gid(mut self, gid: u32) -> Self {
        self.gid = gid;
        self
    }

    /// Sets the supplementary groups.
    pub fn groups(mut self, groups: &[u32]) -> Self {
        self.groups = groups.to_vec();
        self
    }

    /// Sets the umask.
    pub fn umask(mut self, umask: u32) -> Self {
        self.umask = umask;
        self
    }

    /// Runs the work as this user, without capabilities, on its own thread: on Linux credentials belong to a thread, and
    /// programs it starts inherit them.
    ///
    /// # Panics
    /// If the work panics, or the caller is not root.
    pub fn run<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        let done = std::thread::scope(|scope| {
            scope
                .spawn(|| {
                    self.become_user();
                    work()
                })
                .join()
        });
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    fn become_user(&self) {
        // SAFETY: the thread was just started and shares nothing that depends on a common cwd or umask.
        unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::FS) }.expect("own umask");
        rustix::process::umask(Mode::from_raw_mode(self.umask));
        let groups: Vec<Gid> = self.groups.iter().map(|g| Gid::from_raw(*g)).collect();
        rustix::thread::set_thread_groups(&groups).expect("setgroups: needs root");
        let gid = Gid::from_raw(self.gid);
        rustix::thread::set_thread_res_gid(gid, gid, gid).expect("setresgid: needs root");
        let uid = Uid::from_raw(self.uid);
        rustix::thread::set_thread_res_uid(uid, uid, uid).expect("setresuid: needs root");
    }
}
