//! Encrypted directories and symbolic links without their key. Names and targets are presented in the kernel's no-key form; they
//! can be looked up and removed. Nothing can be created, and no content can be read.

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
    /// Returns the stored name of a directory entry, given the presented one.
    ///
    /// # Errors
    /// [`Error::NotFound`] if the name cannot exist in the directory, [`Error::Corrupt`], [`Error::Io`].
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

    /// Fails in an encrypted directory, where new names can be made only with the key.
    ///
    /// # Errors
    /// [`Error::NoKey`] in an encrypted directory, [`Error::Exists`] if it already contains the name.
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

    /// Variant of [`check_key`](Self::check_key) for the source name of a rename.
    pub(crate) fn check_move(&self, directory: &Inode, name: &[u8]) -> Result<()> {
        match self.check_key(directory, name) {
            Err(Error::Exists) => Err(Error::NoKey),
            Err(Error::NoKey) => Err(Error::NotFound),
            other => other,
        }
    }

    /// Lists a directory with names in the presented form.
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
                        let what = format!("invalid encrypted name of {} bytes", entry.name.len());
                        wrong = Err(Corruption::new(what).inode(directory.number).into());
                        return false;
                    }
                }
            }
            take(entry)
        })?;
        wrong
    }

    /// Returns the target of an encrypted symbolic link in the presented form. Its length is stored in the two bytes before it.
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
            return Err(wrong(format!("encrypted symbolic link: invalid size {}", inode.size)));
        };
        let length = usize::from(u16::from_le_bytes(*length));
        rest.get(..length).and_then(|stored| show([0; 2], stored)).ok_or_else(|| {
            wrong(format!("encrypted symbolic link: invalid target length {length} in {} bytes", inode.size))
        })
    }
}
