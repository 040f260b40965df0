//! `shunt volume`.

mod create;
mod keep;
mod mount;
mod status;
mod sync;

use std::ffi::OsString;
use std::process::ExitCode;

use crate::args::VolumeCommand;
use crate::error::Result;

pub fn run(command: &VolumeCommand, argv: &[OsString]) -> Result<ExitCode> {
    match command {
        VolumeCommand::Create(args) => create::run(args)?,
        VolumeCommand::Mount(args) => return mount::run(args, argv),
        VolumeCommand::Offline(args) => status::set_online(&args.mountpoint, false)?,
        VolumeCommand::Online(args) => status::set_online(&args.mountpoint, true)?,
        VolumeCommand::Check(args) => keep::check(args)?,
        VolumeCommand::Gc(args) => keep::gc(args)?,
        VolumeCommand::Status(args) => status::run(args)?,
    }
    Ok(ExitCode::SUCCESS)
}
