//! Creation of files, and rewrites of whole files.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use super::{Handle, User};
use crate::volume_soak::cluster::NODES;
use crate::volume_soak::tagged_content::{Content, FoundContent, length};

impl User<'_> {
    /// Writes a whole file, such that at any time each block belongs to either the old or the new content.
    fn put(&mut self, file: &File, path: &Path, before: &FoundContent) -> io::Result<Content> {
        let (line, len) = (before.contents().first().map(|content| content.line), self.some_length());
        let content = self.ledger().begin(self.node, line, len);
        self.log(format_args!("puts {content:?} into {path:?} over {before:?}"));
        self.write(file, before, &content, 0..content.blocks())?;
        Ok(content)
    }

    fn some_length(&mut self) -> usize {
        length(match self.rng.below(20) {
            0..6 => 32 + self.rng.below(480),
            6..15 => self.rng.below(20_000),
            15..19 => self.rng.below(200_000),
            _ => self.rng.below(3 << 20),
        })
    }

    /// Rewrites the file, or a part of it.
    fn work_on(&mut self, file: File, path: PathBuf, before: &FoundContent, in_part: bool) -> io::Result<()> {
        self.ends(before);
        let content = match before.layout().filter(|_| in_part) {
            Some(layout) => self.put_part(&file, &path, before, layout)?,
            None => self.put(&file, &path, before)?,
        };
        if self.rng.below(3) > 0 {
            self.sync(&file, &content)?;
        }
        if self.rng.below(8) == 0 {
            self.open.push(Handle { file, path });
        }
        Ok(())
    }

    pub(super) fn create(&mut self) -> io::Result<()> {
        let path = self.place();
        let file = File::options().read(true).write(true).create_new(true).open(&path)?;
        self.work_on(file, path, &FoundContent::Nothing, false)
    }

    pub(super) fn rewrite(&mut self) -> io::Result<()> {
        self.open_and_work(false)
    }

    pub(super) fn edit(&mut self) -> io::Result<()> {
        self.open_and_work(true)
    }

    fn open_and_work(&mut self, in_part: bool) -> io::Result<()> {
        let path = self.file()?;
        let file = File::options().read(true).write(true).open(&path)?;
        let before = self.seen(&file, &path)?;
        self.work_on(file, path, &before, in_part)
    }

    /// Writes through a file that was opened some time ago.
    pub(super) fn go_on(&mut self) -> io::Result<()> {
        if self.open.is_empty() {
            return Ok(());
        }
        let n = self.rng.below(self.open.len());
        let Handle { file, path } = self.open.swap_remove(n);
        if self.rng.below(3) == 0 {
            self.log(format_args!("closes {path:?}"));
            return Ok(());
        }
        let before = self.seen(&file, &path)?;
        let in_part = self.rng.below(2) == 0;
        self.work_on(file, path, &before, in_part)
    }

    /// Replaces a file by another one, as editors save.
    pub(super) fn replace(&mut self) -> io::Result<()> {
        let path = self.file()?;
        let new = path.with_file_name(format!("{}.new", NODES[self.node]));
        let file = File::options().read(true).write(true).create(true).truncate(false).open(&new)?;
        let before = self.seen(&file, &new)?;
        self.ends(&before);
        let content = self.put(&file, &new, &before)?;
        self.sync(&file, &content)?;
        drop(file);
        self.take_place(&new, &path)
    }
}
