//! The numeric fields of on-disk structures.

use std::mem::offset_of;

use shunt_ext4::journal::layout::{BLOCK_TAIL_BYTES, CommitHeader, RawJournalSuperblock};
use shunt_ext4::layout::{GroupDescriptor, RawInode, RawSuperblock};

use crate::find::Kind;
use crate::number::{Field, u16_at};

/// Maximum number of fields per structure; entries are alike.
const MAX_FIELDS: usize = 400;

/// Returns the fields of a structure, according to its current bytes. There is at least one.
pub(crate) fn fields(kind: Kind, bytes: &[u8]) -> Vec<Field> {
    let mut fields = match kind {
        Kind::Superblock => superblock(),
        Kind::Descriptor => descriptor(bytes.len()),
        Kind::Inode => inode(bytes),
        Kind::ExtentNode => extents(0, bytes.len()),
        Kind::DirectoryLeaf => entries(bytes),
        Kind::IndexRoot => index(24, bytes),
        Kind::IndexNode => index(0, bytes),
        Kind::Xattrs => [words(0..20, Field::little), attributes(32, bytes)].concat(),
        Kind::BlockBitmap | Kind::InodeBitmap => words(0..bytes.len().min(256), Field::little),
        Kind::Indirect => words(0..bytes.len(), Field::little),
        Kind::OrphanBlock => {
            let tail = bytes.len() - 8;
            [words(0..64, Field::little), words(tail..tail + 8, Field::little)].concat()
        }
        Kind::JournalSuperblock => journal_superblock(),
        Kind::JournalDescriptor => words(0..bytes.len() - BLOCK_TAIL_BYTES, Field::big),
        Kind::JournalRevocations => words(0..bytes.len() - BLOCK_TAIL_BYTES, Field::big),
        Kind::JournalCommit => {
            let sums = offset_of!(CommitHeader, chksum);
            let kinds = [Field::big(12, 1), Field::big(13, 1)];
            [words(0..12, Field::big), kinds.to_vec(), words(sums..sums + 8, Field::big)].concat()
        }
        Kind::FastCommit => records(bytes),
    };
    fields.truncate(MAX_FIELDS);
    fields
}

fn words(range: std::ops::Range<usize>, field: fn(usize, usize) -> Field) -> Vec<Field> {
    range.step_by(4).map(|at| field(at, 4)).collect()
}

/// Builds fields from the members of an on-disk type.
macro_rules! of {
    ($field:path, $type:ty: $($name:ident),* $(,)?) => {{
        fn width<T, F>(_: impl FnOnce(&T) -> &F) -> usize {
            size_of::<F>()
        }
        vec![$($field(offset_of!($type, $name), width(|raw: &$type| &raw.$name).min(8))),*]
    }};
}

fn superblock() -> Vec<Field> {
    of!(Field::little, RawSuperblock:
        inodes_count, blocks_count_lo, r_blocks_count_lo, free_blocks_count_lo, free_inodes_count,
        first_data_block, log_block_size, log_cluster_size, blocks_per_group, clusters_per_group,
        inodes_per_group, mnt_count, max_mnt_count, magic, state, errors, minor_rev_level, creator_os,
        rev_level, def_resuid, def_resgid, first_ino, inode_size, block_group_nr, feature_compat,
        feature_incompat, feature_ro_compat, uuid, reserved_gdt_blocks, journal_uuid, journal_inum,
        journal_dev, last_orphan, hash_seed, def_hash_version, jnl_backup_type, desc_size,
        default_mount_opts, first_meta_bg, blocks_count_hi, r_blocks_count_hi, free_blocks_count_hi,
        min_extra_isize, want_extra_isize, flags, raid_stride, mmp_interval, mmp_block,
        log_groups_per_flex, checksum_type, encryption_level, kbytes_written, error_count,
        first_error_block, usr_quota_inum, grp_quota_inum, overhead_clusters, backup_bgs, lpf_ino,
        prj_quota_inum, checksum_seed, encoding, encoding_flags, orphan_file_inum,
    )
}

