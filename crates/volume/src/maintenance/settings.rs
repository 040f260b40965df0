//! What is set for a volume as a whole.

use std::time::Duration;

use crate::store::StoreError;
use crate::store::admin::StoreAdmin;
use crate::store::history::Retention;

const DAY: u64 = 24 * 3600;
/// How long a node may take from sending chunks to committing what speaks of them.
pub const GRACE: Duration = Duration::from_secs(24 * 3600);

/// How much of the log stays, as the history of the volume: what is in either.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogRetention {
    /// What was committed within so long.
    pub age: Duration,
    /// The last so many commits.
    pub count: u64,
}

/// Days that history is kept, or `all`.
const DAYS: &str = "history.days";
/// Versions of an object that are kept before the present one, or `all`.
const VERSIONS: &str = "history.versions";
const ALL: &str = "all";

/// How much of the volume's past is kept.
///
/// # Errors
/// Those of the store; [`StoreError::Damaged`] where what is set makes no sense.
pub fn retention(keeper: &dyn StoreAdmin) -> Result<Retention, StoreError> {
    let number = |key: &str| -> Result<Option<Option<u32>>, StoreError> {
        match keeper.setting(key)?.as_deref() {
            None => Ok(None),
            Some(ALL) => Ok(Some(None)),
            Some(value) => match value.parse() {
                Ok(number) => Ok(Some(Some(number))),
                Err(_) => Err(StoreError::Damaged(format!("{key} is set to {value:?}"))),
            },
        }
    };
    let mut kept = Retention::default();
    if let Some(days) = number(DAYS)? {
        kept.age = days.map(|days| Duration::from_secs(u64::from(days) * DAY));
    }
    if let Some(versions) = number(VERSIONS)? {
        kept.versions = versions;
    }
    Ok(kept)
}

/// Sets it. Ages are whole days.
///
/// # Errors
/// Those of the store.
pub fn set_retention(keeper: &dyn StoreAdmin, kept: Retention) -> Result<(), StoreError> {
    let word = |number: Option<u64>| number.map_or_else(|| ALL.to_owned(), |number| number.to_string());
    keeper.set_setting(DAYS, &word(kept.age.map(|age| age.as_secs() / DAY)))?;
    keeper.set_setting(VERSIONS, &word(kept.versions.map(u64::from)))
}
