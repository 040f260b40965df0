//! Descriptor tags: each names the file system block of one logged block. Their format depends on the journal's features.

use zerocopy::{FromBytes, IntoBytes};

use super::layout::{BLOCK_TAIL_BYTES, BlockHeader, JournalIncompat, RawTag, RawTag3, TagFlags};

/// A tag, independent of its format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tag {
    /// Block number in the file system.
    pub block: u64,
    /// Flags.
    pub flags: TagFlags,
    /// Checksum of the logged block: 32 bits in version 3, 16 in version 2, else 0.
    pub sum: u32,
}

/// Format of the tags in a journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TagForm {
    v3: bool,
    v2: bool,
    wide: bool,
}

/// Size in bytes of the UUID behind a tag without [`TagFlags::SAME_UUID`].
const UUID_BYTES: usize = 16;

impl TagForm {
    /// Returns the format for a journal with these features.
    pub fn of(features: JournalIncompat) -> Self {
        Self {
            v3: features.contains(JournalIncompat::CSUM_V3),
            v2: features.contains(JournalIncompat::CSUM_V2),
            wide: features.contains(JournalIncompat::BIT64),
        }
    }

    /// Size in bytes of a tag, without a UUID.
    pub fn size(self) -> usize {
        match self {
            Self { v3: true, .. } => size_of::<RawTag3>(),
            // Version 2 makes tags two bytes longer than their content.
            Self { v2, wide, .. } => 8 + if wide { 4 } else { 0 } + if v2 { 2 } else { 0 },
        }
    }

    /// Number of bytes at the end of a journal block that tags may not use.
    fn tail(self) -> usize {
        if self.v2 || self.v3 { BLOCK_TAIL_BYTES } else { 0 }
    }

    /// Maximum number of tags in a descriptor of `block` bytes; only the first has a UUID.
    pub(crate) fn max_per_block(self, block: usize) -> usize {
        block.saturating_sub(size_of::<BlockHeader>() + UUID_BYTES + self.tail()) / self.size()
    }

    fn parse(self, bytes: &[u8]) -> Option<Tag> {
        let block = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
        if self.v3 {
            let (raw, _) = RawTag3::read_from_prefix(bytes).ok()?;
            // Without the feature, the high half is not valid.
            let high = if self.wide { raw.blocknr_high.get() } else { 0 };
            return Some(Tag {
                block: block(high, raw.blocknr.get()),
                flags: TagFlags::from_bits_retain(raw.flags.get()),
                sum: raw.checksum.get(),
            });
        }
        let mut whole = [0; size_of::<RawTag>()];
        let length = if self.wide { whole.len() } else { 8 };
        whole[..length].copy_from_slice(bytes.get(..length)?);
        let raw = RawTag::read_from_bytes(&whole).ok()?;
        Some(Tag {
            block: block(raw.blocknr_high.get(), raw.blocknr.get()),
            flags: TagFlags::from_bits_retain(raw.flags.get().into()),
            sum: raw.checksum.get().into(),
        })
    }

    /// Writes tags into a descriptor behind its header. The first tag is followed by the journal's UUID; the last is marked as
    /// such.
    ///
    /// # Panics
    /// If there are more than [`max_per_block`](Self::max_per_block) tags.
    pub(crate) fn put(self, descriptor: &mut [u8], uuid: &[u8; 16], tags: &[Tag]) {
        let mut at = size_of::<BlockHeader>();
        for (index, tag) in tags.iter().enumerate() {
            let mut flags = tag.flags - (TagFlags::SAME_UUID | TagFlags::LAST);
            flags.set(TagFlags::SAME_UUID, index > 0);
            flags.set(TagFlags::LAST, index + 1 == tags.len());
            let (low, high) = (tag.block as u32, (tag.block >> 32) as u32);
            if self.v3 {
                let raw = RawTag3 {
                    blocknr: low.into(),
                    flags: flags.bits().into(),
                    blocknr_high: high.into(),
                    checksum: tag.sum.into(),
                };
                descriptor[at..at + size_of::<RawTag3>()].copy_from_slice(raw.as_bytes());
            } else {
                let raw = RawTag {
                    blocknr: low.into(),
                    checksum: (tag.sum as u16).into(),
                    flags: (flags.bits() as u16).into(),
                    blocknr_high: high.into(),
                };
                let length = if self.wide { size_of::<RawTag>() } else { 8 };
                descriptor[at..at + length].copy_from_slice(&raw.as_bytes()[..length]);
            }
            at += self.size();
            if index == 0 {
                descriptor[at..at + UUID_BYTES].copy_from_slice(uuid);
                at += UUID_BYTES;
            }
        }
    }

    /// Iterates over the tags of a descriptor, up to the one marked as the last, or to the end of the block.
    pub fn tags(self, descriptor: &[u8]) -> impl Iterator<Item = Tag> {
        let end = descriptor.len().saturating_sub(self.tail());
        let mut rest = descriptor.get(size_of::<BlockHeader>()..end).unwrap_or_default();
        std::iter::from_fn(move || {
            let bytes = rest.get(..self.size())?;
            let tag = self.parse(bytes)?;
            let uuid = if tag.flags.contains(TagFlags::SAME_UUID) { 0 } else { UUID_BYTES };
            rest = match tag.flags.contains(TagFlags::LAST) {
                true => &[],
                false => rest.get(self.size() + uuid..).unwrap_or_default(),
            };
            Some(tag)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_reads_what_it_wrote() {
        use JournalIncompat as I;
        let forms = [
            (I::empty(), 8),
            (I::BIT64, 12),
            (I::CSUM_V2, 10),
            (I::CSUM_V2 | I::BIT64, 14),
            (I::CSUM_V3, 16),
            (I::CSUM_V3 | I::BIT64, 16),
        ];
        for (features, size) in forms {
            let form = TagForm::of(features);
            assert_eq!(form.size(), size);
            for count in [1, 2, form.max_per_block(1024)] {
                let high = if features.contains(I::BIT64) { 7 << 32 } else { 0 };
                let sums = features.intersects(I::CSUM_V2 | I::CSUM_V3);
                let mut tags: Vec<Tag> = (0..count)
                    .map(|n| Tag {
                        block: high + n as u64 * 1000,
                        flags: if n % 3 == 0 { TagFlags::ESCAPE } else { TagFlags::empty() },
                        sum: if sums { n as u32 + 9 } else { 0 },
                    })
                    .collect();
                let mut block = vec![0; 1024];
                form.put(&mut block, &[5; 16], &tags);
                for (index, tag) in tags.iter_mut().enumerate() {
                    tag.flags.set(TagFlags::SAME_UUID, index > 0);
                    tag.flags.set(TagFlags::LAST, index + 1 == count);
                }
                assert_eq!(form.tags(&block).collect::<Vec<_>>(), tags, "{features:?}");
            }
        }
    }

    #[test]
    fn tags_without_a_last_one_end_with_the_block() {
        let form = TagForm::of(JournalIncompat::CSUM_V3);
        assert_eq!(form.tags(&[0xf2; 1024]).count(), (1024 - 12 - 4) / 16);
        assert_eq!(form.tags(&[0; 1024]).count(), (1024 - 12 - 4 + 16) / 32);
        assert_eq!(form.tags(&[0; 10]).count(), 0);
    }
}
