//! `shunt stat`: prints the statistics that the daemon of a mount reports.

use std::time::Duration;

use super::{print, stat_table};
use crate::cli::StatArgs;
use crate::control::{self, SocketDir, SocketName};
use crate::error::{Result, failed};
use crate::own_mounts;
use crate::report::Stat;

pub fn run(args: &StatArgs) -> Result<()> {
    let path = args.mountpoint.display();
    let (mount, info) = own_mounts::find(&args.mountpoint)?;
    let dirs = own_mounts::owner(&info).map(SocketDir::of).unwrap_or_default();
    let silent = |error| failed(format_args!("the daemon of {path} does not answer: {error}"));
    let name = SocketName::of(&mount);
    let ask = || control::request(&dirs, &name, || !mount.is_mounted(), |peer| peer.stat());
    let no_daemon = || {
        failed(format_args!(
            "no daemon of this user serves {path}; run this as the user who mounted it, or remove a dead mount with \
             `shunt umount {path}`"
        ))
    };
    let mut before: Option<Stat> = None;
    loop {
        let stat = ask().map_err(silent)?.ok_or_else(no_daemon)?;
        match args.json {
            true if args.watch.is_some() => {
                print(format!("{}\n", serde_json::to_string(&stat).map_err(failed)?))?
            }
            true => print(format!("{}\n", serde_json::to_string_pretty(&stat).map_err(failed)?))?,
            false => print(stat_table::render(&stat, before.as_ref()))?,
        }
        let Some(seconds) = args.watch else { return Ok(()) };
        if !args.json {
            print("\n")?;
        }
        std::thread::sleep(Duration::from_secs(seconds));
        before = Some(stat);
        if !mount.is_mounted() {
            return Ok(());
        }
    }
}
