//! `shunt ext4 cat`: copies a file of an image to standard output.

use std::ffi::OsStr;

use shunt_ext4::{Filesystem, Kind};

use super::{at, resolve};
use crate::cmd::print;
use crate::error::{Result, failed};

/// Bytes per read.
const READ_BYTES: usize = 1 << 20;

pub fn run(filesystem: &Filesystem, path: &OsStr) -> Result<()> {
    let inode = resolve(filesystem, path, true)?;
    if inode.kind != Kind::Regular {
        return Err(failed(format_args!("{} in the image is not a regular file", path.display())));
    }
    let mut piece = vec![0; READ_BYTES];
    let mut offset = 0;
    while offset < inode.size {
        let count = filesystem.read(&inode, offset, &mut piece).map_err(|error| at(path, &error))?;
        print(&piece[..count])?;
        offset += count as u64;
    }
    Ok(())
}
