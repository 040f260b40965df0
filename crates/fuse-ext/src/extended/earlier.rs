//! The parts of a program that outlive the daemon that attached it: its BPF link, which the next daemon passes to its own program,
//! and the counts of open files, which all programs of a mount share.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use shunt_fuse::Handle;
use shunt_fuse::guardian::HandOver;

use crate::builtin::OpenCounts;
use crate::program::{Inheritance, Link, Program};

// Ids of descriptors in the store of the guardian, which file systems leave to the ones that wrap them. A mirror drops the first if
// nobody takes it, and keeps the second.
const LINK: u64 = 8;
const OPEN_COUNTS: u64 = 12;

/// The map of the program that counts open files.
const OPEN_COUNTS_MAP: &str = "opened";

/// The inheritance from the program of an earlier daemon of this mount.
///
/// The program stays attached while no daemon runs, and answers requests that it can answer. Dropping this detaches it.
#[derive(Debug, Default)]
pub struct EarlierProgram {
    link: Option<Link>,
    open_counts: Option<OwnedFd>,
}

impl EarlierProgram {
    /// Takes the inheritance out of the hand-over of a guardian. Call this before the file system takes its own descriptors.
    pub fn take(hand_over: &mut HandOver) -> Self {
        Self { link: hand_over.take(LINK).map(Link::inherited), open_counts: hand_over.take(OPEN_COUNTS) }
    }

    /// Returns the inheritance of the next program. Only the first one gets the link.
    pub(super) fn inheritance(&mut self) -> Inheritance<'_> {
        let arrays = self.open_counts.iter().map(|map| (OPEN_COUNTS_MAP, map.as_fd())).collect();
        Inheritance { link: self.link.take(), arrays }
    }

    /// Remembers the counts of a program for the one after it, in this process or, through the guardian, in the next one.
    pub(super) fn remember(&mut self, program: &Program, session: &Handle) {
        if self.open_counts.is_none() {
            self.open_counts = program.maps().descriptor(OPEN_COUNTS_MAP);
        }
        let Some(takeover) = session.takeover() else { return };
        if let Some(counts) = &self.open_counts {
            takeover.store(OPEN_COUNTS, counts.as_fd());
        }
        if let Some(link) = program.link() {
            takeover.store(LINK, link.as_fd());
        }
    }

    /// Maps the counts; `None` if there are none.
    ///
    /// # Errors
    /// The map has another size.
    pub(super) fn counts(&self) -> Option<io::Result<OpenCounts>> {
        self.open_counts.as_ref().map(|map| OpenCounts::of_map(map.as_fd()))
    }
}
