//! `shunt ext4 extents`: prints the block map of a file.

use std::ffi::OsStr;

use serde::Serialize;
use shunt_ext4::{Filesystem, Mapping};

use super::{at, resolve};
use crate::cmd::print;
use crate::error::{Result, failed};
use crate::text::{Align, Table};

/// A mapped extent. Its JSON is a contract.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Extent {
    /// First block in the file.
    logical: u32,
    /// First block on the device.
    physical: u64,
    /// Number of blocks.
    length: u64,
    /// Allocated, but reads as zeros.
    unwritten: bool,
}

pub fn run(filesystem: &Filesystem, path: &OsStr, json: bool) -> Result<()> {
    let extents = extents(filesystem, path)?;
    if json {
        return print(format!("{}\n", serde_json::to_string_pretty(&extents).map_err(failed)?));
    }
    let mut table = Table::new(&[
        ("LOGICAL", Align::Right),
        ("PHYSICAL", Align::Right),
        ("LENGTH", Align::Right),
        ("FLAGS", Align::Left),
    ]);
    for extent in &extents {
        let flags = if extent.unwritten { "unwritten" } else { "" };
        let numbers =
            [extent.logical.into(), extent.physical, extent.length].map(|number: u64| number.to_string());
        table.row(numbers.into_iter().chain([flags.to_owned()]));
    }
    print(table.render())
}

fn extents(filesystem: &Filesystem, path: &OsStr) -> Result<Vec<Extent>> {
    let inode = resolve(filesystem, path, true)?;
    let blocks = inode.size.div_ceil(filesystem.geometry().block_size.into());
    let blocks = u32::try_from(blocks).map_err(|_| {
        failed(format_args!("{} in the image exceeds the maximum size of a file; run e2fsck", path.display()))
    })?;
    let mut extents: Vec<Extent> = Vec::new();
    let mut logical = 0;
    while logical < blocks {
        let run = filesystem.map(&inode, logical, blocks - logical).map_err(|error| at(path, &error))?;
        let (physical, unwritten) = match run.mapping {
            Mapping::Hole => (None, false),
            Mapping::Written(block) => (Some(block), false),
            Mapping::Unwritten(block) => (Some(block), true),
        };
        if let Some(physical) = physical {
            let full = extents.len() as u64 >= filesystem.geometry().blocks;
            match extents.last_mut() {
                // Extents that adjoin across nodes of the tree are merged.
                Some(last)
                    if u64::from(last.logical) + last.length == u64::from(logical)
                        && last.physical + last.length == physical
                        && last.unwritten == unwritten =>
                {
                    last.length += u64::from(run.length);
                }
                // A damaged map can refer to the same block many times.
                _ if full => {
                    return Err(failed(format_args!(
                        "{} in the image has more extents than the file system has blocks; run e2fsck",
                        path.display()
                    )));
                }
                _ => extents.push(Extent { logical, physical, length: run.length.into(), unwritten }),
            }
        }
        logical += run.length;
    }
    Ok(extents)
}
