// SPDX-License-Identifier: GPL-2.0
/* From the map of a file to what iomap wants to know. */

#include <linux/pagemap.h>

#include "private.h"

/*
 * Callers hold a folio's lock or count as direct I/O: extmap_connection_end()
 * waits for them. Who only asks does not touch the device.
 */
static int begin(struct inode *inode, loff_t offset, loff_t length, unsigned int flags,
		 struct iomap *iomap, struct iomap *source)
{
	struct extmap_connection *c = extmap_connection(inode->i_sb);
	struct extmap_run run;

	if (flags & (IOMAP_WRITE | IOMAP_ZERO))
		return -EROFS;
	if (READ_ONCE(c->ended))
		return -EIO;
	iomap->bdev = file_bdev(c->device);
	if (!extmap_map_find(&extmap_inode(inode)->map, offset, &run))
		run.offset = MAX_LFS_FILESIZE;
	if (run.offset > offset) {
		iomap->type = IOMAP_HOLE;
		iomap->addr = IOMAP_NULL_ADDR;
		iomap->offset = offset;
		iomap->length = run.offset - offset;
	} else {
		iomap->type = run.unwritten ? IOMAP_UNWRITTEN : IOMAP_MAPPED;
		iomap->addr = run.device;
		iomap->offset = run.offset;
		iomap->length = run.length;
	}
	return 0;
}

const struct iomap_ops extmap_iomap_ops = {
	.iomap_begin = begin,
};

static int read_folio(struct file *file, struct folio *folio)
{
	return iomap_read_folio(folio, &extmap_iomap_ops);
}

static void readahead(struct readahead_control *control)
{
	iomap_readahead(control, &extmap_iomap_ops);
}

const struct address_space_operations extmap_pages = {
	.read_folio = read_folio,
	.readahead = readahead,
	.dirty_folio = iomap_dirty_folio,
	.release_folio = iomap_release_folio,
	.invalidate_folio = iomap_invalidate_folio,
	.is_partially_uptodate = iomap_is_partially_uptodate,
	.migrate_folio = filemap_migrate_folio,
	.error_remove_folio = generic_error_remove_folio,
};
