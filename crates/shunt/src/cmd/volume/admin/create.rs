//! `shunt volume create NAME`: creates a volume, with its key if it is encrypted.

use shunt_volume::id::OwnerId;
use shunt_volume::open::{self, Options};

use super::{quota, settings};
use crate::args::VolumeCreateArgs;
use crate::cmd::print;
use crate::cmd::volume::{defaults, key};
use crate::error::{Result, failed, usage};

pub fn run(args: &VolumeCreateArgs) -> Result<()> {
    let meta = defaults::meta(args.meta.as_deref(), &args.name)?;
    let mut options = Options {
        owner: OwnerId(rustix::process::geteuid().as_raw()),
        group: OwnerId(rustix::process::getegid().as_raw()),
        ..Options::default()
    };
    let key = if args.encrypt { Some(key::make(args.key_file.as_deref(), &args.name)?) } else { None };
    options.secret = key.as_ref().map(|(secret, ..)| secret.clone());
    if let Some(data) = &args.data {
        options.data = data.parse().map_err(usage)?;
    }
    let cannot =
        |error: &dyn std::fmt::Display| failed(format_args!("cannot create volume {}: {error}", args.name));
    let volume = open::create(&meta, &args.name, &options).map_err(|error| {
        // The new key belongs to no volume.
        if let Some((_, file, true)) = &key {
            let _ = std::fs::remove_file(file);
        }
        cannot(&error)
    })?;
    settings::apply_retention(&volume, args.retention).map_err(|error| cannot(&error))?;
    quota::set(&volume, &args.quota).map_err(|error| cannot(&error))?;
    let mut output = format!("shunt: created volume {} in {meta:?}\n", args.name);
    if let Some((_, file, _)) = &key {
        output += &format!(
            "shunt: its key is in {}: without it the contents are lost, keep a copy\n",
            file.display()
        );
    }
    print(output)
}
