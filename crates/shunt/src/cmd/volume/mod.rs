//! `shunt volume`: creates, mounts, synchronises and maintains replicated volumes.

mod admin;
mod api;
mod defaults;
mod gateway;
mod history;
mod key;
mod mount;
mod mounted_path;
mod sandbox;
mod tree;

use std::ffi::{OsStr, OsString};
use std::io::{self, Write as _};
use std::process::ExitCode;

use shunt_volume::address::MetaAddress;

use self::admin::{create, maintenance, settings, upgrade};
use self::gateway::{join, nodes, serve};
use self::history::{conflicts, log, restore, versions};
use self::mount::{cache_status, status};
use crate::args::VolumeCommand;
use crate::error::Result;

pub fn run(command: &VolumeCommand, argv: &[OsString]) -> Result<ExitCode> {
    if argv.iter().any(|word| contains_password(word)) && !argv.iter().any(|word| word == "--background") {
        let _ = writeln!(
            io::stderr(),
            "shunt: all users of this machine can read the password of the database on the command line; put the password \
             into ~/.pgpass, or the address into a file for --meta map:FILE"
        );
    }
    match command {
        VolumeCommand::Create(args) => create::run(args)?,
        VolumeCommand::Mount(args) => return mount::run(args, argv),
        VolumeCommand::Tree(args) => return tree::run(args, argv),
        VolumeCommand::Offline(args) => status::set_online(&args.mountpoint, false)?,
        VolumeCommand::Online(args) => status::set_online(&args.mountpoint, true)?,
        VolumeCommand::Pin(args) => cache_status::pin(args, true)?,
        VolumeCommand::Unpin(args) => cache_status::pin(args, false)?,
        VolumeCommand::Check(args) => maintenance::check(args)?,
        VolumeCommand::Gc(args) => maintenance::gc(args)?,
        VolumeCommand::UpgradeFormat(args) => upgrade::run(args)?,
        VolumeCommand::Conflicts(args) => conflicts::list(args)?,
        VolumeCommand::Resolve(args) => conflicts::resolve(args)?,
        VolumeCommand::Log(args) => log::run(args)?,
        VolumeCommand::History(args) => versions::run(args)?,
        VolumeCommand::Restore(args) => restore::run(args)?,
        VolumeCommand::Set(args) => settings::run(args)?,
        VolumeCommand::Status(args) => status::run(args)?,
        VolumeCommand::Serve(args) => serve::serve(args)?,
        VolumeCommand::Invite(args) => join::invite(args)?,
        VolumeCommand::Join(args) => join::take(args)?,
        VolumeCommand::Nodes { command } => nodes::run(command)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Reports whether a word of the command line is an address that contains a password, perhaps as `--meta=ADDRESS`.
fn contains_password(word: &OsStr) -> bool {
    let Some(text) = word.to_str() else { return false };
    let address = text.strip_prefix("--meta=").unwrap_or(text);
    address.parse().is_ok_and(|address: MetaAddress| address.has_password())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_on_a_command_line_are_seen() {
        let contains = |word: &str| contains_password(OsStr::new(word));
        assert!(contains("postgres://a:p@h/d") && contains("--meta=postgresql://a@h/d?password=p"));
        assert!(!contains("postgres://a@h/d") && !contains("sqlite:/a:p@h") && !contains("team"));
    }
}
