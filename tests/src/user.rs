//! Acting as somebody else.

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
    /// A user whose group has the same number, in no other group, with umask 022.
    pub fn new(uid: u32) -> Self {
        Self { uid, gid: uid, groups: Vec::new(), umask: 0o022 }
    }

    /// With this primary group.
    pub fn gid(mut self, gid: u32) -> Self {
        self.gid = gid;
        self
    }

    /// In these groups as well.
    pub fn groups(mut self, groups: &[u32]) -> Self {
        self.groups = groups.to_vec();
        self
    }

    /// With this umask.
    pub fn umask(mut self, umask: u32) -> Self {
        self.umask = umask;
        self
    }

    /// Does the work as this user, with no capability, on a thread of its own: on Linux credentials belong to a thread,
    /// and programs started by it inherit them.
    ///
    /// # Panics
    /// When the work does, or when the caller is not root.
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
