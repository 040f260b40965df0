//! Settings for the maintenance of a volume: the retention of its history. They are stored with the metadata, outside of the
//! tree; see [`volume_settings`](super::volume_settings) for those that nodes have to know.

use std::time::Duration;

use crate::store::StoreError;
use crate::store::admin::StoreAdmin;
use crate::store::history::Retention;

const DAY_SECONDS: u64 = 24 * 3600;
/// Minimum age of an unreferenced chunk before it is deleted: the time that a node has between uploading chunks and committing
/// their references.
pub const GRACE_PERIOD: Duration = Duration::from_secs(24 * 3600);

/// Retention of the log. An entry is kept if either applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogRetention {
    /// Entries committed within this time.
    pub age: Duration,
    /// The last entries, by number.
    pub count: u64,
}

/// Setting: days for which history is retained, or `all`.
const DAYS: &str = "history.days";
/// Setting: number of past versions of an object that are retained, or `all`.
const VERSIONS: &str = "history.versions";
const ALL: &str = "all";

/// Returns the retention of the volume's history.
///
/// # Errors
/// [`StoreError::Damaged`] for a malformed setting; any other [`StoreError`] of the engine.
pub fn retention(admin: &dyn StoreAdmin) -> Result<Retention, StoreError> {
    let number = |key: &str| -> Result<Option<Option<u32>>, StoreError> {
        match admin.setting(key)?.as_deref() {
            None => Ok(None),
            Some(ALL) => Ok(Some(None)),
            Some(value) => match value.parse() {
                Ok(number) => Ok(Some(Some(number))),
                Err(_) => Err(StoreError::Damaged(format!("setting {key} has the invalid value {value:?}"))),
            },
        }
    };
    let mut limits = Retention::default();
    if let Some(days) = number(DAYS)? {
        limits.age = days.map(|days| Duration::from_secs(u64::from(days) * DAY_SECONDS));
    }
    if let Some(versions) = number(VERSIONS)? {
        limits.versions = versions;
    }
    Ok(limits)
}

/// Sets the retention. Ages are rounded down to whole days.
///
/// # Errors
/// Any [`StoreError`] of the engine, such as [`StoreError::Unreachable`].
pub fn set_retention(admin: &dyn StoreAdmin, limits: Retention) -> Result<(), StoreError> {
    let word = |number: Option<u64>| number.map_or_else(|| ALL.to_owned(), |number| number.to_string());
    admin.set_setting(DAYS, &word(limits.age.map(|age| age.as_secs() / DAY_SECONDS)))?;
    admin.set_setting(VERSIONS, &word(limits.versions.map(u64::from)))
}
