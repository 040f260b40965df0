//! `shunt volume`.

mod answers;
mod conflicts;
mod create;
mod extension;
mod gateway;
mod history;
mod keep;
mod key;
mod known;
mod lock_in;
mod log;
mod mount;
mod owners;
mod place;
mod quota;
mod restore;
mod settings;
mod space;
mod status;
mod sync;
mod told;
mod tree;
mod upgrade;

use std::ffi::OsString;
use std::process::ExitCode;

use crate::args::VolumeCommand;
use crate::error::Result;

pub fn run(command: &VolumeCommand, argv: &[OsString]) -> Result<ExitCode> {
    match command {
        VolumeCommand::Create(args) => create::run(args)?,
        VolumeCommand::Mount(args) => return mount::run(args, argv),
        VolumeCommand::Tree(args) => return tree::run(args, argv),
        VolumeCommand::Offline(args) => status::set_online(&args.mountpoint, false)?,
        VolumeCommand::Online(args) => status::set_online(&args.mountpoint, true)?,
        VolumeCommand::Pin(args) => space::pin(args, true)?,
        VolumeCommand::Unpin(args) => space::pin(args, false)?,
        VolumeCommand::Check(args) => keep::check(args)?,
        VolumeCommand::Gc(args) => keep::gc(args)?,
        VolumeCommand::UpgradeFormat(args) => upgrade::run(args)?,
        VolumeCommand::Conflicts(args) => conflicts::list(args)?,
        VolumeCommand::Resolve(args) => conflicts::resolve(args)?,
        VolumeCommand::Log(args) => log::run(args)?,
        VolumeCommand::History(args) => history::run(args)?,
        VolumeCommand::Restore(args) => restore::run(args)?,
        VolumeCommand::Set(args) => settings::run(args)?,
        VolumeCommand::Status(args) => status::run(args)?,
        VolumeCommand::Serve(args) => gateway::serve(args)?,
        VolumeCommand::Invite(args) => gateway::invite(args)?,
        VolumeCommand::Join(args) => gateway::take(args)?,
        VolumeCommand::Nodes { command } => gateway::nodes(command)?,
    }
    Ok(ExitCode::SUCCESS)
}
