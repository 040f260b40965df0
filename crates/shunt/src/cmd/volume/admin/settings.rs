//! `shunt volume set`: sets and prints the retention, quotas and conflict handling of a volume.

use std::time::Duration;

use shunt_volume::maintenance::{retention, set_retention};
use shunt_volume::merge::{ATTRIBUTE, BESIDE};
use shunt_volume::open;
use shunt_volume::store::history::Retention;
use shunt_volume::volume::Volume;
use shunt_volume::volume_settings;

use super::maintenance::cannot;
use super::quota;
use crate::args::{ConflictsArg, RetentionArgs, VolumeSetArgs};
use crate::cmd::print;
use crate::cmd::volume::defaults::{self, own_name};
use crate::cmd::volume::key;
use crate::error::Result;

const DAY: u64 = 24 * 3600;

pub fn run(args: &VolumeSetArgs) -> Result<()> {
    let meta = defaults::meta(args.meta.as_deref(), &args.name)?;
    let opened = match key::find(args.key_file.as_deref(), &args.name)? {
        Some(secret) => open::open(&meta, &args.name, Some(&secret)),
        // Only sealed parts need the key.
        None => open::open_without_key(&meta, &args.name),
    };
    let volume = opened.map_err(|error| cannot("open", &args.name, error))?;
    let kept = keep(&volume, args.retention).map_err(|error| cannot("set", &args.name, error))?;
    let limits = quota::set(&volume, &args.quota).map_err(|error| cannot("set", &args.name, error))?;
    let beside = conflicts(&volume, args.conflicts).map_err(|error| cannot("set", &args.name, error))?;
    let word = |number: Option<u64>| number.map_or_else(|| "all".to_owned(), |number| number.to_string());
    let days = word(kept.age.map(|age| age.as_secs() / DAY));
    let versions = word(kept.versions.map(u64::from));
    print(format!(
        "keep-days      {days}\nkeep-versions  {versions}\nconflicts      {beside}\n{}",
        quota::lines(&limits)
    ))
}

/// Sets how conflicts are shown, if that is given, and returns the setting in effect.
pub fn conflicts(
    volume: &Volume,
    how: Option<ConflictsArg>,
) -> std::result::Result<&'static str, shunt_volume::store::StoreError> {
    let wanted = how.map(|how| (how == ConflictsArg::Beside).then(|| BESIDE.to_vec()));
    if let Some(wanted) = wanted {
        let node = own_name().map_err(|error| shunt_volume::store::StoreError::Denied(error.to_string()))?;
        volume_settings::set(&*volume.meta, &node, ATTRIBUTE, &|_| Ok(wanted.clone()))?;
    }
    let now = volume_settings::get(&*volume.meta, ATTRIBUTE)?;
    Ok(if now.as_deref() == Some(BESIDE) { "beside" } else { "directory" })
}

/// Sets the given retention and returns the one in effect.
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
