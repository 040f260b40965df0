//! Packs that the metadata know whether or not a chunk is in them: those that were rewritten, and those that came of it.
//!
//! What is in a pack that is rewritten may be read for a while by who asked before where it is, and by who goes back to a copy of
//! the metadata. So such a pack goes only when nothing has been in it for long; and so does one that was to take over, and whose
//! writer ended before.

use std::collections::HashMap;

use crate::object::Time;
use crate::store::StoreError;
use crate::store::admin::StoreAdmin;

/// Before the key of a pack, in a setting. It says since when nothing is in the pack; empty: something is, or may come.
const PACK: &str = "gc.pack.";

/// What is to be set; see [`StoreAdmin::set_fenced`].
pub(super) type PackIntent = (String, Option<String>);

/// All of them, and since when nothing is in each, where that is so.
pub(super) fn read(keeper: &dyn StoreAdmin) -> Result<HashMap<String, Option<Time>>, StoreError> {
    let mut noted = HashMap::new();
    for (key, value) in keeper.settings(PACK)? {
        let since = match value.as_str() {
            "" => None,
            value => match value.parse() {
                Ok(at) => Some(Time(at)),
                Err(_) => return Err(StoreError::Damaged(format!("{key} is set to {value:?}"))),
            },
        };
        noted.insert(key[PACK.len()..].to_owned(), since);
    }
    Ok(noted)
}

/// Something is in the pack, or is to come.
pub(super) fn used(pack: &str) -> PackIntent {
    (format!("{PACK}{pack}"), Some(String::new()))
}

/// Nothing is in it from now on.
pub(super) fn empty(pack: &str, now: Time) -> PackIntent {
    (format!("{PACK}{pack}"), Some(now.0.to_string()))
}

/// It is no more.
pub(super) fn gone(pack: &str) -> PackIntent {
    (format!("{PACK}{pack}"), None)
}
