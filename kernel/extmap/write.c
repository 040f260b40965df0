// SPDX-License-Identifier: GPL-2.0
/* Writes request blocks from user space first, without any lock, and then write the data. */

#include <linux/mm.h>
#include <linux/pagemap.h>
#include <linux/sched/signal.h>
#include <linux/uio.h>
#include <linux/wait.h>
#include <linux/writeback.h>

#include "private.h"

/* Maximum number of replies in a row without blocks, after which the write fails with EIO. */
#define MAX_TRIES 16

/* Finds the first hole in a range. */
static bool has_hole(struct extmap_inode *file, u64 offset, u64 end, u64 *hole)
{
	struct extmap_lookup found;

	for (; offset < end; offset = found.offset + found.length) {
		extmap_map_find(&file->map, offset, &found);
		if (found.kind == EXTMAP_LOOKUP_HOLE) {
			*hole = offset;
			return true;
		}
	}
	return false;
}

/*
 * Waits until user space has freed a cut range. The caller holds no lock that
 * user space may need for that.
 */
static int wait_hold_released(struct extmap_inode *file, u64 offset, u64 end)
{
	struct extmap_connection *c = extmap_connection(file->vfs.i_sb);
	DEFINE_WAIT_FUNC(wait, woken_wake_function);
	int err = 0;

	/* Not wait_event(): the condition takes a lock that sleeps. */
	add_wait_queue(&c->hold_released, &wait);
	while (!READ_ONCE(c->ended) && extmap_map_is_held(&file->map, offset, end)) {
		if (fatal_signal_pending(current)) {
			err = -ERESTARTSYS;
			break;
		}
		wait_woken(&wait, TASK_KILLABLE, MAX_SCHEDULE_TIMEOUT);
	}
	remove_wait_queue(&c->hold_released, &wait);
	return err;
}

/*
 * Requests blocks for all holes of a range. On failure, *filled is the offset of
 * the first hole left.
 */
static int fill(struct extmap_inode *file, u64 offset, u64 end, u64 *filled)
{
	int err, tries = 0;
	u64 hole, last = 0;

	while (has_hole(file, offset, end, &hole)) {
		*filled = hole;
		err = wait_hold_released(file, hole, end);
		if (err)
			return err;
		if (hole != last)
			tries = 0;
		if (tries++ >= MAX_TRIES)
			return -EIO;
		last = hole;
		err = extmap_upcall_wait(file, EXTMAP_ALLOCATE, hole, end - hole);
		if (err)
			return err;
	}
	return 0;
}

static int direct_ended(struct kiocb *iocb, ssize_t size, int error, unsigned int flags)
{
	struct inode *inode = file_inode(iocb->ki_filp);
	u64 end = iocb->ki_pos + size;

	if (error || size <= 0)
		return error;
	/*
	 * Extending writes hold the inode lock until completion. The size is
	 * set first: no written block may lie beyond it.
	 */
	if (end > i_size_read(inode))
		i_size_write(inode, end);
	if (flags & IOMAP_DIO_UNWRITTEN)
		extmap_map_written(&extmap_inode(inode)->map, iocb->ki_pos, size);
	return 0;
}

static const struct iomap_dio_ops direct_ops = {
	.end_io = direct_ended,
};

static ssize_t write_direct(struct kiocb *iocb, struct iov_iter *from)
{
	struct inode *inode = file_inode(iocb->ki_filp);
	u64 end = iocb->ki_pos + iov_iter_count(from);
	bool whole = !((iocb->ki_pos | end) & (i_blocksize(inode) - 1));
	/* iomap zeroes the rest of partial blocks, which must not race with other writes. */
	unsigned int flags = whole && end <= i_size_read(inode) ? 0 : IOMAP_DIO_FORCE_WAIT;

	if (flags)
		inode_dio_wait(inode);
	return iomap_dio_rw(iocb, from, &extmap_iomap_ops, &direct_ops, flags, NULL, 0);
}

