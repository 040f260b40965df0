//! The caller of a request, as `/proc` describes it.
//!
//! A request carries ids and a thread id. Supplementary groups and program are read from `/proc` while the thread waits
//! for the reply. The thread may have been killed and its id reused, so the data counts only if the thread has the ids
//! of the request both before and after the read. A thread outside our pid namespace has id 0. Unknown data counts
//! against the caller.

use std::cell::OnceCell;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use shunt_fuse::Request;
use shunt_policy::Caller;

use crate::programs::{Identity, Programs};

/// The caller of a request, with groups and program read on demand.
pub(crate) struct RequestCaller<'a> {
    uid: u32,
    gid: u32,
    pid: u32,
    programs: &'a Programs,
    groups: OnceCell<Option<Vec<u32>>>,
    running: OnceCell<Option<Identity>>,
}

impl<'a> RequestCaller<'a> {
    pub(crate) fn new(request: &Request<'_>, programs: &'a Programs) -> Self {
        Self {
            uid: request.uid(),
            gid: request.gid(),
            pid: request.pid(),
            programs,
            groups: OnceCell::new(),
            running: OnceCell::new(),
        }
    }

    /// Reads the supplementary groups, if the thread still has the ids of the request.
    fn status(&self) -> Option<Vec<u32>> {
        if self.pid == 0 {
            return None;
        }
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid)).ok()?;
        let field = |name| status.lines().find_map(|line: &str| line.strip_prefix(name));
        let fs_id = |name| field(name)?.split_whitespace().nth(3)?.parse::<u32>().ok();
        if fs_id("Uid:") != Some(self.uid) || fs_id("Gid:") != Some(self.gid) {
            return None;
        }
        field("Groups:")?.split_whitespace().map(|group| group.parse().ok()).collect()
    }

    fn program(&self) -> Option<Identity> {
        self.status()?;
        let program = std::fs::metadata(format!("/proc/{}/exe", self.pid)).ok()?;
        self.status()?;
        Some((program.dev(), program.ino()))
    }
}

impl Caller for RequestCaller<'_> {
    fn uid(&self) -> u32 {
        self.uid
    }

    fn gid(&self) -> u32 {
        self.gid
    }

    fn groups(&self) -> Option<Vec<u32>> {
        self.groups.get_or_init(|| self.status()).clone()
    }

    fn runs(&self, program: &Path) -> Option<bool> {
        let running = (*self.running.get_or_init(|| self.program()))?;
        Some(self.programs.is(program, running))
    }
}
