//! `shunt ext4`: mounts images, and inspects them without a mount.

mod block;
mod cat;
mod data;
mod direct;
mod disk;
mod extents;
mod extract;
mod image;
mod info;
mod lock;
mod ls;
mod memory;
mod mount;
mod read_times;
mod superblock;
pub mod survey;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

use shunt_ext4::{Error, Filesystem, Inode};

use crate::args::{Ext4Args, Ext4Command, Ext4MountArgs, ImageArgs};
use crate::error::{Failure, Result, failed};
use crate::sandbox;
use image::Image;

pub fn run(args: &Ext4Args, argv: &[OsString]) -> Result<ExitCode> {
    match args {
        Ext4Args::Mount(args) => mount::run(args, argv),
        Ext4Args::Inspect(command) => inspect(command).map(|()| ExitCode::SUCCESS),
    }
}

fn inspect(command: &Ext4Command) -> Result<()> {
    // Images are untrusted. No byte of one is read before this process has given up every privilege that reading it does not
    // need.
    let opened = |args: &ImageArgs| Image::open(&args.image, args.location.journal.as_deref());
    let image = |args: &ImageArgs| opened(args).inspect(|_| sandbox::enter_inspect());
    let open = |args: &ImageArgs| image(args)?.filesystem(&args.location);
    match command {
        Ext4Command::Info { image: args, json } => info::run(&image(args)?, &args.location, *json),
        Ext4Command::Ls { image, path, long } => ls::run(&open(image)?, path, *long),
        Ext4Command::Cat { image, path } => cat::run(&open(image)?, path),
        Ext4Command::Extract { image, path, target, max_size } => {
            let opened = opened(image)?;
            let target_dir = extract::ExtractTarget::new(target.as_deref(), path)?;
            sandbox::enter_extract(target_dir.parent());
            extract::run(&opened.filesystem(&image.location)?, path, &target_dir, max_size.map(|size| size.0))
        }
        Ext4Command::Extents { image, path, json } => extents::run(&open(image)?, path, *json),
    }
}

/// Resolves a path in the image. Symbolic links on the way are followed within the image, and one at the end with `follow_last`.
fn resolve(filesystem: &Filesystem, path: &OsStr, follow_last: bool) -> Result<Inode> {
    filesystem.resolve(path.as_bytes(), follow_last).map_err(|error| at(path, &error))
}

/// An error about a path in the image.
fn at(path: &OsStr, error: &Error) -> Failure {
    failed(format_args!("{} in the image: {error}", path.display()))
}
