// SPDX-License-Identifier: GPL-2.0
/* Files: creation, extents, and reads. */

#include <linux/cred.h>
#include <linux/fiemap.h>
#include <linux/file.h>
#include <linux/module.h>
#include <linux/mount.h>
#include <linux/pagemap.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "private.h"

static int file_open(struct inode *inode, struct file *file)
{
	/* Root may reopen any file for writing through /proc. */
	if (file->f_mode & FMODE_WRITE && !extmap_inode(inode)->writable)
		return -EROFS;
	file->f_mode |= FMODE_CAN_ODIRECT;
	return generic_file_open(inode, file);
}

/* Records the time of the read, from which user space updates the real atime. */
static void was_read(struct inode *inode)
{
	if (extmap_inode(inode)->writable)
		inode_set_atime_to_ts(inode, current_time(inode));
}

static ssize_t read_iter(struct kiocb *iocb, struct iov_iter *to)
{
	struct inode *inode = file_inode(iocb->ki_filp);
	ssize_t count;

	was_read(inode);
	if (!(iocb->ki_flags & IOCB_DIRECT))
		return filemap_read(iocb, to, 0);
	if (!iov_iter_count(to))
		return 0;
	if (iocb->ki_flags & IOCB_NOWAIT) {
		if (!inode_trylock_shared(inode))
			return -EAGAIN;
	} else {
		inode_lock_shared(inode);
	}
	count = iomap_dio_rw(iocb, to, &extmap_iomap_ops, NULL, 0, NULL, 0);
	inode_unlock_shared(inode);
	return count;
}

static ssize_t splice_read(struct file *file, loff_t *offset, struct pipe_inode_info *pipe,
			   size_t size, unsigned int flags)
{
	was_read(file_inode(file));
	return filemap_splice_read(file, offset, pipe, size, flags);
}

static int map(struct file *file, struct vm_area_struct *area)
{
	was_read(file_inode(file));
	return extmap_mmap(file, area);
}

static loff_t seek(struct file *file, loff_t offset, int whence)
{
	struct inode *inode = file_inode(file);

	if (whence != SEEK_HOLE && whence != SEEK_DATA)
		return generic_file_llseek(file, offset, whence);
	inode_lock_shared(inode);
	if (whence == SEEK_HOLE)
		offset = iomap_seek_hole(inode, offset, &extmap_iomap_ops);
	else
		offset = iomap_seek_data(inode, offset, &extmap_iomap_ops);
	inode_unlock_shared(inode);
	if (offset < 0)
		return offset;
	return vfs_setpos(file, offset, inode->i_sb->s_maxbytes);
}

static int fiemap(struct inode *inode, struct fiemap_extent_info *info, u64 start, u64 length)
{
	int err;

	inode_lock_shared(inode);
	err = iomap_fiemap(inode, info, start, length, &extmap_iomap_ops);
	inode_unlock_shared(inode);
	return err;
}

/*
 * Set on the inode as well as on the file, because FUSE reopens the backing
 * file for each open of its own.
 */
const struct file_operations extmap_file_operations = {
	.owner = THIS_MODULE,
	.open = file_open,
	.llseek = seek,
	.read_iter = read_iter,
	.write_iter = extmap_write_iter,
	.fsync = extmap_fsync,
	.splice_read = splice_read,
	.splice_write = iter_file_splice_write,
	.mmap = map,
};

/*
 * The attributes of the file are those of the file system in user space; the
 * inode here has fixed ones. Only the times of the last read and write may be
 * set, so that user space can reset them.
 */
static int setattr(struct mnt_idmap *idmap, struct dentry *dentry, struct iattr *attributes)
{
	int err;

	if (attributes->ia_valid & (ATTR_MODE | ATTR_UID | ATTR_GID | ATTR_SIZE))
		return -EPERM;
	err = setattr_prepare(idmap, dentry, attributes);
	if (err)
		return err;
	if (attributes->ia_valid & ATTR_ATIME)
		inode_set_atime_to_ts(d_inode(dentry), attributes->ia_atime);
	if (attributes->ia_valid & ATTR_MTIME)
		inode_set_mtime_to_ts(d_inode(dentry), attributes->ia_mtime);
	return 0;
}

static const struct inode_operations inode_operations = {
	.setattr = setattr,
	.fiemap = fiemap,
};

static struct inode *inode_new(struct extmap_connection *c, struct extmap_file *new)
{
	struct inode *inode = new_inode(c->mount->mnt_sb);
	int err;

