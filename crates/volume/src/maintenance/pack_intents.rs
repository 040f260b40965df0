//! Records of packs that are involved in compaction, as sources or destinations, recorded before compaction begins and until
//! the pack is deleted.
//!
//! A compacted pack may still be read for a while: by a node that located its chunks before, and by one restored from a copy of
//! the metadata. So such a pack is deleted only when it has been empty for long; likewise a destination whose writer ended
//! early.

use std::collections::HashMap;

use crate::object::Time;
use crate::store::StoreError;
use crate::store::admin::StoreAdmin;

/// Prefix of the setting for a pack, followed by its key. The value is the time since when the pack is empty; an empty value:
/// it has live chunks, or may get some.
const PACK_SETTING_PREFIX: &str = "gc.pack.";

/// A setting to write; see [`StoreAdmin::set_fenced`].
pub(super) type PackIntent = (String, Option<String>);

/// Reads all records, each with the time since when the pack is empty, if it is.
pub(super) fn read(admin: &dyn StoreAdmin) -> Result<HashMap<String, Option<Time>>, StoreError> {
    let mut noted = HashMap::new();
    for (key, value) in admin.settings(PACK_SETTING_PREFIX)? {
        let since = match value.as_str() {
            "" => None,
            value => match value.parse() {
                Ok(at) => Some(Time(at)),
                Err(_) => {
                    return Err(StoreError::Damaged(format!(
                        "setting {key} has the invalid value {value:?}"
                    )));
                }
            },
        };
        noted.insert(key[PACK_SETTING_PREFIX.len()..].to_owned(), since);
    }
    Ok(noted)
}

/// Records that the pack has live chunks, or may get some.
pub(super) fn mark_used(pack: &str) -> PackIntent {
    (format!("{PACK_SETTING_PREFIX}{pack}"), Some(String::new()))
}

/// Records that the pack is empty from now on.
pub(super) fn mark_empty(pack: &str, now: Time) -> PackIntent {
    (format!("{PACK_SETTING_PREFIX}{pack}"), Some(now.0.to_string()))
}

/// Removes the record of a deleted pack.
pub(super) fn remove(pack: &str) -> PackIntent {
    (format!("{PACK_SETTING_PREFIX}{pack}"), None)
}
