// SPDX-License-Identifier: GPL-2.0
/* iomap operations, which look up the extents of a file. */

#include <linux/pagemap.h>

#include "private.h"

/* Called with the folio locked: fails if the map changed since iomap_begin. */
static bool is_valid(struct inode *inode, const struct iomap *iomap)
{
	return extmap_map_is(&extmap_inode(inode)->map, iomap->validity_cookie);
}

const struct iomap_write_ops extmap_write_ops = {
	.iomap_valid = is_valid,
};

void extmap_iomap_set(struct inode *inode, const struct extmap_lookup *found, struct iomap *iomap)
{
	static const u16 types[] = {
		[EXTMAP_LOOKUP_HOLE] = IOMAP_HOLE,
		[EXTMAP_LOOKUP_UNWRITTEN] = IOMAP_UNWRITTEN,
		[EXTMAP_LOOKUP_WRITTEN] = IOMAP_MAPPED,
	};

	iomap->bdev = file_bdev(extmap_connection(inode->i_sb)->device);
	iomap->type = types[found->kind];
	iomap->addr = found->kind == EXTMAP_LOOKUP_HOLE ? IOMAP_NULL_ADDR : found->device;
	iomap->offset = found->offset;
	iomap->length = found->length;
	iomap->flags = 0;
	iomap->validity_cookie = found->version;
	extmap_set_write_ops(iomap, &extmap_write_ops);
}

/*
 * Callers hold a folio lock, the inode lock, or count as direct I/O, so
 * extmap_connection_end() waits for them before it closes the device.
 */
static int begin(struct inode *inode, loff_t offset, loff_t length, unsigned int flags,
		 struct iomap *iomap, struct iomap *source)
{
	struct extmap_inode *file = extmap_inode(inode);
	struct extmap_lookup found;

	if (flags & (IOMAP_WRITE | IOMAP_ZERO) && !file->writable)
		return -EROFS;
	if (READ_ONCE(extmap_connection(inode->i_sb)->ended))
		return -EIO;
	extmap_map_find(&file->map, offset, &found);
	/* The blocks were allocated before, and cut since: allocate again. */
	if (flags & IOMAP_WRITE && found.kind == EXTMAP_LOOKUP_HOLE)
		return -EAGAIN;
	extmap_iomap_set(inode, &found, iomap);
	return 0;
}

const struct iomap_ops extmap_iomap_ops = {
	.iomap_begin = begin,
};

/* Zeroes a range in the page cache. The caller holds the inode lock. */
int extmap_zero(struct inode *inode, u64 from, u64 to)
{
	return extmap_zero_range(inode, from, to - from, &extmap_iomap_ops, &extmap_write_ops);
}

/*
 * Zeroes written blocks of a range on the device. extmap_connection_end() waits
 * for the inode lock, which the caller holds.
 */
static int zero_on_device(struct inode *inode, u64 from, u64 to)
{
	struct extmap_connection *c = extmap_connection(inode->i_sb);
	struct extmap_lookup found;
	u64 device, length;
	int err;

	for (; from < to; from = found.offset + found.length) {
		extmap_map_find(&extmap_inode(inode)->map, from, &found);
		if (found.kind != EXTMAP_LOOKUP_WRITTEN)
			continue;
		if (READ_ONCE(c->ended))
			return -EIO;
		device = found.device + from - found.offset;
		length = min(to, found.offset + found.length) - from;
		err = blkdev_issue_zeroout(file_bdev(c->device), device >> SECTOR_SHIFT,
					   length >> SECTOR_SHIFT, GFP_NOFS, BLKDEV_ZERO_KILLABLE);
		if (err)
			return err;
	}
	return 0;
}

/*
 * Zeroes what a file that is about to grow has beyond its end: the rest of the
 * last block in the page cache, and further written blocks on the device,
 * because write-back drops pages beyond the end. The caller holds the inode
 * lock.
 */
int extmap_zero_beyond_end(struct inode *inode, u64 to)
{
	u64 size = i_size_read(inode), end = round_up(size, i_blocksize(inode));
	int err = extmap_zero(inode, size, end);

	return err ?: zero_on_device(inode, end, round_up(to, i_blocksize(inode)));
}

static int read_folio(struct file *file, struct folio *folio)
{
	iomap_bio_read_folio(folio, &extmap_iomap_ops);
	return 0;
}

static void readahead(struct readahead_control *control)
{
	iomap_bio_readahead(control, &extmap_iomap_ops);
}

const struct address_space_operations extmap_pages = {
	.read_folio = read_folio,
	.readahead = readahead,
	.writepages = extmap_writepages,
	.dirty_folio = iomap_dirty_folio,
	.release_folio = iomap_release_folio,
	.invalidate_folio = iomap_invalidate_folio,
	.is_partially_uptodate = iomap_is_partially_uptodate,
	.migrate_folio = filemap_migrate_folio,
	.error_remove_folio = generic_error_remove_folio,
};
