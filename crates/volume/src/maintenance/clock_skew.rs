//! Compares the clock of this machine with those of the stores. Garbage collection deletes by age, so it refuses to run if a
//! clock differs by more than ten minutes. The time of the object store is read from a probe object.

use std::time::Duration;

use crate::maintenance::MaintenanceError;
use crate::object::Time;
use crate::runtime::runtime;
use crate::store::admin::StoreAdmin;
use crate::store::system_clock;
use crate::volume::Volume;

/// Maximum difference between the clocks. Far below any grace period.
pub(super) const MAX_SKEW: Duration = Duration::from_secs(600);

/// Returns the current time, if the stores agree.
///
/// # Errors
/// [`MaintenanceError::Clock`]; errors of either store.
pub(super) fn checked_now(volume: &Volume, admin: &dyn StoreAdmin) -> Result<Time, MaintenanceError> {
    let clock = system_clock();
    let before = clock();
    if let Some(store_time) = admin.now()? {
        check_skew("the metadata", before, store_time, clock())?;
    }
    let blobs = volume.content.blobs();
    let key = format!("probe/{:032x}", rand::random::<u128>());
    let before = clock();
    let stored = runtime().block_on(async {
        blobs.put(&key, b"what time is it".to_vec()).await?;
        let stored = blobs.stat(&key).await;
        // If the deletion fails, the object is removed later by its age.
        blobs.delete(&key).await.ok();
        stored
    })?;
    let store_time = stored.last_modified.timestamp_nanos_opt().unwrap_or(i64::MAX);
    let now = clock();
    check_skew("the contents", before, Time(store_time), now)?;
    Ok(now)
}

/// Checks a time that was read between two others.
fn check_skew(
    whose: &'static str,
    before: Time,
    store_time: Time,
    after: Time,
) -> Result<(), MaintenanceError> {
    let apart = before.0.saturating_sub(store_time.0).max(store_time.0.saturating_sub(after.0));
    let apart = Duration::from_nanos(apart.max(0).unsigned_abs());
    match apart > MAX_SKEW {
        true => Err(MaintenanceError::Clock { whose, minutes: apart.as_secs() / 60 }),
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
            assert_eq!(check_skew("a store", at(100), theirs, at(101)).is_ok(), agrees, "{theirs:?}");
        }
        let message = check_skew("the metadata", at(5000), at(0), at(5001)).unwrap_err().to_string();
        assert!(message.contains("5000 minutes") && message.contains("the metadata"), "{message}");
    }
}
