/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * Interface between the module and user space. Offsets and sizes are in bytes
 * and native byte order. Unused fields must be 0.
 */
#ifndef SHUNT_EXTMAP_H
#define SHUNT_EXTMAP_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define EXTMAP_VERSION 2

/* Maximum number of extents in one EXTMAP_PUSH. */
#define EXTMAP_PUSH_MAX 4096

/*
 * Binds a control descriptor permanently to a block device. The module keeps
 * the device open until the control descriptor is closed.
 *
 * EPERM: the caller lacks CAP_SYS_ADMIN. EPROTO: different version. EBUSY:
 * already bound. ENOTBLK: not a block device. EACCES: not open for reading.
 * EINVAL: the block size is not a power of two, smaller than the device's own,
 * or larger than a page.
 */
struct extmap_bind {
	__u32 version;		/* EXTMAP_VERSION */
	__s32 device;		/* descriptor of the block device */
	__u32 block_size;	/* of files: extents are aligned to it */
	__u32 unused;
	__u64 device_size;	/* out */
};

/* The file is writable; the device must be open for writing. */
#define EXTMAP_WRITABLE 1

/*
 * Creates a file without extents, which is one hole. Returns a descriptor that
 * is open for reading (and writing) and has close-on-exec set.
 *
 * EFBIG: the size exceeds the maximum file size. EMFILE: too many files of
 * this connection. EROFS: the device is not open for writing.
 */
struct extmap_file {
	__u64 size;
	__u32 flags;		/* EXTMAP_WRITABLE */
	__u32 unused;
	__u64 cookie;		/* out: identifies the file in requests */
};

/*
 * Unwritten blocks: they read as zeros until the module has written them.
 * One extent has at most EXTMAP_UNWRITTEN_MAX of them.
 */
#define EXTMAP_UNWRITTEN 1
#define EXTMAP_UNWRITTEN_MAX 32768

/* Most extents of one file: 4 GiB of 4 KiB blocks without any two adjacent. */
#define EXTMAP_EXTENTS_MAX 1048576

struct extmap_extent {
	__u64 offset;		/* in the file */
	__u64 device;		/* on the device, aligned to its block size */
	__u64 length;
	__u32 flags;		/* EXTMAP_UNWRITTEN */
	__u32 unused;
};

/*
 * Adds extents, in any order, to a file of this connection: all or none.
 *
 * EBADF: not a file of this connection. EINVAL: empty, unaligned, or too many
 * in one call. ENXIO: beyond the end of the device. EEXIST: overlaps another
 * extent. E2BIG: too many extents in this file or connection. EAGAIN: in a
 * range that is cut and held.
 */
struct extmap_push {
	__s32 fd;
	__u32 count;
	__u64 extents;		/* address of an array */
};

/*
 * Sets the size of a file and removes the extents beyond it; or zeroes a range
 * and removes its whole blocks from the map. Returns once no I/O to removed
 * blocks is in flight: only then may they be freed. With EXTMAP_CUT_HOLD, no
 * blocks are requested or accepted (EAGAIN) in that range until EXTMAP_FREED,
 * which must follow each successful call with that flag, even if the range has
 * no whole block. A file has at most one held range.
 *
 * EBADF: not a file of this connection. EINVAL: empty range, or a combination
 * of flags that is not listed. EFBIG: the size exceeds the maximum file size.
 * EBUSY: another range is held; nothing was changed. E2BIG: the range lies
 * within one extent, and the file has EXTMAP_EXTENTS_MAX. EROFS: the file is
 * not writable. EINTR: killed while zeroing. After E2BIG and ENOMEM the size is
 * set, or the partial blocks of the range are zeroed, but no extent was removed
 * and nothing is held: the call may be repeated.
 */
struct extmap_cut {
	__s32 fd;
	__u32 flags;		/* EXTMAP_CUT_*; 0: set the size */
	__u64 offset;		/* of the range, or the new size */
	__u64 length;
};

/* Without one of RANGE, TAIL and GROW: sets the size. HOLD may be added, except to GROW. */
#define EXTMAP_CUT_RANGE 1
#define EXTMAP_CUT_HOLD 2
/* Removes the extents beyond the end of the file; offset (out): where they started. */
#define EXTMAP_CUT_TAIL 4
/* Extends a file that is shorter than the size; does not change the map. */
#define EXTMAP_CUT_GROW 8

/* A range that was written for the first time. */
struct extmap_range {
	__u64 offset;
	__u64 length;
};

/*
 * Writes the dirty pages of a file, flushes the device, and reports the ranges
 * that were written for the first time since the last call. Repeat the call
 * if count is returned unchanged: there may be more ranges.
 *
 * With EXTMAP_SETTLE_COMPLETED_ONLY nothing is written or flushed: the reported
 * ranges reached the device, but may still be in its volatile cache. The same
 * is true of direct writes that complete while the call runs.
 *
 * EBADF: not a file of this connection. EIO: data may be lost. EFAULT, EINTR:
 * all ranges will be reported again.
 */
struct extmap_settle {
	__s32 fd;
	__u32 count;		/* in: capacity of the array; out: number of ranges */
	__u64 ranges;		/* address of an array */
	__u64 size;		/* out: of the file */
	__u32 flags;		/* EXTMAP_SETTLE_COMPLETED_ONLY */
	__u32 users;		/* out: opens and mappings other than this descriptor */
};

#define EXTMAP_SETTLE_COMPLETED_ONLY 1

/* Requests to user space, read from the control descriptor. */
#define EXTMAP_ALLOCATE 1	/* allocate blocks for a hole and push them, then reply */
#define EXTMAP_SYNC 2		/* make the written data durable: settle, and commit */

struct extmap_request {
	__u64 id;
	__u64 file;		/* extmap_file.cookie */
	__u32 kind;
	__u32 unused;
	__u64 offset;
	__u64 length;
};

struct extmap_reply {
	__u64 id;
	__s32 error;		/* 0 or a negative errno */
	__u32 unused;
};

#define EXTMAP_BIND _IOWR(0xEA, 1, struct extmap_bind)
#define EXTMAP_FILE _IOWR(0xEA, 2, struct extmap_file)
#define EXTMAP_PUSH _IOW(0xEA, 3, struct extmap_push)
#define EXTMAP_CUT _IOWR(0xEA, 4, struct extmap_cut)
#define EXTMAP_SETTLE _IOWR(0xEA, 5, struct extmap_settle)
#define EXTMAP_REPLY _IOW(0xEA, 6, struct extmap_reply)
#define EXTMAP_FREED _IOW(0xEA, 7, __s32)	/* descriptor of a file: its held blocks are free */

#endif
