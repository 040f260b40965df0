/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * What the module and user space agree on. All numbers are bytes, in the
 * machine's own order. What is not used must be 0.
 */
#ifndef SHUNT_EXTMAP_H
#define SHUNT_EXTMAP_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define EXTMAP_VERSION 1

/* Extents that one EXTMAP_PUSH may carry. */
#define EXTMAP_PUSH_MOST 4096

/*
 * Binds a control descriptor to a block device, for good. The module keeps
 * the device open until the control descriptor is closed.
 *
 * EPROTO another version; EBUSY bound already; ENOTBLK not a block device;
 * EACCES not open for reading; EINVAL a block size that is not a power of
 * two, below the device's own or above a page.
 */
struct extmap_bind {
	__u32 version;		/* EXTMAP_VERSION */
	__s32 device;		/* a descriptor */
	__u32 block_size;	/* of files: offset and length of extents are multiples */
	__u32 unused;
	__u64 device_size;	/* out */
};

/*
 * Makes a file without extents: all of it is a hole. The result is a
 * descriptor, open for reading and closed by exec.
 *
 * EFBIG a size that no file can have; EMFILE too many files of this
 * connection.
 */
struct extmap_file {
	__u64 size;
	__u64 unused;
};

/* Blocks that were never written: they read as zeros. */
#define EXTMAP_UNWRITTEN 1

struct extmap_extent {
	__u64 offset;		/* in the file */
	__u64 device;		/* on the device: a multiple of its own block size */
	__u64 length;
	__u32 flags;		/* EXTMAP_UNWRITTEN */
	__u32 unused;
};

/*
 * Adds extents to a file of this connection: all or none. They need not be
 * in order.
 *
 * EBADF not such a file; EINVAL empty, unaligned or too many at once; ENXIO
 * not on the device; EEXIST another extent is there; E2BIG too many extents
 * of this file or connection.
 */
struct extmap_push {
	__s32 fd;
	__u32 count;
	__u64 extents;		/* address of an array */
};

#define EXTMAP_BIND _IOWR(0xEA, 1, struct extmap_bind)
#define EXTMAP_FILE _IOW(0xEA, 2, struct extmap_file)
#define EXTMAP_PUSH _IOW(0xEA, 3, struct extmap_push)

#endif
