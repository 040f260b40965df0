//! Reads and changes the limits in a store. A change is a commit that is repeated if another node changed the limits
//! concurrently.

use std::cell::RefCell;

use super::{ATTRIBUTE, Limits, MAX_USERS};
use crate::id::NodeName;
use crate::maintenance::volume_settings;
use crate::store::{MetaStore, StoreError};

/// A change of the limits.
pub type Change<'a> = &'a dyn Fn(&mut Limits);

/// Returns the limits of a volume.
///
/// # Errors
/// Any [`StoreError`] of the engine, such as [`StoreError::Unreachable`].
pub fn limits(meta: &dyn MetaStore) -> Result<Limits, StoreError> {
    Ok(volume_settings::get(meta, ATTRIBUTE)?.map(|value| Limits::parse(&value)).unwrap_or_default())
}

/// Changes the limits and returns the new ones.
///
/// # Errors
/// [`StoreError::Denied`] if too many users would have limits; any other [`StoreError`] of the engine.
pub fn set(meta: &dyn MetaStore, node: &NodeName, change: Change<'_>) -> Result<Limits, StoreError> {
    let now = RefCell::default();
    volume_settings::set(meta, node, ATTRIBUTE, &|value| {
        let mut limits = value.map(|value| Limits::parse(&value)).unwrap_or_default();
        change(&mut limits);
        if limits.users.len() > MAX_USERS {
            return Err(StoreError::Denied(format!(
                "at most {MAX_USERS} users can have limits of their own"
            )));
        }
        let value = Some(limits.to_bytes()).filter(|value| !value.is_empty());
        now.replace(limits);
        Ok(value)
    })?;
    Ok(now.into_inner())
}
