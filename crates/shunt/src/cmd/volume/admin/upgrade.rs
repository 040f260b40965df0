//! `shunt volume upgrade-format`: seals the log of an encrypted volume of an older version.

use shunt_volume::upgrade::{Upgraded, upgrade};

use super::maintenance::operation_failed;
use crate::args::VolumeUpgradeArgs;
use crate::cmd::print;
use crate::cmd::volume::{defaults, key};
use crate::error::Result;
use crate::progress::Progress;

pub fn run(args: &VolumeUpgradeArgs) -> Result<()> {
    let meta = defaults::meta(args.meta.as_deref(), &args.name)?;
    let secret = key::find(args.key_file.as_deref(), &args.name)?;
    let progress = Progress::new();
    let done = upgrade(&meta, &args.name, secret.as_ref(), &|commits| {
        progress.update(format_args!("reading the log: {commits} commits"));
    })
    .map_err(|error| operation_failed("upgrade", &args.name, error))?;
    drop(progress);
    print(match done {
        Upgraded::Now(at) => format!(
            "shunt: volume {} is of format 3: its log is sealed after commit {at}. Remount it on all machines, restart its \
             gateways, and let machines that joined it join again\n",
            args.name
        ),
        Upgraded::Before(at) => {
            format!("shunt: volume {} is of format 3 already, sealed after commit {at}\n", args.name)
        }
    })
}