/* Called with the inode lock. Returns -EAGAIN, with nothing written, if blocks are missing. */
static ssize_t write_locked(struct kiocb *iocb, struct iov_iter *from)
{
	struct inode *inode = file_inode(iocb->ki_filp);
	u64 hole;
	int err;

	if (has_hole(extmap_inode(inode), iocb->ki_pos, iocb->ki_pos + iov_iter_count(from), &hole))
		return -EAGAIN;
	if (iocb->ki_pos > i_size_read(inode)) {
		err = extmap_zero_beyond_end(inode, iocb->ki_pos);
		if (err)
			return err;
	}
	if (iocb->ki_flags & IOCB_DIRECT) {
		ssize_t count = write_direct(iocb, from);

		/* -ENOTBLK: cached pages could not be invalidated; write through the cache. */
		if (count != -ENOTBLK)
			return count;
	}
	return extmap_buffered_write(iocb, from, &extmap_iomap_ops, &extmap_write_ops);
}

/* Records the time of the write, from which user space updates the real mtime. */
static void touch(struct inode *inode)
{
	inode_set_mtime_to_ts(inode, inode_set_ctime_current(inode));
}

ssize_t extmap_write_iter(struct kiocb *iocb, struct iov_iter *from)
{
	struct inode *inode = file_inode(iocb->ki_filp);
	u64 limit = U64_MAX, filled = 0;
	ssize_t count;
	int err;

	for (;;) {
		u64 offset, end;

		inode_lock(inode);
		count = generic_write_checks(iocb, from);
		if (count > 0 && limit <= iocb->ki_pos)
			count = -ENOSPC;
		if (count > 0) {
			iov_iter_truncate(from, limit - iocb->ki_pos);
			count = write_locked(iocb, from);
		}
		if (count > 0 || count == -EIOCBQUEUED)
			touch(inode);
		offset = iocb->ki_pos;
		end = offset + iov_iter_count(from);
		inode_unlock(inode);
		if (count != -EAGAIN)
			break;
		err = fill(extmap_inode(inode), round_down(offset, i_blocksize(inode)),
			   round_up(end, i_blocksize(inode)), &filled);
		/* On ENOSPC, write the part that has blocks. */
		if (err == -ENOSPC && filled > offset)
			limit = filled;
		else if (err)
			return err;
	}
	return count > 0 ? generic_write_sync(iocb, count) : count;
}

/* fsync for O_SYNC and msync(2), which FUSE does not forward to its server. */
int extmap_fsync(struct file *file, loff_t from, loff_t to, int data_only)
{
	struct inode *inode = file_inode(file);
	int err = file_write_and_wait_range(file, from, to);

	if (err)
		return err;
	return extmap_upcall_wait(extmap_inode(inode), EXTMAP_SYNC, 0, 0);
}

static vm_fault_t page_mkwrite(struct vm_fault *fault)
{
	struct inode *inode = file_inode(fault->vma->vm_file);
	struct folio *folio = page_folio(fault->page);
	u64 offset = folio_pos(folio);
	u64 end = min_t(u64, offset + folio_size(folio), i_size_read(inode));
	vm_fault_t result;
	u64 filled = 0;
	int err;

	err = fill(extmap_inode(inode), offset, round_up(end, i_blocksize(inode)), &filled);
	if (err)
		return vmf_error(err);
	sb_start_pagefault(inode->i_sb);
	filemap_invalidate_lock_shared(inode->i_mapping);
	/* If the blocks were cut since, the fault is retried. */
	result = extmap_page_mkwrite(fault, &extmap_iomap_ops);
	filemap_invalidate_unlock_shared(inode->i_mapping);
	if (!(result & VM_FAULT_ERROR))
		touch(inode);
	sb_end_pagefault(inode->i_sb);
	return result;
}

static const struct vm_operations_struct mapping_operations = {
	.fault = filemap_fault,
	.map_pages = filemap_map_pages,
	.page_mkwrite = page_mkwrite,
};

int extmap_mmap(struct file *file, struct vm_area_struct *area)
{
	if (!extmap_inode(file_inode(file))->writable)
		return generic_file_readonly_mmap(file, area);
	area->vm_ops = &mapping_operations;
	return 0;
}
