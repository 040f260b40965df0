//! The commands, one file each.

mod bench;
mod bugreport;
mod completions;
#[cfg(feature = "csi")]
mod csi;
mod doctor;
mod ext4;
mod guardian;
mod install_helpers;
mod list;
mod man;
mod metrics;
mod mirror;
mod policy;
mod stat;
mod stat_table;
mod top;
mod umount;
mod upgrade;
mod upgrade_all;
mod volume;
mod web;

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use crate::args::MountArgs;
use crate::cli::Command;
use crate::error::{Result, failed};
use crate::{daemon, inherited, log, service_manager};

/// Runs a command; `argv` is the command line that it was parsed from.
pub fn run(command: Command, argv: &[OsString]) -> Result<ExitCode> {
    match command {
        Command::Mirror(args) => return mirror::run(&args, argv),
        Command::Ext4(args) => return ext4::run(&args, argv),
        Command::Volume { command } => return volume::run(&command, argv),
        Command::Policy { command } => policy::run(&command)?,
        Command::Umount(args) => umount::run(&args)?,
        Command::Upgrade(args) => match &args.mountpoint {
            Some(mountpoint) => upgrade::run(mountpoint, &args)?,
            None => upgrade_all::run(&args)?,
        },
        Command::List(args) => list::run(&args)?,
        Command::Stat(args) => stat::run(&args)?,
        Command::Top(args) => top::run(&args)?,
        Command::Metrics(args) => metrics::run(&args)?,
        Command::Bench(args) => bench::run(&args)?,
        Command::Web(args) => web::run(&args)?,
        #[cfg(feature = "csi")]
        Command::Csi(args) => return csi::run(&args),
        #[cfg(feature = "csi")]
        Command::CsiMount(args) => return csi::mount_helper::run(&args),
        Command::Doctor(args) => return doctor::run(&args),
        Command::Bugreport(args) => bugreport::run(&args)?,
        Command::InstallHelpers(args) => install_helpers::run(&args)?,
        Command::Completions { shell } => completions::run(shell)?,
        Command::Man { dir } => man::run(dir.as_deref())?,
        Command::Survey(args) => return Ok(ext4::survey::main(&args)),
        Command::Probe { question, path } => print(crate::probe::answer(&question, &path))?,
        Command::Outside { mountpoint, socket } => {
            return Ok(crate::sandbox::unmount_helper::main(&mountpoint, socket.as_deref()));
        }
        Command::Guardian { .. } => return Ok(guardian::run()),
    }
    Ok(ExitCode::SUCCESS)
}

/// Serves in this process, or with `--daemon` in a background process that this one starts. The first `words` of `argv` are the
/// program and the command.
fn serve_by_mode(
    mount: &MountArgs,
    argv: &[OsString],
    words: usize,
    serve: impl FnOnce() -> Result<()>,
) -> Result<ExitCode> {
    if mount.background {
        inherited::reset();
        inherited::reset_priority();
        return Ok(daemon::run(&mount.log, serve));
    }
    if mount.daemon {
        let line = daemon::launch(argv, words)?;
        // The mount is served even if this line cannot be printed.
        if let Err(failure) = print(format!("{line}\n")) {
            let _ = writeln!(io::stderr(), "shunt: {failure}");
        }
    } else {
        inherited::reset();
        service_manager::connect();
        log::start(&mount.log)?;
        serve()?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes to standard output. A reader that closes the pipe early (`| head`) is no failure.
fn print(text: impl AsRef<[u8]>) -> Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_ref()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(failed(format_args!("cannot write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}
