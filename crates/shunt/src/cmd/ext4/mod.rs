//! `shunt ext4`: images looked into without a mount.

mod cat;
mod extents;
mod extract;
mod info;
mod ls;

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use shunt_ext4::{Device, Error, FileDevice, Filesystem, Inode, Window};

use crate::args::{Ext4Args, Ext4Command, ImageArgs};
use crate::error::{Failure, Result, failed};

pub fn run(args: &Ext4Args) -> Result<()> {
    match &args.command {
        Ext4Command::Info { image, json } => info::run(&open(image)?, *json),
        Ext4Command::Ls { image, path, long } => ls::run(&open(image)?, path, *long),
        Ext4Command::Cat { image, path } => cat::run(&open(image)?, path),
        Ext4Command::Extract { image, path, target } => extract::run(&open(image)?, path, target.as_deref()),
        Ext4Command::Extents { image, path, json } => extents::run(&open(image)?, path, *json),
    }
}

/// Opens an image to be read. Not one byte of it is written.
fn open(args: &ImageArgs) -> Result<Filesystem> {
    let path = args.image.display();
    let file =
        File::open(&args.image).map_err(|error| failed(format_args!("cannot open {path}: {error}")))?;
    let device = FileDevice::new(file, true)
        .map_err(|error| failed(format_args!("cannot tell the size of {path}: {error}")))?;
    let size = device.size();
    let device: Arc<dyn Device> = match args.offset {
        0 => Arc::new(device),
        offset => Arc::new(
            Window::new(device, offset, size.saturating_sub(offset))
                .ok_or_else(|| failed(format_args!("{path} has {size} bytes: nothing begins at {offset}")))?,
        ),
    };
    Filesystem::open(device).map_err(|error| failed(format_args!("cannot read {path}: {error}")))
}

/// The inode at a path.
fn walk(filesystem: &Filesystem, path: &OsStr) -> Result<Inode> {
    filesystem.walk(path.as_bytes()).map_err(|error| at(path, &error))
}

/// An error about a path in the image.
fn at(path: &OsStr, error: &Error) -> Failure {
    failed(format_args!("{} in the image: {error}", path.display()))
}
