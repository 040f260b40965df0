//! Segment lists of large files, which are stored in chunks of their own ([`Layout::Indirect`]).
//!
//! Lists are bounded when they are read: a malicious writer could commit a few lists that name more segments than fit into
//! memory.

use shunt_volume_store::MetaStore;
use shunt_volume_store::validate::validate_content;
use shunt_volume_types::object::{Content, Layout, Segment};

use crate::{ContentError, ContentStore};

/// Maximum number of segments in the metadata themselves; more are stored as lists.
pub(super) const MAX_DIRECT_SEGMENTS: usize = 64;
/// Number of segments in a list.
pub(super) const SEGMENTS_PER_LIST: usize = 4096;
/// Upper bound on the encoded length of a list in bytes.
const MAX_LIST_BYTES: u32 = 256 << 10;
/// Number of lists that are read at once.
const LISTS_PER_BATCH: usize = 16;
/// Lower bound on the average length of a segment: a quarter of the shortest that is made.
const MIN_AVERAGE_SEGMENT_BYTES: u64 = 64 << 10;

fn damaged(why: &str) -> ContentError {
    ContentError::Damaged(why.to_owned())
}

/// Decodes a list.
fn decode(list: &[u8]) -> Result<Vec<Segment>, ContentError> {
    // The count comes first: a list with too many segments is rejected before the rest is decoded.
    let (count, _) = postcard::take_from_bytes::<u64>(list)
        .map_err(|error| ContentError::Damaged(format!("indirect list: {error}")))?;
    if count > SEGMENTS_PER_LIST as u64 {
        return Err(damaged("an indirect list has too many segments"));
    }
    let segments: Vec<Segment> = postcard::from_bytes(list)
        .map_err(|error| ContentError::Damaged(format!("indirect list: {error}")))?;
    if segments.iter().any(|segment| segment.length() == 0) {
        return Err(damaged("an indirect list has a segment of length 0"));
    }
    Ok(segments)
}

impl ContentStore {
    /// Returns the segments of a content, from the first byte on; none if it is inline.
    ///
    /// # Errors
    /// [`ContentError`] of reading the lists of a large file.
    pub fn segments(&self, meta: &dyn MetaStore, content: &Content) -> Result<Vec<Segment>, ContentError> {
        if let Some(why) = validate_content(content) {
            return Err(damaged(why));
        }
        let lists = match &content.layout {
            Layout::Inline(_) => return Ok(Vec::new()),
            Layout::Direct(segments) => return Ok(segments.clone()),
            Layout::Indirect(lists) => lists,
        };
        let limit = (content.size / MIN_AVERAGE_SEGMENT_BYTES).saturating_add(SEGMENTS_PER_LIST as u64);
        let (mut segments, mut sum) = (Vec::new(), 0_u64);
        for part in lists.chunks(LISTS_PER_BATCH) {
            for list in self.read_lists(meta, part)? {
                sum = list.iter().fold(sum, |sum, segment| sum.saturating_add(segment.length()));
                segments.extend(list);
                if sum > content.size || segments.len() as u64 > limit {
                    return Err(damaged("the indirect lists have more segments than the file"));
                }
            }
        }
        if sum != content.size {
            return Err(damaged("the segments do not add up to the size of the file"));
        }
        Ok(segments)
    }

    /// Returns the segments in one list of a large file.
    pub fn list(&self, meta: &dyn MetaStore, list: &Segment) -> Result<Vec<Segment>, ContentError> {
        Ok(self.read_lists(meta, std::slice::from_ref(list))?.pop().unwrap_or_default())
    }

    fn read_lists(&self, meta: &dyn MetaStore, lists: &[Segment]) -> Result<Vec<Vec<Segment>>, ContentError> {
        let fits =
            |list: &Segment| matches!(list, Segment::Chunk { length, .. } if *length <= MAX_LIST_BYTES);
        if !lists.iter().all(fits) {
            return Err(damaged("an indirect list is too long"));
        }
        self.read_pieces(meta, lists)?.iter().map(|list| decode(list)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shunt_volume_store::codec;
    use shunt_volume_types::object::ChunkId;

    #[test]
    fn the_longest_list_is_one() {
        let longest = vec![Segment::Chunk { id: ChunkId([255; 32]), length: u32::MAX }; SEGMENTS_PER_LIST];
        let list = codec::encode(&longest);
        assert!(list.len() <= MAX_LIST_BYTES as usize, "{}", list.len());
        assert_eq!(decode(&list).unwrap(), longest);
    }

    #[test]
    fn lists_that_nobody_makes_are_refused() {
        let hole = |length| Segment::Hole { length };
        for list in [vec![hole(1); SEGMENTS_PER_LIST + 1], vec![hole(5), hole(0)]] {
            assert!(matches!(decode(&codec::encode(&list)), Err(ContentError::Damaged(_))));
        }
        for bytes in [&b""[..], &[255; 20], &[5, 1]] {
            assert!(matches!(decode(bytes), Err(ContentError::Damaged(_))), "{bytes:?}");
        }
    }
}
