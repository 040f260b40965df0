//! `shunt ext4 --data`: files that the kernel reads from the device by itself.

use std::fs::File;
use std::io;

use rustix::thread::{CapabilitySet, capabilities};
use shunt_ext4::Filesystem;
use shunt_extmap::Connection;

use super::Image;
use crate::args::DataArg;
use crate::error::{Code, Failure, Result, failed};

/// The device for the kernel to read, where that is wanted and can be.
pub fn device(wish: DataArg, image: &Image, filesystem: &Filesystem) -> Result<Option<Connection>> {
    if wish == DataArg::Daemon {
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
    if filesystem.is_writable() {
        Some(Failure::new(Code::Usage, "only what is mounted with --read-only can be read past the daemon"))
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
        None => bind(&shunt_extmap::attach(&image.file)?),
    }
}
