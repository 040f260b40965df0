// SPDX-License-Identifier: GPL-2.0
/*
 * Write-back of dirty pages. It never waits for user space: blocks are
 * allocated before a page becomes dirty.
 */

#include <linux/pagemap.h>
#include <linux/writeback.h>

#include "private.h"

static struct workqueue_struct *entering;

/* Finds the blocks of a dirty range, unless they are those of the previous one. */
static int map_blocks(struct iomap *iomap, struct inode *inode, loff_t offset)
{
	struct extmap_inode *file = extmap_inode(inode);
	struct extmap_lookup found;

	if (READ_ONCE(extmap_connection(inode->i_sb)->ended))
		return -EIO;
	if (offset >= iomap->offset && offset < iomap->offset + iomap->length &&
	    extmap_map_is(&file->map, iomap->validity_cookie))
		return 0;
	extmap_map_find(&file->map, offset, &found);
	/* A hole: the range was cut while the page was dirty, so the data is dropped. */
	extmap_iomap_set(inode, &found, iomap);
	return 0;
}

/* Completion of a write to unwritten blocks; a worker marks them as written. */
static void write_ended(struct bio *bio)
{
	struct iomap_ioend *ioend = iomap_ioend_from_bio(bio);
	struct extmap_inode *file = extmap_inode(ioend->io_inode);
	unsigned long flags;

	spin_lock_irqsave(&file->ended_lock, flags);
	if (list_empty(&file->ended))
		queue_work(entering, &file->enter);
	list_add_tail(&ioend->io_list, &file->ended);
	spin_unlock_irqrestore(&file->ended_lock, flags);
}

/* The pages stay under write-back until this is done, and keep the inode alive. */
void extmap_enter_written(struct work_struct *work)
{
	struct extmap_inode *file = container_of(work, struct extmap_inode, enter);
	struct iomap_ioend *ioend, *next;
	LIST_HEAD(ended);

	spin_lock_irq(&file->ended_lock);
	list_splice_init(&file->ended, &ended);
	spin_unlock_irq(&file->ended_lock);
	list_for_each_entry_safe(ioend, next, &ended, io_list) {
		int error = blk_status_to_errno(ioend->io_bio.bi_status);

		list_del_init(&ioend->io_list);
		if (!error)
			extmap_map_written(&file->map, ioend->io_offset, ioend->io_size);
		iomap_finish_ioends(ioend, error);
	}
}

#ifdef EXTMAP_IOMAP_OF_6_12

static int map_range(struct iomap_writepage_ctx *context, struct inode *inode, loff_t offset,
		     unsigned int length)
{
	return map_blocks(&context->iomap, inode, offset);
}

static int prepare_ioend(struct iomap_ioend *ioend, int status)
{
	if (ioend->io_type == IOMAP_UNWRITTEN)
		ioend->io_bio.bi_end_io = write_ended;
	return status;
}

static const struct iomap_writeback_ops writeback_ops = {
	.map_blocks = map_range,
	.prepare_ioend = prepare_ioend,
};

int extmap_writepages(struct address_space *mapping, struct writeback_control *control)
{
	struct iomap_writepage_ctx context = { };

	return iomap_writepages(mapping, control, &context, &writeback_ops);
}

#else

static ssize_t write_range(struct iomap_writepage_ctx *context, struct folio *folio, u64 offset,
			   unsigned int length, u64 end)
{
	int err = map_blocks(&context->iomap, context->inode, offset);

	return err ?: iomap_add_to_ioend(context, folio, offset, end, length);
}

static int submit(struct iomap_writepage_ctx *context, int error)
{
	struct iomap_ioend *ioend = context->wb_ctx;

	if (ioend->io_flags & IOMAP_IOEND_UNWRITTEN)
		ioend->io_bio.bi_end_io = write_ended;
	return iomap_ioend_writeback_submit(context, error);
}

static const struct iomap_writeback_ops writeback_ops = {
	.writeback_range = write_range,
	.writeback_submit = submit,
};

int extmap_writepages(struct address_space *mapping, struct writeback_control *control)
{
	struct iomap_writepage_ctx context = {
		.inode = mapping->host,
		.wbc = control,
		.ops = &writeback_ops,
	};

	return iomap_writepages(&context);
}

#endif

int extmap_writeback_init(void)
{
	/* Reclaim may wait for this work queue, hence WQ_MEM_RECLAIM. */
	entering = alloc_workqueue("shunt_extmap", WQ_UNBOUND | WQ_MEM_RECLAIM, 0);
	return entering ? 0 : -ENOMEM;
}

void extmap_writeback_exit(void)
{
	destroy_workqueue(entering);
}
