/* SPDX-License-Identifier: GPL-2.0 */
#ifndef EXTMAP_PRIVATE_H
#define EXTMAP_PRIVATE_H

#include <linux/blkdev.h>
#include <linux/completion.h>
#include <linux/fs.h>
#include <linux/iomap.h>
#include <linux/rbtree.h>
#include <linux/rwsem.h>
#include <linux/spinlock.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

#include "compat.h"
#include "include/extmap.h"

/*
 * End of all ranges of a file: the largest offset, plus one. A hole that
 * contains an offset is thus never empty.
 */
#define EXTMAP_END ((u64)MAX_LFS_FILESIZE + 1)

/* Result of a map lookup. */
enum extmap_lookup_kind {
	EXTMAP_LOOKUP_HOLE,
	EXTMAP_LOOKUP_UNWRITTEN,
	EXTMAP_LOOKUP_WRITTEN,
};

struct extmap_lookup {
	enum extmap_lookup_kind kind;
	u64 offset;
	u64 device;
	u64 length;
	u64 version;		/* of the map at the lookup */
};

/* The extent map of a file: ordered, non-overlapping runs. */
struct extmap_map {
	struct rw_semaphore lock;	/* protects the members below */
	struct rb_root runs;
	u32 count;
	u32 block_bits;
	u64 version;		/* incremented by each change */
	/* Range cut and not yet freed, which gets no blocks. Set under the inode lock, too. */
	bool held;
	u64 held_from, held_to;
};

/* An upcall, on the stack of the waiter. */
struct extmap_upcall {
	struct list_head list;		/* empty after the reply */
	struct extmap_request request;
	struct completion answered;
	int error;
};

/*
 * State of a bound control descriptor. Owned by the superblock, which lives as
 * long as the control descriptor or any file.
 */
struct extmap_connection {
	struct vfsmount *mount;		/* the control descriptor's reference */
	/* Open, and used, until the control descriptor is closed. */
	struct file *device;
	u64 device_size;
	u32 block_size;			/* of files */
	u32 device_block;
	bool ended;			/* no further I/O may reach the device */

	spinlock_t lock;		/* protects files and quiesced */
	struct list_head files;
	struct list_head quiesced;	/* files without I/O, after the end */
	wait_queue_head_t evicted;
	atomic_t file_count;
	/* Memory for extents in units of 64 bytes; cuts may exceed the limit. */
	atomic64_t unit_count;

	spinlock_t upcall_lock;		/* protects unread, taken, last_upcall, setting ended */
	struct list_head unread;	/* upcalls not yet read by user space */
	struct list_head taken;
	u64 last_upcall;
	wait_queue_head_t upcall_queued;
	wait_queue_head_t hold_released;	/* waiters for the end of a hold */
	atomic64_t last_cookie;
};

struct extmap_inode {
	struct inode vfs;
	struct extmap_map map;
	struct list_head list;		/* in the connection's files; empty for the root */
	u64 cookie;
	bool writable;
	spinlock_t ended_lock;		/* protects ended; taken by I/O completion */
	/* Completed writes whose blocks are to be marked as written. */
	struct list_head ended;
	struct work_struct enter;
};

static inline struct extmap_inode *extmap_inode(struct inode *inode)
{
	return container_of(inode, struct extmap_inode, vfs);
}

static inline struct extmap_connection *extmap_connection(struct super_block *sb)
{
	return sb->s_fs_info;
}

/* connection.c */
struct extmap_connection *extmap_connection_new(struct extmap_bind *bind);
void extmap_connection_end(struct extmap_connection *c);
int extmap_connection_add(struct extmap_connection *c, struct extmap_inode *file);
void extmap_connection_remove(struct extmap_connection *c, struct extmap_inode *file);
int extmap_connection_charge(struct extmap_connection *c, u32 units);
void extmap_connection_count(struct extmap_connection *c, u32 units);
void extmap_connection_uncharge(struct extmap_connection *c, u32 units);

/* super.c */
struct vfsmount *extmap_mount(struct extmap_connection *c);
int extmap_super_init(void);
void extmap_super_exit(void);

/* file.c */
extern const struct file_operations extmap_file_operations;
struct file *extmap_file_new(struct extmap_connection *c, struct extmap_file *file);
int extmap_file_push(struct extmap_connection *c, const struct extmap_push *push);
struct file *extmap_file_get(struct extmap_connection *c, int fd);

/* change.c */
int extmap_file_cut(struct extmap_connection *c, struct extmap_cut *cut);
int extmap_file_settle(struct extmap_connection *c, struct extmap_settle *settle,
		       struct extmap_settle __user *answer);
int extmap_file_freed(struct extmap_connection *c, int fd);

/* upcall.c */
void extmap_upcalls_init(struct extmap_connection *c);
void extmap_upcalls_end(struct extmap_connection *c);
int extmap_upcall_wait(struct extmap_inode *file, u32 kind, u64 offset, u64 length);
ssize_t extmap_upcall_read(struct extmap_connection *c, char __user *to, size_t size, bool wait);
int extmap_upcall_reply(struct extmap_connection *c, const struct extmap_reply *reply);
bool extmap_upcall_waits(struct extmap_connection *c);

/* write.c */
ssize_t extmap_write_iter(struct kiocb *iocb, struct iov_iter *from);
int extmap_fsync(struct file *file, loff_t from, loff_t to, int data_only);
int extmap_mmap(struct file *file, struct vm_area_struct *area);

/* writeback.c */
int extmap_writepages(struct address_space *mapping, struct writeback_control *control);
void extmap_enter_written(struct work_struct *work);
int extmap_writeback_init(void);
void extmap_writeback_exit(void);

/* map.c */
void extmap_map_init(struct extmap_map *map, u32 block_bits);
int extmap_map_add(struct extmap_connection *c, struct extmap_map *map,
		   const struct extmap_extent *extents, u32 count);
int extmap_map_cut(struct extmap_connection *c, struct extmap_map *map, u64 offset, u64 end,
		   bool hold);
bool extmap_map_has_hold(struct extmap_map *map);
void extmap_map_hold_nothing(struct extmap_map *map);
void extmap_map_release_hold(struct extmap_map *map);
bool extmap_map_is_held(struct extmap_map *map, u64 offset, u64 end);
void extmap_map_clear(struct extmap_connection *c, struct extmap_map *map);
void extmap_map_find(struct extmap_map *map, u64 offset, struct extmap_lookup *found);
bool extmap_map_is(struct extmap_map *map, u64 version);
void extmap_map_written(struct extmap_map *map, u64 offset, u64 length);
bool extmap_map_report(struct extmap_map *map, u64 *at, struct extmap_range *range);
void extmap_map_clear_reported(struct extmap_map *map);
int extmap_map_module_init(void);
void extmap_map_module_exit(void);

/* iomap.c */
extern const struct address_space_operations extmap_pages;
extern const struct iomap_ops extmap_iomap_ops;
extern const struct iomap_write_ops extmap_write_ops;
int extmap_zero(struct inode *inode, u64 from, u64 to);
int extmap_zero_beyond_end(struct inode *inode, u64 to);
void extmap_iomap_set(struct inode *inode, const struct extmap_lookup *found, struct iomap *iomap);

/* control.c */
int extmap_control_init(void);
void extmap_control_exit(void);

#endif
