//! Whether this machine's clock can be gone by: what is old is told by it, and freed.

use std::time::Duration;

use crate::maintenance::KeepError;
use crate::object::Time;
use crate::runtime::runtime;
use crate::store::admin::StoreAdmin;
use crate::store::system_clock;
use crate::volume::Volume;

/// Clocks that are further apart are not gone by. Far below the time that anything is spared.
pub(super) const MAX_SKEW: Duration = Duration::from_secs(600);

/// Now, if the stores agree.
///
/// # Errors
/// [`KeepError::Clock`]; those of the stores.
pub(super) fn checked_now(volume: &Volume, keeper: &dyn StoreAdmin) -> Result<Time, KeepError> {
    let clock = system_clock();
    let before = clock();
    if let Some(theirs) = keeper.now()? {
        agree("the metadata", before, theirs, clock())?;
    }
    let blobs = volume.content.blobs();
    let key = format!("probe/{:032x}", rand::random::<u128>());
    let before = clock();
    let stored = runtime().block_on(async {
        blobs.put(&key, b"what time is it".to_vec()).await?;
        let stored = blobs.stat(&key).await;
        // One that stays is removed when it is old.
        blobs.delete(&key).await.ok();
        stored
    })?;
    let theirs = stored.last_modified.timestamp_nanos_opt().unwrap_or(i64::MAX);
    let now = clock();
    agree("the contents", before, Time(theirs), now)?;
    Ok(now)
}

/// Whether a time that was told between two others can be that.
fn agree(whose: &'static str, before: Time, theirs: Time, after: Time) -> Result<(), KeepError> {
    let apart = before.0.saturating_sub(theirs.0).max(theirs.0.saturating_sub(after.0));
    let apart = Duration::from_nanos(apart.max(0).unsigned_abs());
    match apart > MAX_SKEW {
        true => Err(KeepError::Clock { whose, minutes: apart.as_secs() / 60 }),
        false => Ok(()),
    }
}

/// The time so long before `now`.
pub(super) fn ago(now: Time, age: Duration) -> Time {
    Time(now.0.saturating_sub(age.as_nanos().min(i64::MAX as u128) as i64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_may_be_some_minutes_apart() {
        let at = |minutes: i64| Time(minutes * 60_000_000_000);
        for (theirs, agrees) in
            [(90, true), (111, true), (100, true), (89, false), (112, false), (i64::MAX, false)]
        {
            let theirs = if theirs == i64::MAX { Time(theirs) } else { at(theirs) };
            assert_eq!(agree("a store", at(100), theirs, at(101)).is_ok(), agrees, "{theirs:?}");
        }
        let told = agree("the metadata", at(5000), at(0), at(5001)).unwrap_err().to_string();
        assert!(told.contains("5000 minutes") && told.contains("the metadata"), "{told}");
    }
}