fn descriptor(size: usize) -> Vec<Field> {
    let mut fields = of!(Field::little, GroupDescriptor:
        block_bitmap_lo, inode_bitmap_lo, inode_table_lo, free_blocks_count_lo, free_inodes_count_lo,
        used_dirs_count_lo, flags, itable_unused_lo, block_bitmap_hi, inode_bitmap_hi, inode_table_hi,
        free_blocks_count_hi, free_inodes_count_hi, used_dirs_count_hi, itable_unused_hi,
    );
    fields.retain(|field| field.at + field.width <= size);
    fields
}

fn journal_superblock() -> Vec<Field> {
    let mut fields = of!(Field::big, RawJournalSuperblock:
        blocksize, maxlen, first, sequence, start, errno, feature_compat, feature_incompat,
        feature_ro_compat, uuid, nr_users, checksum_type, num_fc_blocks, head,
    );
    fields.extend(words(0..12, Field::big));
    fields
}

fn inode(bytes: &[u8]) -> Vec<Field> {
    let mut fields = of!(Field::little, RawInode:
        mode, uid, size_lo, atime, ctime, mtime, dtime, links_count, blocks_lo, flags, version,
        generation, file_acl_lo, size_high, obso_faddr, blocks_high, file_acl_high, uid_high, extra_isize,
        ctime_extra, crtime, projid,
    );
    fields.retain(|field| field.at + field.width <= bytes.len());
    let map = offset_of!(RawInode, block);
    fields.extend(extents(map, map + 60));
    fields.extend(words(map..map + 60, Field::little));
    if bytes.len() > RawInode::BASE {
        let own = RawInode::BASE + u16_at(bytes, RawInode::BASE);
        fields.push(Field::little(own, 4));
        fields.extend(attributes(own + 4, bytes));
    }
    fields
}

fn extents(start: usize, end: usize) -> Vec<Field> {
    let mut fields: Vec<Field> = (0..4).map(|place| Field::little(start + place * 2, 2)).collect();
    for entry in (start + 12..end.saturating_sub(11)).step_by(12) {
        let of = |(at, width)| Field::little(entry + at, width);
        fields.extend([(0, 4), (4, 2), (6, 2), (8, 4), (4, 4), (8, 2)].map(of));
    }
    fields
}

/// Fields of directory entries; each entry is followed by its name.
fn entries(bytes: &[u8]) -> Vec<Field> {
    let mut fields = Vec::new();
    let mut entry = 0;
    while entry + 8 <= bytes.len() && fields.len() < MAX_FIELDS {
        let of = |(at, width)| Field::little(entry + at, width);
        fields.extend([(0, 4), (4, 2), (6, 1), (7, 1), (8, 1), (9, 4)].map(of));
        entry += u16_at(bytes, entry + 4).max(8);
    }
    fields
}

/// Fields of the root and the nodes of an index; `info` is the offset of the root's information.
fn index(info: usize, bytes: &[u8]) -> Vec<Field> {
    let mut fields = entries(&bytes[..(info + 8).min(bytes.len())]);
    if info > 0 {
        fields.extend((0..8).map(|at| Field::little(info + at, 1)));
    }
    fields.extend([Field::little(info + 8, 2), Field::little(info + 10, 2)]);
    fields.extend(words(info + 12..bytes.len(), Field::little));
    fields
}

/// Fields of attribute entries, up to the end of the list.
fn attributes(start: usize, bytes: &[u8]) -> Vec<Field> {
    let mut fields = Vec::new();
    let mut entry = start;
    while entry + 16 <= bytes.len() && fields.len() < MAX_FIELDS {
        let of = |(at, width)| Field::little(entry + at, width);
        fields.extend([(0, 1), (1, 1), (2, 2), (4, 4), (8, 4), (12, 4), (16, 4)].map(of));
        if bytes[entry..entry + 4] == [0; 4] {
            break;
        }
        entry += 16 + usize::from(bytes[entry]).next_multiple_of(4);
    }
    if fields.is_empty() { vec![Field::little(start, 4)] } else { fields }
}

/// Fields of fast-commit records.
fn records(bytes: &[u8]) -> Vec<Field> {
    let mut fields = Vec::new();
    let mut record = 0;
    while record + 4 <= bytes.len() && fields.len() < MAX_FIELDS {
        let length = u16_at(bytes, record + 2);
        fields.extend([Field::little(record, 2), Field::little(record + 2, 2)]);
        fields.extend(words(record + 4..(record + 4 + length).min(bytes.len()), Field::little));
        record += 4 + length;
    }
    fields
}
