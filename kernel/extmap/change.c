// SPDX-License-Identifier: GPL-2.0
/* Truncation, hole punching, and the report of written ranges. */

#include <linux/file.h>
#include <linux/pagemap.h>
#include <linux/sched/signal.h>
#include <linux/uaccess.h>

#include "private.h"

/* Zeroes the part of a range that lies within the file. */
static int zero(struct inode *inode, u64 from, u64 to)
{
	to = min_t(u64, to, i_size_read(inode));
	return from < to ? extmap_zero(inode, from, to) : 0;
}

static int set_size(struct extmap_connection *c, struct inode *inode, u64 size)
{
	int err;

	if (size > MAX_LFS_FILESIZE)
		return -EFBIG;
	if (size > i_size_read(inode))
		err = extmap_zero_beyond_end(inode, size);
	else
		err = extmap_zero(inode, size, round_up(size, c->block_size));
	/* Waits for I/O beyond the new size, and drops the pages there. */
	if (!err)
		truncate_setsize(inode, size);
	return err;
}

static int cut_size(struct extmap_connection *c, struct inode *inode, u64 size, bool hold)
{
	struct extmap_map *map = &extmap_inode(inode)->map;
	int err = set_size(c, inode, size);

	if (err)
		return err;
	/* Also if the file grows: there may be blocks beyond its new size. */
	return extmap_map_cut(c, map, round_up(size, c->block_size), EXTMAP_END, hold);
}

static int cut_range(struct extmap_connection *c, struct inode *inode, u64 offset, u64 length,
		     bool hold)
{
	struct extmap_map *map = &extmap_inode(inode)->map;
	u64 end = offset + length, first, last;
	int err;

	if (!length || offset > MAX_LFS_FILESIZE || length > MAX_LFS_FILESIZE - offset)
		return -EINVAL;
	first = round_up(offset, c->block_size);
	last = round_down(end, c->block_size);
	err = zero(inode, offset, min(first, end));
	if (!err && last >= first)
		err = zero(inode, last, end);
	if (err)
		return err;
	if (last <= first) {
		if (hold)
			extmap_map_hold_nothing(map);
		return 0;
	}
	/* So that nothing is lost if the map cannot be changed. */
	err = filemap_write_and_wait_range(inode->i_mapping, first, last - 1);
	if (err)
		return err;
	truncate_pagecache_range(inode, first, last - 1);
	return extmap_map_cut(c, map, first, last, hold);
}

/* Removes blocks beyond the end, which were preallocated for appends. */
static int cut_tail(struct extmap_connection *c, struct inode *inode, struct extmap_cut *cut,
		    bool hold)
{
	cut->offset = round_up(i_size_read(inode), c->block_size);
	return extmap_map_cut(c, &extmap_inode(inode)->map, cut->offset, EXTMAP_END, hold);
}

static int cut_one(struct extmap_connection *c, struct inode *inode, struct extmap_cut *cut)
{
	bool hold = cut->flags & EXTMAP_CUT_HOLD;

	if (!extmap_inode(inode)->writable)
		return -EROFS;
	if (cut->length && !(cut->flags & EXTMAP_CUT_RANGE))
		return -EINVAL;
	if (cut->flags == EXTMAP_CUT_GROW)
		return cut->offset > i_size_read(inode) ? set_size(c, inode, cut->offset) : 0;
	/* Before any change. The inode lock keeps other cuts from holding a range. */
	if (extmap_map_has_hold(&extmap_inode(inode)->map))
		return -EBUSY;
	switch (cut->flags & ~EXTMAP_CUT_HOLD) {
	case 0:
		return cut_size(c, inode, cut->offset, hold);
	case EXTMAP_CUT_RANGE:
		return cut_range(c, inode, cut->offset, cut->length, hold);
	case EXTMAP_CUT_TAIL:
		return cut_tail(c, inode, cut, hold);
	default:
		return -EINVAL;
	}
}

int extmap_file_cut(struct extmap_connection *c, struct extmap_cut *cut)
{
	struct file *file;
	struct inode *inode;
	int err;

	file = extmap_file_get(c, cut->fd);
	if (IS_ERR(file))
		return PTR_ERR(file);
	inode = file_inode(file);
	inode_lock(inode);
	inode_dio_wait(inode);
	filemap_invalidate_lock(inode->i_mapping);
	err = cut_one(c, inode, cut);
	filemap_invalidate_unlock(inode->i_mapping);
	inode_unlock(inode);
	fput(file);
	return err;
}

/* Ends the hold on a range: user space has freed its blocks. */
int extmap_file_freed(struct extmap_connection *c, int fd)
{
	struct file *file = extmap_file_get(c, fd);

	if (IS_ERR(file))
		return PTR_ERR(file);
	extmap_map_release_hold(&extmap_inode(file_inode(file))->map);
	wake_up_all(&c->hold_released);
	fput(file);
	return 0;
}

static int report_ranges(struct extmap_inode *file, struct extmap_settle *settle)
{
	struct extmap_range __user *to = u64_to_user_ptr(settle->ranges);
	struct extmap_range range;
	u64 at = 0;
	u32 count = 0;

	while (count < settle->count && extmap_map_report(&file->map, &at, &range)) {
		/* A file may have hundreds of millions of ranges. */
		int err = fatal_signal_pending(current) ? -EINTR : 0;

		if (!err && copy_to_user(&to[count], &range, sizeof(range)))
			err = -EFAULT;
		if (err) {
			extmap_map_clear_reported(&file->map);
			return err;
		}
		count++;
	}
	settle->count = count;
	settle->size = i_size_read(&file->vfs);
	return 0;
}

/* Flushes the file and reports its ranges; copies the result to @answer. */
int extmap_file_settle(struct extmap_connection *c, struct extmap_settle *settle,
		       struct extmap_settle __user *answer)
{
	struct file *file;
	struct inode *inode;
	int err = 0;

	if (settle->flags & ~EXTMAP_SETTLE_COMPLETED_ONLY || settle->users)
		return -EINVAL;
	file = extmap_file_get(c, settle->fd);
	if (IS_ERR(file))
		return PTR_ERR(file);
	inode = file_inode(file);
	if (!(settle->flags & EXTMAP_SETTLE_COMPLETED_ONLY)) {
		/*
		 * Without inode_dio_wait(), which readers could delay without
		 * end: direct writes are reported when they complete.
		 */
		err = filemap_write_and_wait(inode->i_mapping);
		if (!err)
			err = blkdev_issue_flush(file_bdev(c->device));
	}
	if (!err)
		err = report_ranges(extmap_inode(inode), settle);
	/* Each open file holds the dentry, and each mapping an open file. */
	settle->users = d_count(file->f_path.dentry) - 1;
	if (!err && copy_to_user(answer, settle, sizeof(*settle))) {
		extmap_map_clear_reported(&extmap_inode(inode)->map);
		err = -EFAULT;
	}
	fput(file);
	return err;
}
