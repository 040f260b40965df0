//! Superblock parsing and validation: the rest of the engine relies on the checked values of [`Geometry`].

use zerocopy::{FromBytes, IntoBytes};

use crate::checksum::crc32c;
use crate::device::Device;
use crate::error::{Corruption, Error, Result};
use crate::layout::{Compat, GroupDescriptor, Incompat, RawInode, RawSuperblock, RoCompat};
use crate::layout::{SUPERBLOCK_MAGIC, SUPERBLOCK_OFFSET};
use crate::probe;

/// Sizes and counts of a file system, validated against each other and against the device.
#[derive(Debug, Clone)]
pub struct Geometry {
    /// Bytes per block: 1024 to 65536.
    pub block_size: u32,
    /// Binary logarithm of the block size.
    pub block_bits: u32,
    /// Number of blocks of the file system.
    pub blocks: u64,
    /// First block of the first group: 1 with blocks of 1 KiB and no clusters, else 0.
    pub first_data_block: u32,
    /// Blocks per group; the last group may have fewer.
    pub blocks_per_group: u32,
    /// Blocks per cluster: 1 without `bigalloc`.
    pub cluster_blocks: u32,
    /// Inodes per group.
    pub inodes_per_group: u32,
    /// Number of inodes of the file system.
    pub inodes: u32,
    /// Bytes per inode.
    pub inode_size: u16,
    /// Number of the first inode that is not reserved.
    pub first_inode: u32,
    /// Number of groups.
    pub groups: u32,
    /// Bytes per group descriptor.
    pub descriptor_size: u16,
    /// With `meta_bg`: the first descriptor block that lies in its own group.
    pub first_meta_bg: Option<u32>,
    /// Blocks behind the descriptors that are reserved for growth.
    pub reserved_descriptors: u16,
    /// With `sparse_super2`: the groups, besides the first, with a backup of the superblock.
    pub backup_groups: Option<[u32; 2]>,
    /// Binary logarithm of the number of groups per flex group.
    pub flex_bits: u8,
    /// Compatible features.
    pub compat: Compat,
    /// Incompatible features.
    pub incompat: Incompat,
    /// Read-only compatible features: writing requires support for all of them.
    pub ro_compat: RoCompat,
    /// Seed of all metadata checksums; `None` without `metadata_csum`.
    pub checksum_seed: Option<u32>,
    /// Volume identifier.
    pub uuid: [u8; 16],
    /// Seed of the hash of directory entry names.
    pub hash_seed: [u32; 4],
    /// Hash algorithm of new directory indexes: 0 legacy, 1 half MD4, 2 TEA.
    pub hash_version: u8,
    /// Names are hashed as unsigned characters.
    pub unsigned_hash: bool,
}

/// Upper limit of `flex_bits`, even if the superblock has a larger value.
const MAX_FLEX_BITS: u8 = 10;

impl RawSuperblock {
    /// Writes the whole superblock with its checksum to its location.
    pub(crate) fn write(&mut self, device: &dyn Device) -> Result<()> {
        if self.feature_ro_compat.get() & RoCompat::METADATA_CSUM.bits() != 0 {
            self.checksum = crc32c(!0, &self.as_bytes()[..0x3fc]).into();
        }
        Ok(device.write_at(SUPERBLOCK_OFFSET, self.as_bytes())?)
    }

    /// Copies the error records from another superblock.
    pub(crate) fn take_errors(&mut self, other: &Self) {
        let range = std::mem::offset_of!(Self, error_count)..std::mem::offset_of!(Self, mount_opts);
        self.as_mut_bytes()[range.clone()].copy_from_slice(&other.as_bytes()[range]);
    }
}

