//! `shunt mirror`.

use std::ffi::OsString;

use shunt_fuse::mount::MountOptions;

use crate::cli::MirrorArgs;
use crate::error::Result;

pub fn run(args: &MirrorArgs, options: MountOptions, argv: &[OsString]) -> Result<()> {
    let _ = (args, options, argv);
    Ok(())
}
