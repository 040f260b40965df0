//! `shunt volume`.

mod create;
mod mount;
mod status;

use std::ffi::OsString;
use std::process::ExitCode;

use crate::args::VolumeCommand;
use crate::error::Result;

pub fn run(command: &VolumeCommand, argv: &[OsString]) -> Result<ExitCode> {
    match command {
        VolumeCommand::Create(args) => create::run(args)?,
        VolumeCommand::Mount(args) => return mount::run(args, argv),
        VolumeCommand::Status(args) => status::run(args)?,
    }
    Ok(ExitCode::SUCCESS)
}
