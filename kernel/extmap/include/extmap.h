/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * What the module and user space agree on. All numbers are bytes, in the
 * machine's own order. What is not used must be 0.
 */
#ifndef SHUNT_EXTMAP_H
#define SHUNT_EXTMAP_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define EXTMAP_VERSION 2

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

/* The file can be written: the device must be open for writing. */
#define EXTMAP_WRITABLE 1

/*
 * Makes a file without extents: all of it is a hole. The result is a
 * descriptor, open for reading (and writing) and closed by exec.
 *
 * EFBIG a size that no file can have; EMFILE too many files of this
 * connection; EROFS the device cannot be written.
 */
struct extmap_file {
	__u64 size;
	__u32 flags;		/* EXTMAP_WRITABLE */
	__u32 unused;
	__u64 cookie;		/* by which requests name it */
};

/*
 * Blocks that were never written: they read as zeros, until the module has
 * written them. At most EXTMAP_UNWRITTEN_MOST blocks in one extent.
 */
#define EXTMAP_UNWRITTEN 1
#define EXTMAP_UNWRITTEN_MOST 32768

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

/*
 * Makes a file of another size, and takes what lies behind that out of the
 * map; or has a range read as zeros: its whole blocks are taken out of the map. Returns when nothing is written there any
 * more: the blocks may be freed then, and not before. With EXTMAP_CUT_HOLD
 * nobody is asked for blocks there, and none are taken (EAGAIN), until
 * EXTMAP_FREED; one range of a file is held at a time.
 *
 * EBADF not such a file; EINVAL empty; EBUSY another range is held; EROFS.
 */
struct extmap_cut {
	__s32 fd;
	__u32 flags;		/* EXTMAP_CUT_RANGE, else the size */
	__u64 offset;		/* or the size */
	__u64 length;
};

#define EXTMAP_CUT_RANGE 1
#define EXTMAP_CUT_HOLD 2
/* Takes what lies behind the end out of the map; offset: out, from where on. */
#define EXTMAP_CUT_TAIL 4
/* Makes a file that ends before the size end there; the map stays. */
#define EXTMAP_CUT_GROW 8

/* A range that the module has written for the first time. */
struct extmap_range {
	__u64 offset;
	__u64 length;
};

/*
 * Writes what is dirty of a file to the device, has the device keep it, and
 * tells which ranges were written for the first time since this was last
 * asked. To be asked again where count comes back as it was.
 *
 * With EXTMAP_SETTLE_LOOK nothing is written: what is told reached the device,
 * which has yet to be told to keep it.
 */
struct extmap_settle {
	__s32 fd;
	__u32 count;		/* in: room; out: ranges */
	__u64 ranges;		/* address of an array */
	__u64 size;		/* out: of the file */
	__u32 flags;		/* EXTMAP_SETTLE_LOOK */
	__u32 users;		/* out: who has it open or mapped, beside this descriptor */
};

#define EXTMAP_SETTLE_LOOK 1

/* What user space is asked for, by read(2) of the control descriptor. */
#define EXTMAP_ALLOCATE 1	/* blocks where there are none; pushed before the reply */
#define EXTMAP_SYNC 2		/* what was written is to last: settle, and commit */

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
	__s32 error;		/* 0, or a negative errno */
	__u32 unused;
};

#define EXTMAP_BIND _IOWR(0xEA, 1, struct extmap_bind)
#define EXTMAP_FILE _IOWR(0xEA, 2, struct extmap_file)
#define EXTMAP_PUSH _IOW(0xEA, 3, struct extmap_push)
#define EXTMAP_CUT _IOWR(0xEA, 4, struct extmap_cut)
#define EXTMAP_SETTLE _IOWR(0xEA, 5, struct extmap_settle)
#define EXTMAP_REPLY _IOW(0xEA, 6, struct extmap_reply)
#define EXTMAP_FREED _IOW(0xEA, 7, __s32)	/* a file: what was cut and held is free */

#endif
