//! Path resolution with symbolic links, confined to the image.

use std::collections::VecDeque;

use crate::error::{Error, Result};
use crate::filesystem::{Filesystem, ROOT};
use crate::inode::{Inode, Kind};

/// Maximum number of symbolic links per path, as in the kernel.
const MAX_SYMLINKS: u32 = 40;

impl Filesystem {
    /// Resolves a path from the root, following symbolic links; a link at the end is followed only with `follow_last` or before a
    /// trailing slash. Absolute links start at the root of the image, and no path leads above it: `..` is the previous directory
    /// of the path, regardless of the inode that is stored under that name.
    ///
    /// # Errors
    /// The errors of [`find`](Self::find); [`Error::Loop`] after 40 links.
    pub fn resolve(&self, path: &[u8], follow_last: bool) -> Result<Inode> {
        let follow_last = follow_last || path.ends_with(b"/");
        let root = self.inode(ROOT)?;
        let mut ancestors: Vec<Inode> = Vec::new();
        let mut names: VecDeque<Vec<u8>> = names_of(path).collect();
        let mut links = 0;
        while let Some(name) = names.pop_front() {
            match &name[..] {
                b"." => continue,
                b".." => {
                    ancestors.pop();
                    continue;
                }
                _ => {}
            }
            let found = self.find(ancestors.last().unwrap_or(&root), &name)?;
            if found.kind != Kind::Symlink || names.is_empty() && !follow_last {
                ancestors.push(found);
                continue;
            }
            links += 1;
            if links > MAX_SYMLINKS {
                return Err(Error::Loop);
            }
            let target = self.read_link(&found)?;
            if target.starts_with(b"/") {
                ancestors.clear();
            }
            for name in names_of(&target).collect::<Vec<_>>().into_iter().rev() {
                names.push_front(name);
            }
        }
        Ok(ancestors.pop().unwrap_or(root))
    }
}

fn names_of(path: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    path.split(|&byte| byte == b'/').filter(|name| !name.is_empty()).map(<[u8]>::to_vec)
}
