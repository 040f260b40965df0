//! `shunt volume set`.

use std::time::Duration;

use shunt_volume::keep::{retention, set_retention};
use shunt_volume::store::address::{self, Volume};
use shunt_volume::store::history::Retention;

use super::create;
use super::keep::cannot;
use crate::args::{RetentionArgs, VolumeSetArgs};
use crate::cmd::print;
use crate::error::Result;

const DAY: u64 = 24 * 3600;

pub fn run(args: &VolumeSetArgs) -> Result<()> {
    let meta = create::meta(args.meta.as_deref(), &args.name)?;
    let volume = address::open_blind(&meta, &args.name).map_err(|error| cannot("open", &args.name, error))?;
    let kept = keep(&volume, args.retention).map_err(|error| cannot("set", &args.name, error))?;
    let word = |number: Option<u64>| number.map_or_else(|| "all".to_owned(), |number| number.to_string());
    let days = word(kept.age.map(|age| age.as_secs() / DAY));
    print(format!("keep-days      {days}\nkeep-versions  {}\n", word(kept.versions.map(u64::from))))
}

/// Sets what was given. How it is then.
pub fn keep(
    volume: &Volume,
    args: RetentionArgs,
) -> std::result::Result<Retention, shunt_volume::store::StoreError> {
    let keeper = volume.keeper()?;
    let mut kept = retention(keeper)?;
    if let Some(days) = args.keep_days {
        kept.age = days.number().map(|days| Duration::from_secs(u64::from(days) * DAY));
    }
    if let Some(versions) = args.keep_versions {
        kept.versions = versions.number();
    }
    if args.keep_days.is_some() || args.keep_versions.is_some() {
        set_retention(keeper, kept)?;
    }
    Ok(kept)
}