	if (!inode)
		return ERR_PTR(-ENOMEM);
	inode->i_ino = get_next_ino();
	inode->i_mode = S_IFREG | 0400;
	inode->i_uid = current_fsuid();
	inode->i_gid = current_fsgid();
	inode->i_blkbits = ilog2(c->block_size);
	inode->i_flags = S_NOATIME | S_NOCMTIME;
	inode->i_op = &inode_operations;
	inode->i_fop = &extmap_file_operations;
	inode->i_mapping->a_ops = &extmap_pages;
	simple_inode_init_ts(inode);
	/* 0: not read or written yet. */
	inode_set_atime(inode, 0, 0);
	inode_set_mtime(inode, 0, 0);
	i_size_write(inode, new->size);
	extmap_map_init(&extmap_inode(inode)->map, inode->i_blkbits);
	extmap_inode(inode)->writable = new->flags & EXTMAP_WRITABLE;
	extmap_inode(inode)->cookie = new->cookie = atomic64_inc_return(&c->last_cookie);
	mapping_set_large_folios(inode->i_mapping);
	/* Write-back skips the pages of unhashed inodes. */
	insert_inode_hash(inode);
	err = extmap_connection_add(c, extmap_inode(inode));
	if (err) {
		iput(inode);
		return ERR_PTR(err);
	}
	return inode;
}

/*
 * Opens the file through an anonymous dentry with dentry_open(), which takes
 * the references and sets the modes that reads, writes and __fput() rely on.
 */
static struct file *open_new(struct extmap_connection *c, struct extmap_file *new)
{
	struct inode *inode = inode_new(c, new);
	int flags = (new->flags & EXTMAP_WRITABLE ? O_RDWR : O_RDONLY) | O_LARGEFILE;
	struct path path = { .mnt = c->mount };
	struct file *file;

	if (IS_ERR(inode))
		return ERR_CAST(inode);
	path.dentry = d_alloc_anon(c->mount->mnt_sb);
	if (!path.dentry) {
		iput(inode);
		return ERR_PTR(-ENOMEM);
	}
	d_instantiate(path.dentry, inode);
	file = dentry_open(&path, flags, current_cred());
	dput(path.dentry);
	return file;
}

/* Returns the open file; the caller installs its descriptor. */
struct file *extmap_file_new(struct extmap_connection *c, struct extmap_file *new)
{
	if (new->flags & ~EXTMAP_WRITABLE || new->unused)
		return ERR_PTR(-EINVAL);
	if (new->flags & EXTMAP_WRITABLE && !(c->device->f_mode & FMODE_WRITE))
		return ERR_PTR(-EROFS);
	if (new->size > MAX_LFS_FILESIZE)
		return ERR_PTR(-EFBIG);
	return open_new(c, new);
}

/*
 * Called without the inode lock: a writer that holds it may be waiting for
 * these extents. Unwritten extents need no invalidation, because cached zeros
 * of the hole remain correct.
 */
static int add(struct extmap_connection *c, struct inode *inode,
	       const struct extmap_extent *extents, u32 count)
{
	struct address_space *mapping = inode->i_mapping;
	bool written = false;
	int err;
	u32 i;

	for (i = 0; i < count; i++)
		written |= !(extents[i].flags & EXTMAP_UNWRITTEN);
	if (!written)
		return extmap_map_add(c, &extmap_inode(inode)->map, extents, count);
	filemap_invalidate_lock(mapping);
	err = extmap_map_add(c, &extmap_inode(inode)->map, extents, count);
	for (i = 0; !err && mapping->nrpages && i < count; i++)
		truncate_inode_pages_range(mapping, extents[i].offset,
					   extents[i].offset + extents[i].length - 1);
	filemap_invalidate_unlock(mapping);
	return err;
}

/* Returns a file of this connection, with a reference. */
struct file *extmap_file_get(struct extmap_connection *c, int fd)
{
	struct file *file = fget(fd);

	if (!file)
		return ERR_PTR(-EBADF);
	if (file->f_op == &extmap_file_operations && file_inode(file)->i_sb == c->mount->mnt_sb)
		return file;
	fput(file);
	return ERR_PTR(-EBADF);
}

int extmap_file_push(struct extmap_connection *c, const struct extmap_push *push)
{
	struct extmap_extent *extents;
	struct file *file;
	int err;

	if (!push->count || push->count > EXTMAP_PUSH_MAX)
		return -EINVAL;
	file = extmap_file_get(c, push->fd);
	if (IS_ERR(file))
		return PTR_ERR(file);
	extents = vmemdup_array_user(u64_to_user_ptr(push->extents), push->count, sizeof(*extents));
	err = PTR_ERR_OR_ZERO(extents);
	if (!err) {
		err = add(c, file_inode(file), extents, push->count);
		kvfree(extents);
	}
	fput(file);
	return err;
}
