//! `shunt volume set`: sets and prints the retention, quotas and conflict handling of a volume.

use std::time::Duration;

use shunt_volume::maintenance::volume_settings;
use shunt_volume::maintenance::{retention, set_retention};
use shunt_volume::merge::{ATTRIBUTE, KEEP_BOTH_VALUE};
use shunt_volume::open;
use shunt_volume::store::history::Retention;
use shunt_volume::volume::Volume;

use super::maintenance::operation_failed;
use super::quota;
use crate::args::{ConflictsArg, RetentionArgs, VolumeSetArgs};
use crate::cmd::print;
use crate::cmd::volume::defaults::{self, own_name};
use crate::cmd::volume::key;
use crate::error::Result;

const DAY_SECONDS: u64 = 24 * 3600;

pub fn run(args: &VolumeSetArgs) -> Result<()> {
    let meta = defaults::meta(args.meta.as_deref(), &args.name)?;
    let opened = match key::find(args.key_file.as_deref(), &args.name)? {
        Some(secret) => open::open(&meta, &args.name, Some(&secret)),
        // Only sealed parts need the key.
        None => open::open_without_key(&meta, &args.name),
    };
    let volume = opened.map_err(|error| operation_failed("open", &args.name, error))?;
    let kept = apply_retention(&volume, args.retention)
        .map_err(|error| operation_failed("set", &args.name, error))?;
    let limits =
        quota::set(&volume, &args.quota).map_err(|error| operation_failed("set", &args.name, error))?;
    let shown =
        conflicts(&volume, args.conflicts).map_err(|error| operation_failed("set", &args.name, error))?;
    let word = |number: Option<u64>| number.map_or_else(|| "all".to_owned(), |number| number.to_string());
    let days = word(kept.age.map(|age| age.as_secs() / DAY_SECONDS));
    let versions = word(kept.versions.map(u64::from));
    print(format!(
        "keep-days      {days}\nkeep-versions  {versions}\nconflicts      {shown}\n{}",
        quota::lines(&limits)
    ))
}

/// Sets how conflicts are shown, if that is given, and returns the setting in effect.
pub fn conflicts(
    volume: &Volume,
    how: Option<ConflictsArg>,
) -> std::result::Result<&'static str, shunt_volume::store::StoreError> {
    let new_value = how.map(|how| (how == ConflictsArg::Copy).then(|| KEEP_BOTH_VALUE.to_vec()));
    if let Some(new_value) = new_value {
        let node = own_name().map_err(|error| shunt_volume::store::StoreError::Denied(error.to_string()))?;
        volume_settings::set(&*volume.meta, &node, ATTRIBUTE, &|_| Ok(new_value.clone()))?;
    }
    let now = volume_settings::get(&*volume.meta, ATTRIBUTE)?;
    Ok(if now.as_deref() == Some(KEEP_BOTH_VALUE) { "copy" } else { "directory" })
}

/// Sets the given retention and returns the one in effect.
pub fn apply_retention(
    volume: &Volume,
    args: RetentionArgs,
) -> std::result::Result<Retention, shunt_volume::store::StoreError> {
    let admin = volume.admin()?;
    let mut kept = retention(admin)?;
    if let Some(days) = args.keep_days {
        kept.age = days.number().map(|days| Duration::from_secs(u64::from(days) * DAY_SECONDS));
    }
    if let Some(versions) = args.keep_versions {
        kept.versions = versions.number();
    }
    if args.keep_days.is_some() || args.keep_versions.is_some() {
        set_retention(admin, kept)?;
    }
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;
    use shunt_volume::open::Options;

    /// The stored value is older than the word `copy`, and older versions know no other.
    #[test]
    fn conflict_copies_keep_their_stored_value() {
        let dir = tempfile::tempdir().unwrap();
        let meta = format!("sqlite:{}", dir.path().join("notes").display());
        let name = "notes".parse().unwrap();
        let meta = defaults::meta(Some(&meta), &name).unwrap();
        let volume = open::create(&meta, &name, &Options::default()).unwrap();
        assert_eq!(conflicts(&volume, None).unwrap(), "directory");
        assert_eq!(conflicts(&volume, Some(ConflictsArg::Copy)).unwrap(), "copy");
        let stored = volume_settings::get(&*volume.meta, ATTRIBUTE).unwrap();
        assert_eq!(stored.as_deref(), Some(&b"beside"[..]));
        assert_eq!(conflicts(&volume, Some(ConflictsArg::Directory)).unwrap(), "directory");
    }
}