/// Checks the checksum of a superblock, if it has one.
fn check_sum(raw: &RawSuperblock) -> Result<()> {
    let wrong = |what: String| Err(Corruption::new(format!("superblock: {what}")).into());
    if raw.rev_level.get() < 1 || raw.feature_ro_compat.get() & RoCompat::METADATA_CSUM.bits() == 0 {
        return Ok(());
    }
    if raw.checksum_type != 1 {
        return wrong(format!("checksum type {} is not crc32c", raw.checksum_type));
    }
    // The checksum is the last field and covers all before it.
    let sum = crc32c(!0, &raw.as_bytes()[..0x3fc]);
    if sum != raw.checksum.get() {
        return wrong(format!("checksum {:#010x}, computed {sum:#010x}", raw.checksum.get()));
    }
    Ok(())
}

impl Geometry {
    /// Reads and checks the superblock of a device.
    ///
    /// # Errors
    /// [`Error::NotExt`], [`Error::Truncated`], [`Error::Unsupported`], [`Error::Corrupt`], [`Error::Io`].
    pub fn read(device: &dyn Device) -> Result<(Self, RawSuperblock)> {
        let (geometry, raw) = Self::read_torn(device)?;
        check_sum(&raw)?;
        Ok((geometry, raw))
    }

    /// Reads a superblock that may have been torn by a power failure: like [`read`](Self::read), but accepts a wrong checksum.
    pub(crate) fn read_torn(device: &dyn Device) -> Result<(Self, RawSuperblock)> {
        let mut bytes = [0; size_of::<RawSuperblock>()];
        match device.read_at(SUPERBLOCK_OFFSET, &mut bytes) {
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                return Err(Error::NotExt(probe::detect_format(device)));
            }
            result => result?,
        }
        let raw = RawSuperblock::read_from_bytes(&bytes).map_err(|_| Error::Invalid)?;
        if raw.magic.get() != SUPERBLOCK_MAGIC {
            return Err(Error::NotExt(probe::detect_format(device)));
        }
        let geometry = Self::check_fields(&raw)?;
        let expected = geometry.blocks << geometry.block_bits;
        if device.size() < expected {
            return Err(Error::Truncated { expected, actual: device.size() });
        }
        Ok((geometry, raw))
    }

    /// Validates a superblock without access to its device.
    ///
    /// # Errors
    /// The errors of [`read`](Self::read), except those of the device.
    pub(crate) fn check(raw: &RawSuperblock) -> Result<Self> {
        check_sum(raw)?;
        Self::check_fields(raw)
    }

    fn check_fields(raw: &RawSuperblock) -> Result<Self> {
        let wrong = |what: String| Err(Corruption::new(format!("superblock: {what}")).into());
        // Revision 0 has no feature fields.
        let dynamic = raw.rev_level.get() >= 1;
        let features = |field: u32| if dynamic { field } else { 0 };
        let compat = Compat::from_bits_retain(features(raw.feature_compat.get()));
        let incompat = Incompat::from_bits_retain(features(raw.feature_incompat.get()));
        let ro_compat = RoCompat::from_bits_retain(features(raw.feature_ro_compat.get()));
        if incompat.contains(Incompat::JOURNAL_DEV) {
            return Err(Error::NotExt("the external journal of an ext3 or ext4 file system"));
        }
        let unknown = incompat - Incompat::READABLE;
        if !unknown.is_empty() {
            return Err(Error::Unsupported(format!("feature {}", unknown.names().join(", "))));
        }
        let log = raw.log_block_size.get();
        if log > 6 {
            return wrong(format!("block size 2^{} is more than 65536", u64::from(log) + 10));
        }
        let block_bits = log + 10;
        let block_size = 1_u32 << block_bits;
        let first_data_block = raw.first_data_block.get();
        let bigalloc = ro_compat.contains(RoCompat::BIGALLOC);
        let expected = u32::from(block_size == 1024 && !bigalloc);
        if first_data_block != expected {
            return wrong(format!(
                "invalid first data block {first_data_block} for blocks of {block_size} bytes"
            ));
        }
        let wide = incompat.contains(Incompat::BIT64);
        let high = if wide { u64::from(raw.blocks_count_hi.get()) << 32 } else { 0 };
        let blocks = high | u64::from(raw.blocks_count_lo.get());
        if blocks <= u64::from(first_data_block) || blocks > 1 << (63 - block_bits) {
            return wrong(format!("invalid count of {blocks} blocks"));
        }
        let cluster_blocks = match bigalloc {
            true => {
                let more = raw.log_cluster_size.get().checked_sub(log).filter(|&more| more < 16);
                let Some(more) = more else {
                    return wrong(format!("invalid cluster size 2^{}", raw.log_cluster_size));
                };
                1 << more
            }
            false => 1,
        };
        // A bitmap fills one block.
        let limit = block_size * 8;
        let blocks_per_group = raw.blocks_per_group.get();
        let clusters_per_group =
            if cluster_blocks > 1 { raw.clusters_per_group.get() } else { blocks_per_group };
        if clusters_per_group == 0
            || clusters_per_group > limit
            || u64::from(blocks_per_group) != u64::from(clusters_per_group) * u64::from(cluster_blocks)
        {
            return wrong(format!(
                "invalid {blocks_per_group} blocks and {clusters_per_group} clusters per group"
            ));
        }
        let inode_size = if dynamic { raw.inode_size.get() } else { RawInode::BASE as u16 };
        if !inode_size.is_power_of_two()
            || usize::from(inode_size) < RawInode::BASE
            || u32::from(inode_size) > block_size
        {
            return wrong(format!("invalid inode size {inode_size}"));
        }
        let inodes_per_group = raw.inodes_per_group.get();
        let per_block = block_size / u32::from(inode_size);
        if inodes_per_group == 0 || inodes_per_group > limit || inodes_per_group % per_block != 0 {
            return wrong(format!("invalid count of {inodes_per_group} inodes per group"));
        }
        let groups = (blocks - u64::from(first_data_block)).div_ceil(u64::from(blocks_per_group));
        let inodes = raw.inodes_count.get();
        let Ok(groups) = u32::try_from(groups) else {
            return wrong(format!("invalid count of {groups} groups"));
        };
        if u64::from(inodes) != u64::from(groups) * u64::from(inodes_per_group) {
            return wrong(format!(
                "invalid count of {inodes} inodes in {groups} groups of {inodes_per_group}"
            ));
        }
        let descriptor_size = if wide { raw.desc_size.get() } else { 32 };
        if !descriptor_size.is_power_of_two()
            || usize::from(descriptor_size) < size_of::<GroupDescriptor>() && wide
            || u32::from(descriptor_size) > block_size
        {
            return wrong(format!("invalid group descriptor size {descriptor_size}"));
        }
        let first_inode = if dynamic { raw.first_ino.get() } else { 11 };
        if first_inode < 11 || first_inode > inodes {
            return wrong(format!("invalid first inode {first_inode}"));
        }
        let checksum_seed = ro_compat.contains(RoCompat::METADATA_CSUM).then(|| {
            match incompat.contains(Incompat::CSUM_SEED) {
                true => raw.checksum_seed.get(),
                false => crc32c(!0, &raw.uuid),
            }
        });
        Ok(Self {
            block_size,
            block_bits,
            blocks,
            first_data_block,
            blocks_per_group,
            cluster_blocks,
            inodes_per_group,
            inodes,
            inode_size,
            first_inode,
            groups,
            descriptor_size,
            first_meta_bg: incompat.contains(Incompat::META_BG).then(|| raw.first_meta_bg.get()),
            reserved_descriptors: raw.reserved_gdt_blocks.get(),
            backup_groups: compat
                .contains(Compat::SPARSE_SUPER2)
                .then(|| raw.backup_bgs.map(|group| group.get())),
            flex_bits: match incompat.contains(Incompat::FLEX_BG) {
                true => raw.log_groups_per_flex.min(MAX_FLEX_BITS),
                false => 0,
            },
            compat,
            incompat,
            ro_compat,
            checksum_seed,
            uuid: raw.uuid,
            hash_seed: raw.hash_seed.map(|word| word.get()),
            hash_version: Some(raw.def_hash_version).filter(|&version| version <= 2).unwrap_or(1),
            // EXT2_FLAGS_UNSIGNED_HASH
            unsigned_hash: raw.flags.get() & 2 != 0,
        })
    }

    /// Returns the names of the features that allow reading and prevent writing.
    pub(crate) fn unwritable(&self) -> Vec<String> {
        let mut names = (self.incompat - Incompat::WRITABLE).names();
        names.extend((self.ro_compat - RoCompat::WRITABLE).names());
        names
    }

    /// Returns `ext2`, `ext3` or `ext4`: the oldest format that has all features in use.
    pub fn kind(&self) -> &'static str {
        let Geometry { compat, incompat, ro_compat, .. } = *self;
        let old = Incompat::FILETYPE | Incompat::NEEDS_RECOVERY | Incompat::META_BG;
        let old_ro = RoCompat::SPARSE_SUPER | RoCompat::LARGE_FILE;
        match (old.contains(incompat) && old_ro.contains(ro_compat), compat.contains(Compat::HAS_JOURNAL)) {
            (true, false) => "ext2",
            (true, true) => "ext3",
            (false, _) => "ext4",
        }
    }

    /// Checks a range of blocks that some structure references.
    ///
    /// # Errors
    /// [`Corruption`] if the range is not within the file system.
    pub(crate) fn check_blocks(&self, start: u64, count: u64) -> std::result::Result<(), Corruption> {
        let end = start.checked_add(count);
        if start <= u64::from(self.first_data_block) || end.is_none_or(|end| end > self.blocks) {
            return Err(Corruption::new(format!("blocks {start}+{count} are not of this file system")));
        }
        Ok(())
    }

    /// Returns the group of an inode, and its index in the group.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if there is no such inode.
    pub(crate) fn locate_inode(&self, inode: u32) -> Result<(u32, u32)> {
        if inode == 0 || inode > self.inodes {
            return Err(Corruption::new(format!("inode number {inode} is out of range")).into());
        }
        Ok(((inode - 1) / self.inodes_per_group, (inode - 1) % self.inodes_per_group))
    }

    /// Number of descriptors per block.
    pub fn descriptors_per_block(&self) -> u32 {
        self.block_size / u32::from(self.descriptor_size)
    }

    /// Reports whether a group starts with a copy of the superblock.
    pub(crate) fn has_superblock(&self, group: u32) -> bool {
        if let Some(backups) = self.backup_groups {
            return group == 0 || backups.contains(&group);
        }
        let power_of = |base: u32| {
            let mut power = base;
            while power < group {
                let Some(next) = power.checked_mul(base) else { return false };
                power = next;
            }
            power == group
        };
        group <= 1
            || !self.ro_compat.contains(RoCompat::SPARSE_SUPER)
            || power_of(3)
            || power_of(5)
            || power_of(7)
    }

    /// Returns the first block of a group.
    pub fn group_start(&self, group: u32) -> u64 {
        u64::from(self.first_data_block) + u64::from(group) * u64::from(self.blocks_per_group)
    }

    /// Returns the block number of the n-th block of descriptors.
    pub fn descriptor_block(&self, nth: u32) -> u64 {
        match self.first_meta_bg {
            Some(first) if nth >= first => {
                let group = nth * self.descriptors_per_block();
                match group {
                    0 => (SUPERBLOCK_OFFSET >> self.block_bits) + 1,
                    group => self.group_start(group) + u64::from(self.has_superblock(group)),
                }
            }
            // Behind the superblock, whose location does not depend on where the first group starts.
            _ => (SUPERBLOCK_OFFSET >> self.block_bits) + 1 + u64::from(nth),
        }
    }
}
