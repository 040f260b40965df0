//! Assembles a response from several queries to the store, sized by what the previous ones returned, so that no query returns
//! much more than a message can carry. Log and tree pages are cut off at the limit, and the client continues from there; lists
//! of versions are truncated; other responses fail if they exceed it.

use std::collections::HashMap;

use serde::Serialize;
use shunt_volume_store::{LogEntry, MetaStore, Page, StoreError};
use shunt_volume_types::id::{ObjectId, Seq};
use shunt_volume_types::object::VersionedObject;

use super::protocol::{Failure, MAX_FRAME_BYTES, MAX_ITEMS};

/// Maximum bytes of items in a response; the rest of the frame is for its envelope.
const MAX_RESPONSE_BYTES: usize = MAX_FRAME_BYTES - (1 << 20);
/// Number of items in the first query, whose size is unknown; and maximum number in later ones.
const FIRST_PAGE_ITEMS: usize = 16;
const MAX_PAGE_ITEMS: usize = 256;
/// Approximate number of bytes per query.
const PAGE_TARGET_BYTES: usize = 4 << 20;

/// Returns log entries after `after`, or a prefix where more exceed `bytes`; the flag is `true` if the answer is not cut short.
pub(super) fn log(
    meta: &dyn MetaStore,
    after: Seq,
    limit: u32,
    bytes: usize,
) -> Result<(Vec<LogEntry>, bool), StoreError> {
    let limit = limit.min(MAX_ITEMS) as usize;
    let (mut all, mut taken, mut step): (Vec<LogEntry>, _, _) = (Vec::new(), 0, FIRST_PAGE_ITEMS);
    loop {
        let step_entries = step.min(limit - all.len());
        let (found, is_whole) = meta.log_part(all.last().map_or(after, |entry| entry.seq), step_entries)?;
        let (count, before) = (found.len(), taken);
        for entry in found {
            taken += length(&entry);
            if taken > bytes && !all.is_empty() {
                return Ok((all, false));
            }
            all.push(entry);
        }
        if !is_whole || count < step_entries || all.len() >= limit {
            return Ok((all, is_whole));
        }
        step = next(count, taken - before);
    }
}

/// Returns a page of the tree, shortened if it exceeds `bytes`.
pub(super) fn scan(
    meta: &dyn MetaStore,
    from: ObjectId,
    limit: u32,
    bytes: usize,
) -> Result<Page, StoreError> {
    let limit = limit.min(MAX_ITEMS) as usize;
    let (mut all, mut taken, mut step) = (meta.scan(from, limit.min(FIRST_PAGE_ITEMS))?, 0, FIRST_PAGE_ITEMS);
    // Halves the page: the names in a directory are returned with it, so its size is unpredictable.
    while length(&all) > bytes && all.objects.len() > 1 {
        all = meta.scan(from, all.objects.len() / 2)?;
    }
    let mut part = (all.objects.len(), length(&all));
    while let Some(at) = all.next {
        taken += part.1;
        step = next(part.0, part.1).min(2 * step);
        let left = step.min(limit.saturating_sub(all.objects.len()));
        if left == 0 || taken >= bytes {
            break;
        }
        let more = meta.scan(at, left)?;
        part = (more.objects.len(), length(&more));
        if taken + part.1 > bytes {
            break;
        }
        all.objects.extend(more.objects);
        all.links.extend(more.links);
        all.next = more.next;
    }
    Ok(all)
}

/// Returns objects in the order of `ids`. Each is fetched once, even if requested repeatedly.
pub(super) fn each(
    ids: &[ObjectId],
    query: impl Fn(&[ObjectId]) -> Result<Vec<Option<VersionedObject>>, StoreError>,
) -> Result<Vec<Option<VersionedObject>>, Failure> {
    let mut times: HashMap<ObjectId, usize> = HashMap::new();
    let mut once = Vec::new();
    for id in ids {
        let times = times.entry(*id).or_default();
        if *times == 0 {
            once.push(*id);
        }
        *times += 1;
    }
    let weigh = |id: &ObjectId, object: &Option<VersionedObject>| {
        length(object) * times.get(id).copied().unwrap_or(1)
    };
    let found = parts(&once, |some| {
        let found: Vec<_> = some.iter().copied().zip(query(some)?).collect();
        let bytes = found.iter().map(|(id, object)| weigh(id, object)).sum();
        Ok((found, bytes))
    })?;
    let mut found: HashMap<ObjectId, Option<VersionedObject>> = found.into_iter().collect();
    let mut take = |id: &ObjectId| match times.get_mut(id) {
        Some(left @ 2..) => {
            *left -= 1;
            found.get(id).cloned().flatten()
        }
        _ => found.remove(id).flatten(),
    };
    Ok(ids.iter().map(&mut take).collect())
}

/// Returns all results for objects, in no order.
pub(super) fn all<T: Serialize>(
    ids: &[ObjectId],
    query: impl Fn(&[ObjectId]) -> Result<Vec<T>, StoreError>,
) -> Result<Vec<T>, Failure> {
    parts(ids, |some| {
        let found = query(some)?;
        let bytes = found.iter().map(length).sum();
        Ok((found, bytes))
    })
}

/// Returns the first items that fit into a response.
pub(super) fn latest<T: Serialize>(mut all: Vec<T>) -> Vec<T> {
    let mut bytes = 0;
    let fits = all.iter().take_while(|one| {
        bytes += length(one);
        bytes <= MAX_RESPONSE_BYTES
    });
    let count = fits.count();
    all.truncate(count);
    all
}

fn parts<T>(
    ids: &[ObjectId],
    query: impl Fn(&[ObjectId]) -> Result<(Vec<T>, usize), StoreError>,
) -> Result<Vec<T>, Failure> {
    let (mut all, mut bytes, mut rest, mut limit) = (Vec::new(), 0, ids, FIRST_PAGE_ITEMS);
    while !rest.is_empty() {
        let (some, more) = rest.split_at(limit.min(rest.len()));
        let (found, length) = query(some)?;
        bytes += length;
        if bytes > MAX_RESPONSE_BYTES {
            let long = format!("the response exceeds {MAX_RESPONSE_BYTES} bytes: ask for less at once");
            return Err(Failure::Other(long));
        }
        all.extend(found);
        limit = next(some.len(), length);
        rest = more;
    }
    Ok(all)
}

/// Returns the number of items for the next query, given the number and size of the last ones.
fn next(count: usize, length: usize) -> usize {
    (PAGE_TARGET_BYTES * count / length.max(1)).clamp(1, MAX_PAGE_ITEMS)
}

fn length<T: Serialize>(value: &T) -> usize {
    postcard::serialize_with_flavor(value, postcard::ser_flavors::Size::default()).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn oversized_response_is_not_read_to_the_end() {
        let ids: Vec<_> = (0..8192).map(ObjectId).collect();
        let asked = Cell::new(0);
        let long = |ids: &[ObjectId]| {
            asked.set(asked.get() + ids.len());
            Ok(vec!["x".repeat(1 << 20); ids.len()])
        };
        let refused = all(&ids, long).unwrap_err();
        assert!(matches!(&refused, Failure::Other(why) if why.contains("ask for less")), "{refused:?}");
        assert!(asked.get() < 64, "{}", asked.get());
        asked.set(0);
        let short = |ids: &[ObjectId]| Ok(ids.to_vec());
        assert_eq!(all(&ids, short).unwrap(), ids);
        assert_eq!(latest(vec!["x".repeat(1 << 20); 100]).len(), 30);
    }
}
