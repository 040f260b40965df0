//! The parts of a program that outlive the daemon that attached it: the attachment, which the next daemon hands to its own program, and
//! the counts of open files, which all programs of a mount share.

use std::os::fd::{AsFd, OwnedFd};

use shunt_fuse::Handle;
use shunt_fuse::guardian::HandOver;

use crate::builtin::OpenCounts;
use crate::program::{Attachment, Earlier, Program};

// Ids of descriptors in the store of the guardian. File systems use other ids.
const ATTACHMENT: u64 = 8;
const OPEN_COUNTS: u64 = 9;

/// The map of the program that counts open files.
const OPEN_COUNTS_MAP: &str = "opened";

/// The inheritance from the program of an earlier daemon of this mount.
///
/// The program stays attached while no daemon runs, and answers requests that it can answer. Dropping this detaches it.
#[derive(Debug, Default)]
pub struct EarlierProgram {
    attachment: Option<Attachment>,
    open_counts: Option<OwnedFd>,
}

impl EarlierProgram {
    /// Takes it out of what a guardian hands over. Call this before the file system takes its own descriptors.
    pub fn take(hand_over: &mut HandOver) -> Self {
        Self {
            attachment: hand_over.take(ATTACHMENT).map(Attachment::from),
            open_counts: hand_over.take(OPEN_COUNTS),
        }
    }

    /// Returns what the next program continues with. Only one program can take the attachment.
    pub(super) fn continued(&mut self) -> Earlier<'_> {
        let arrays = self.open_counts.iter().map(|map| (OPEN_COUNTS_MAP, map.as_fd())).collect();
        Earlier { attachment: self.attachment.take(), arrays }
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
        if let Some(attachment) = program.attachment() {
            takeover.store(ATTACHMENT, attachment.as_fd());
        }
    }

    /// Maps the counts, if there are any.
    pub(super) fn counts(&self) -> Option<OpenCounts> {
        OpenCounts::of_map(self.open_counts.as_ref()?.as_fd()).ok()
    }
}
