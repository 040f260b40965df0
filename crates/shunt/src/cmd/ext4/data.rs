//! `shunt ext4 --data`: files that the kernel reads from the device, and writes to it, by itself.

use std::fs::File;
use std::io;
use std::sync::Arc;

use rustix::thread::{CapabilitySet, capabilities};
use shunt_ext4::Filesystem;
use shunt_ext4::layout::Incompat;
use shunt_extmap::Connection;

use super::Image;
use super::direct::DirectDevice;
use crate::args::DataArg;
use crate::error::{Code, Failure, Result, failed};

/// Has a block device that the kernel is to write used past its page cache. Tells whether it is.
pub fn leave_cache(wish: DataArg, image: &mut Image) -> Result<bool> {
    let direct = wish == DataArg::Extmap && image.writable && image.claim.is_some();
    if direct {
        let device = DirectDevice::new(&image.file).map_err(|error| {
            failed(format_args!("{} cannot be used past its cache: {error}", image.path.display()))
        })?;
        image.device = Arc::new(device);
    }
    Ok(direct)
}

/// The device for the kernel to read, where that is wanted and can be.
pub fn device(wish: DataArg, image: &Image, filesystem: &Filesystem) -> Result<Option<Connection>> {
    // Writing is tried by who asks for it.
    if wish == DataArg::Daemon || wish == DataArg::Auto && filesystem.is_writable() {
        return Ok(None);
    }
    let failure = match obstacle(filesystem) {
        Some(reason) => reason,
        None => match bind(image, filesystem) {
            Ok(connection) => return Ok(Some(connection)),
            Err(error) => failed(format_args!("the kernel refuses: {error}")),
        },
    };
    if wish == DataArg::Extmap {
        return Err(failure.context("--data extmap"));
    }
    tracing::info!("content goes through the daemon: {failure}");
    Ok(None)
}

fn obstacle(filesystem: &Filesystem) -> Option<Failure> {
    let may = capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN));
    let writes = filesystem.is_writable();
    if writes && !filesystem.geometry().incompat.contains(Incompat::EXTENT) {
        Some(Failure::new(Code::Usage, "only files that lie in extents can be written past the daemon"))
    } else if !shunt_extmap::is_available() {
        Some(failed("the module shunt_extmap is not loaded"))
    } else if !may {
        Some(Failure::new(Code::Privilege, "that takes root"))
    } else {
        None
    }
}

/// Connects the module to the block device, or to one that is made of the file and goes with the daemon.
fn bind(image: &Image, filesystem: &Filesystem) -> io::Result<Connection> {
    let page = rustix::param::page_size() as u32;
    let block_size = filesystem.geometry().block_size.min(page);
    let bind = |device: &File| Connection::bind(device, block_size);
    match image.claim {
        Some(_) => bind(&image.file),
        // By the file's own page cache, as the daemon's own writes go.
        None if filesystem.is_writable() => bind(&shunt_extmap::attach_writable(&image.file)?),
        None => bind(&shunt_extmap::attach(&image.file)?),
    }
}
