// SPDX-License-Identifier: GPL-2.0
/* Connections: the state shared by a control descriptor and its files. */

#include <linux/file.h>
#include <linux/moduleparam.h>
#include <linux/pagemap.h>
#include <linux/slab.h>

#include "private.h"

static int max_files = 1 << 20;
module_param_named(most_files, max_files, int, 0644);
MODULE_PARM_DESC(most_files, "Files of one connection (default 1048576)");

static int max_units = 1 << 22;
module_param_named(most_extents, max_units, int, 0644);
MODULE_PARM_DESC(most_extents, "Memory of the extents of one connection, in units of 64 bytes (default 4194304)");

/* Returns the open block device, with a reference. */
static struct file *device_of(const struct extmap_bind *bind)
{
	struct file *device = fget(bind->device);
	int err = -ENOTBLK;

	if (!device)
		return ERR_PTR(-EBADF);
	if (!S_ISBLK(file_inode(device)->i_mode) || !S_ISBLK(device->f_mapping->host->i_mode))
		goto refused;
	err = -EACCES;
	if (!(device->f_mode & FMODE_READ))
		goto refused;
	err = -EINVAL;
	if (!is_power_of_2(bind->block_size) || bind->block_size > PAGE_SIZE ||
	    bind->block_size < bdev_logical_block_size(file_bdev(device)))
		goto refused;
	return device;

refused:
	fput(device);
	return ERR_PTR(err);
}

struct extmap_connection *extmap_connection_new(struct extmap_bind *bind)
{
	struct extmap_connection *c;
	struct file *device = device_of(bind);
	int err;

	if (IS_ERR(device))
		return ERR_CAST(device);
	/* Write back the device's page cache, because files bypass it. */
	err = sync_blockdev(file_bdev(device));
	if (err)
		goto no_memory;
	err = -ENOMEM;
	c = kzalloc(sizeof(*c), GFP_KERNEL_ACCOUNT);
	if (!c)
		goto no_memory;
	c->device = device;
	c->device_size = bdev_nr_bytes(file_bdev(device));
	c->block_size = bind->block_size;
	c->device_block = bdev_logical_block_size(file_bdev(device));
	spin_lock_init(&c->lock);
	INIT_LIST_HEAD(&c->files);
	INIT_LIST_HEAD(&c->quiesced);
	init_waitqueue_head(&c->evicted);
	extmap_upcalls_init(c);
	c->mount = extmap_mount(c);
	err = PTR_ERR_OR_ZERO(c->mount);
	if (err)
		goto no_mount;
	bind->device_size = c->device_size;
	return c;

no_mount:
	kfree(c);
no_memory:
	fput(device);
	return ERR_PTR(err);
}

int extmap_connection_add(struct extmap_connection *c, struct extmap_inode *file)
{
	if (atomic_inc_return(&c->file_count) > READ_ONCE(max_files)) {
		atomic_dec(&c->file_count);
		return -EMFILE;
	}
	spin_lock(&c->lock);
	list_add(&file->list, &c->files);
	spin_unlock(&c->lock);
	return 0;
}

/* Called when the file is evicted, after its pages were dropped. */
void extmap_connection_remove(struct extmap_connection *c, struct extmap_inode *file)
{
	spin_lock(&c->lock);
	list_del_init(&file->list);
	/* Wake under the lock, so that the waiter cannot free @c before the unlock. */
	wake_up(&c->evicted);
	spin_unlock(&c->lock);
	atomic_dec(&c->file_count);
}

int extmap_connection_charge(struct extmap_connection *c, u32 units)
{
	if (atomic64_add_return(units, &c->unit_count) > READ_ONCE(max_units)) {
		atomic64_sub(units, &c->unit_count);
		return -E2BIG;
	}
	return 0;
}

void extmap_connection_count(struct extmap_connection *c, u32 units)
{
	atomic64_add(units, &c->unit_count);
}

void extmap_connection_uncharge(struct extmap_connection *c, u32 units)
{
	atomic64_sub(units, &c->unit_count);
}

/*
 * Sets *next to the next file on which I/O may be in flight, with a reference.
 * Returns false if the only such files are being evicted: no reference to
 * them can be taken, and their eviction removes them from the list.
 */
static bool next_file(struct extmap_connection *c, struct inode **next)
{
	struct extmap_inode *file;
	bool done = true;

	*next = NULL;
	spin_lock(&c->lock);
	list_for_each_entry(file, &c->files, list) {
		*next = igrab(&file->vfs);
		if (*next) {
			list_move(&file->list, &c->quiesced);
			break;
		}
		done = false;
	}
	spin_unlock(&c->lock);
	return done || *next;
}

/*
 * Called when the control descriptor is closed. Later reads fail with EIO or
 * SIGBUS. Returns once the device is no longer in use: an iomap_begin that saw
 * c->ended unset has counted itself as direct I/O or holds a folio lock, and
 * this function waits for both.
 */
void extmap_connection_end(struct extmap_connection *c)
{
	struct inode *inode;

	/* Under the lock, so that no request is queued after the final replies. */
	spin_lock(&c->upcall_lock);
	WRITE_ONCE(c->ended, true);
	spin_unlock(&c->upcall_lock);
	/* Pairs with the locks below: each begin that is not waited for sees c->ended. */
	smp_mb();
	extmap_upcalls_end(c);
	for (;;) {
		wait_event(c->evicted, next_file(c, &inode));
		if (!inode)
			break;
		inode_lock(inode);
		inode_dio_wait(inode);
		filemap_invalidate_lock(inode->i_mapping);
		truncate_inode_pages(inode->i_mapping, 0);
		filemap_invalidate_unlock(inode->i_mapping);
		inode_unlock(inode);
		iput(inode);
	}
	fput(c->device);
	/* Files that are still open hold the mount and the superblock. */
	kern_unmount(c->mount);
}
