/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Differences between the kernels that the module was tested with, under the
 * names of the newest. Other kernels are refused, because iomap's interface
 * changes between releases.
 */
#ifndef EXTMAP_COMPAT_H
#define EXTMAP_COMPAT_H

#include <linux/fs.h>
#include <linux/iomap.h>
#include <linux/version.h>

#define EXTMAP_KERNEL(major, minor) \
	((LINUX_VERSION_CODE >> 8) == (KERNEL_VERSION(major, minor, 0) >> 8))

#if !EXTMAP_KERNEL(6, 12) && !EXTMAP_KERNEL(7, 2) && !EXTMAP_KERNEL(7, 3)
#error "shunt_extmap is tested with Linux 6.12, 7.2 and 7.3 alone; elsewhere use --data daemon"
#endif

#if EXTMAP_KERNEL(6, 12)
#define EXTMAP_IOMAP_OF_6_12

/* The operations of a write belonged to the mapping. */
#define iomap_write_ops iomap_folio_ops
static inline void extmap_set_write_ops(struct iomap *iomap,
					const struct iomap_write_ops *write_ops)
{
	iomap->folio_ops = write_ops;
}

#define inode_just_drop generic_delete_inode

static inline ssize_t extmap_buffered_write(struct kiocb *iocb, struct iov_iter *from,
					    const struct iomap_ops *ops,
					    const struct iomap_write_ops *write_ops)
{
	return iomap_file_buffered_write(iocb, from, ops, NULL);
}

static inline int extmap_zero_range(struct inode *inode, loff_t offset, loff_t length,
				    const struct iomap_ops *ops,
				    const struct iomap_write_ops *write_ops)
{
	return iomap_zero_range(inode, offset, length, NULL, ops);
}

static inline vm_fault_t extmap_page_mkwrite(struct vm_fault *fault, const struct iomap_ops *ops)
{
	return iomap_page_mkwrite(fault, ops);
}

static inline void iomap_bio_read_folio(struct folio *folio, const struct iomap_ops *ops)
{
	iomap_read_folio(folio, ops);
}

static inline void iomap_bio_readahead(struct readahead_control *control,
				       const struct iomap_ops *ops)
{
	iomap_readahead(control, ops);
}

#else

static inline void extmap_set_write_ops(struct iomap *iomap,
					const struct iomap_write_ops *write_ops)
{
}

static inline ssize_t extmap_buffered_write(struct kiocb *iocb, struct iov_iter *from,
					    const struct iomap_ops *ops,
					    const struct iomap_write_ops *write_ops)
{
	return iomap_file_buffered_write(iocb, from, ops, write_ops, NULL);
}

static inline int extmap_zero_range(struct inode *inode, loff_t offset, loff_t length,
				    const struct iomap_ops *ops,
				    const struct iomap_write_ops *write_ops)
{
	return iomap_zero_range(inode, offset, length, NULL, ops, write_ops, NULL);
}

static inline vm_fault_t extmap_page_mkwrite(struct vm_fault *fault, const struct iomap_ops *ops)
{
	return iomap_page_mkwrite(fault, ops, NULL);
}

#endif

#endif
