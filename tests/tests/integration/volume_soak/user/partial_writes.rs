//! Partial writes and truncations.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use super::User;
use crate::volume_soak::block_layout::Layout;
use crate::volume_soak::tagged_content::{BLOCK, Content, FoundContent, length};

/// Maximum number of blocks of a write in the middle, and of an extension.
const MAX_BLOCKS: usize = 16;

impl User<'_> {
    /// Writes some blocks in the middle, or sets a new end, before or after the old one.
    pub(super) fn put_part(
        &mut self,
        file: &File,
        path: &Path,
        before: &FoundContent,
        layout: &Layout,
    ) -> io::Result<Content> {
        let old = layout.len();
        let (len, from) = match self.rng.below(4) {
            0 => (length(self.rng.below(old)), None),
            1 => (length(old + self.rng.below(MAX_BLOCKS * BLOCK)), Some(old / BLOCK)),
            _ => (old, Some(self.rng.below(old.div_ceil(BLOCK)))),
        };
        let last = len.div_ceil(BLOCK) - 1;
        let from = from.unwrap_or(last).min(last);
        let to = if len == old { (from + 1 + self.rng.below(MAX_BLOCKS)).min(last + 1) } else { last + 1 };
        let line = before.contents().first().map(|content| content.line);
        let content = self.ledger().begin(self.node, line, len);
        self.log(format_args!("puts blocks {from}..{to} of {content:?} into {path:?} over {before:?}"));
        self.write(file, before, &content, from..to)?;
        Ok(content)
    }

    /// Writes blocks of a content over the old content.
    pub(super) fn write(
        &mut self,
        file: &File,
        before: &FoundContent,
        content: &Content,
        blocks: Range<usize>,
    ) -> io::Result<()> {
        let layout = before.layout().cloned().unwrap_or_default();
        if file.metadata()?.len() as usize > content.len {
            self.ledger().may_be(layout.cut(content.len));
            file.set_len(content.len as u64)?;
        }
        file.write_all_at(&content.piece(blocks.clone()), (blocks.start * BLOCK) as u64)?;
        self.ledger().whole(content, layout.with(content, blocks));
        Ok(())
    }

    /// Truncates a file. A truncation alone writes no content that could be promised.
    pub(super) fn cut(&mut self) -> io::Result<()> {
        let path = self.file()?;
        let file = File::options().read(true).write(true).open(&path)?;
        let before = self.seen(&file, &path)?;
        let Some(layout) = before.layout() else { return Ok(()) };
        let len = length(self.rng.below(layout.len()));
        if len == layout.len() {
            return Ok(());
        }
        self.log(format_args!("cuts {path:?} with {before:?} at {len}"));
        self.ends(&before);
        self.ledger().may_be(layout.cut(len));
        file.set_len(len as u64)?;
        if self.rng.below(3) == 0 { file.sync_all() } else { Ok(()) }
    }
}
