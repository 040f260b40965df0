//! `shunt volume create NAME`.

use shunt_volume::id::{OwnerId, VolumeName};
use shunt_volume::store::address::{self, MetaAddress, Options};

use crate::args::VolumeCreateArgs;
use crate::base;
use crate::cmd::print;
use crate::error::{Result, failed, usage};

pub fn run(args: &VolumeCreateArgs) -> Result<()> {
    let meta = meta(args.meta.as_deref(), &args.name)?;
    let mut options = Options {
        owner: OwnerId(rustix::process::geteuid().as_raw()),
        group: OwnerId(rustix::process::getegid().as_raw()),
        ..Options::default()
    };
    if let Some(data) = &args.data {
        options.data = data.parse().map_err(usage)?;
    }
    address::create(&meta, &args.name, &options)
        .map_err(|error| failed(format_args!("cannot make volume {}: {error}", args.name)))?;
    print(format!("shunt: made volume {} in {meta:?}\n", args.name))
}

/// Where the metadata of a volume are that is made, or served.
pub fn meta(given: Option<&str>, name: &VolumeName) -> Result<MetaAddress> {
    match given {
        Some(address) => address.parse::<MetaAddress>().and_then(|meta| meta.of(name)).map_err(usage),
        None => Ok(MetaAddress::Sqlite(base::data().join("shunt/volumes").join(name.as_str()))),
    }
}
