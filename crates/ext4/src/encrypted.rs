//! Encrypted directories and links without their key: names and targets are shown as the kernel shows them, lead to what
//! they are the names of, and can be taken out. Nothing can be entered, and no content read.

use std::borrow::Cow;

use crate::directory::{self, Entry, Shown, show};
use crate::error::{Corruption, Error, Result};
use crate::filesystem::Filesystem;
use crate::inode::Inode;
use crate::layout::InodeFlags;

fn is_dots(name: &[u8]) -> bool {
    matches!(name, b"." | b"..")
}

fn is_encrypted(inode: &Inode) -> bool {
    inode.flags.contains(InodeFlags::ENCRYPT)
}

impl Filesystem {
    /// The name as the directory has it, of one that was shown.
    ///
    /// # Errors
    /// [`Error::NotFound`] for what cannot be a name there, [`Error::Corrupt`], [`Error::Io`].
    pub(crate) fn stored_name<'a>(&self, directory: &Inode, name: &'a [u8]) -> Result<Cow<'a, [u8]>> {
        if !is_encrypted(directory) || is_dots(name) {
            return Ok(Cow::Borrowed(name));
        }
        let shown = Shown::parse(name).ok_or(Error::NotFound)?;
        if let Some(whole) = shown.whole() {
            return Ok(Cow::Owned(whole.to_vec()));
        }
        if !directory.flags.contains(InodeFlags::INLINE_DATA) {
            return directory::stored(&self.directory(directory), &shown).map(Cow::Owned);
        }
        let mut found = Err(Error::NotFound);
        self.list_stored(directory, 0, |entry| {
            if shown.is(&entry.name) {
                found = Ok(Cow::Owned(entry.name));
            }
            found.is_err()
        })?;
        found
    }

    /// Names of an encrypted directory are made of bytes that only the key tells.
    ///
    /// # Errors
    /// [`Error::NoKey`] in such a directory, [`Error::Exists`] where the name is there.
    pub(crate) fn check_key(&self, directory: &Inode, name: &[u8]) -> Result<()> {
        if !is_encrypted(directory) {
            return Ok(());
        }
        let stored = self.stored_name(directory, name).and_then(|name| self.directory(directory).find(&name));
        match stored {
            Ok(_) => Err(Error::Exists),
            Err(Error::NotFound) => Err(Error::NoKey),
            Err(error) => Err(error),
        }
    }

    /// As [`check_key`](Self::check_key), for a name that is to go elsewhere.
    pub(crate) fn check_move(&self, directory: &Inode, name: &[u8]) -> Result<()> {
        match self.check_key(directory, name) {
            Err(Error::Exists) => Err(Error::NoKey),
            Err(Error::NoKey) => Err(Error::NotFound),
            other => other,
        }
    }

    /// Has the names of a directory told as they are shown.
    pub(crate) fn list_shown(
        &self,
        directory: &Inode,
        offset: u64,
        mut take: impl FnMut(Entry) -> bool,
    ) -> Result<()> {
        if !is_encrypted(directory) {
            return self.list_stored(directory, offset, take);
        }
        let hashes = self.directory(directory).hashes()?;
        let mut wrong = Ok(());
        self.list_stored(directory, offset, |mut entry| {
            if !is_dots(&entry.name) {
                match show(hashes(&entry.name), &entry.name) {
                    Some(shown) => entry.name = shown,
                    None => {
                        let what = format!("an encrypted name of {} bytes", entry.name.len());
                        wrong = Err(Corruption::new(what).inode(directory.number).into());
                        return false;
                    }
                }
            }
            take(entry)
        })?;
        wrong
    }

    /// The target of an encrypted link as it is shown. Its length, two bytes, comes before it.
    pub(crate) fn shown_target(&self, inode: &Inode) -> Result<Vec<u8>> {
        let wrong = |what: String| Corruption::new(what).inode(inode.number).into();
        let length = inode.size.min(self.geometry.block_size.into()) as usize;
        let mut content = vec![0; length];
        if inode.is_short_link(&self.geometry) {
            content.copy_from_slice(&inode.block[..length]);
        } else {
            self.read(inode, 0, &mut content)?;
        }
        let Some((length, rest)) = content.split_first_chunk() else {
            return Err(wrong(format!("an encrypted link to {} bytes", inode.size)));
        };
        let length = usize::from(u16::from_le_bytes(*length));
        rest.get(..length)
            .and_then(|stored| show([0; 2], stored))
            .ok_or_else(|| wrong(format!("an encrypted link to {length} bytes, in {}", inode.size)))
    }
}
