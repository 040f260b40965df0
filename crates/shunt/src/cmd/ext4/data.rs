//! `shunt ext4 --data`: chooses whether the kernel module reads and writes file data at the device by itself, and connects it.
//! The daemon serves file data where the module cannot be used.

use std::fs::File;
use std::io;
use std::sync::Arc;

use rustix::thread::{CapabilitySet, capabilities};
use shunt_extmap::Connection;

use super::Image;
use super::direct::DirectDevice;
use super::survey::Survey;
use crate::args::DataArg;
use crate::error::{Code, Failure, Result, failed};

/// Switches a block device that the kernel module is to write to direct I/O, past its page cache. Returns whether it did.
pub fn switch_to_direct(requested: DataArg, image: &mut Image, survey: &Survey) -> Result<bool> {
    let is_requested = match requested {
        DataArg::Daemon => false,
        DataArg::Extmap => true,
        // Without a page cache the daemon is slow: so only when it is certain that the kernel transfers all file data.
        DataArg::Auto => module_obstacle().is_none() && survey.part.is_none() && survey.extents,
    };
    let direct = is_requested && survey.writable && image.claim.is_some();
    if direct {
        let device = DirectDevice::new(&image.file).map_err(|error| {
            failed(format_args!("cannot access {} by direct I/O: {error}", image.path.display()))
        })?;
        image.device = Arc::new(device);
    }
    Ok(direct)
}

/// Connects the kernel module to the device, if that is requested and possible. `direct` is the result of [`switch_to_direct`].
pub fn device(
    requested: DataArg,
    image: &Image,
    survey: &Survey,
    direct: bool,
) -> Result<Option<Connection>> {
    if requested == DataArg::Daemon {
        return Ok(None);
    }
    let failure = match obstacle(survey) {
        Some(reason) => reason,
        None if survey.writable && image.claim.is_some() && !direct => {
            failed("a writable partition of a whole device is accessed through the page cache of the device")
        }
        None => match bind(image, survey) {
            Ok(connection) => return Ok(Some(connection)),
            Err(error) => failed(format_args!("cannot connect the module shunt_extmap: {error}")),
        },
    };
    if requested == DataArg::Extmap {
        return Err(failure.context("--data extmap"));
    }
    tracing::info!("file data goes through the daemon: {failure}");
    Ok(None)
}

fn obstacle(survey: &Survey) -> Option<Failure> {
    if survey.writable && !survey.extents {
        Some(Failure::new(Code::Usage, "writes by the kernel require a file system with extents"))
    } else {
        module_obstacle()
    }
}

/// The reason why this machine cannot use the module: it is not loaded, or privileges are missing.
fn module_obstacle() -> Option<Failure> {
    if !shunt_extmap::is_available() {
        Some(failed("the module shunt_extmap is not loaded"))
    } else if !has_sys_admin() {
        Some(Failure::new(Code::Privilege, "CAP_SYS_ADMIN is missing; run as root"))
    } else {
        None
    }
}

/// Reports whether this process has CAP_SYS_ADMIN.
pub fn has_sys_admin() -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN))
}

/// Connects the module to the block device, or to a loop device of the image file that ends with the daemon.
fn bind(image: &Image, survey: &Survey) -> io::Result<Connection> {
    let page = rustix::param::page_size() as u32;
    let block_size = survey.block_size.min(page);
    let bind = |device: &File| Connection::bind(device, block_size);
    match image.claim {
        Some(_) => bind(&image.file),
        // Through the file's own page cache, as the daemon's own writes.
        None if survey.writable => bind(&shunt_extmap::attach_writable(&image.file)?),
        None => bind(&shunt_extmap::attach(&image.file)?),
    }
}
