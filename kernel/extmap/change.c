// SPDX-License-Identifier: GPL-2.0
/* Files cut, and what was written to them made to last. */

#include <linux/file.h>
#include <linux/pagemap.h>
#include <linux/uaccess.h>

#include "private.h"

static int cut_size(struct extmap_connection *c, struct inode *inode, u64 size)
{
	u64 old = i_size_read(inode);
	int err;

	if (size > MAX_LFS_FILESIZE)
		return -EFBIG;
	/* What lies in the last block behind the smaller end is zeros from now on. */
	err = iomap_zero_range(inode, min(old, size),
			       round_up(min(old, size), c->block_size) - min(old, size), NULL, &extmap_iomap_ops);
	if (err)
		return err;
	/* Waits for what is under way behind the end, and drops the rest. */
	truncate_setsize(inode, size);
	if (size >= old)
		return 0;
	return extmap_map_cut(c, &extmap_inode(inode)->map, round_up(size, c->block_size),
			      round_down(MAX_LFS_FILESIZE, c->block_size));
}

static int cut_range(struct extmap_connection *c, struct inode *inode, u64 offset, u64 length)
{
	if (!length || (offset | length) & (c->block_size - 1))
		return -EINVAL;
	if (offset > MAX_LFS_FILESIZE || length > MAX_LFS_FILESIZE - offset)
		return -EINVAL;
	truncate_pagecache_range(inode, offset, offset + length - 1);
	return extmap_map_cut(c, &extmap_inode(inode)->map, offset, offset + length);
}

int extmap_file_cut(struct extmap_connection *c, const struct extmap_cut *cut)
{
	struct file *file;
	struct inode *inode;
	int err;

	if (cut->flags & ~EXTMAP_CUT_RANGE)
		return -EINVAL;
	file = extmap_file_get(c, cut->fd);
	if (IS_ERR(file))
		return PTR_ERR(file);
	inode = file_inode(file);
	inode_lock(inode);
	inode_dio_wait(inode);
	filemap_invalidate_lock(inode->i_mapping);
	err = -EROFS;
	if (extmap_inode(inode)->writable)
		err = cut->flags & EXTMAP_CUT_RANGE ? cut_range(c, inode, cut->offset, cut->length)
						    : cut_size(c, inode, cut->offset);
	filemap_invalidate_unlock(inode->i_mapping);
	inode_unlock(inode);
	fput(file);
	return err;
}

static int tell(struct extmap_inode *file, struct extmap_settle *settle)
{
	struct extmap_range __user *to = u64_to_user_ptr(settle->ranges);
	struct extmap_range range;
	u64 at = 0;
	u32 told = 0;

	while (told < settle->count && extmap_map_tell(&file->map, &at, &range)) {
		if (copy_to_user(&to[told], &range, sizeof(range)))
			return -EFAULT;
		told++;
	}
	settle->count = told;
	settle->size = i_size_read(&file->vfs);
	return 0;
}

int extmap_file_settle(struct extmap_connection *c, struct extmap_settle *settle)
{
	struct file *file = extmap_file_get(c, settle->fd);
	struct inode *inode;
	int err;

	if (IS_ERR(file))
		return PTR_ERR(file);
	inode = file_inode(file);
	err = filemap_write_and_wait(inode->i_mapping);
	inode_dio_wait(inode);
	if (!err)
		err = blkdev_issue_flush(file_bdev(c->device));
	if (!err)
		err = tell(extmap_inode(inode), settle);
	fput(file);
	return err;
}
