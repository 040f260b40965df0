/* SPDX-License-Identifier: GPL-2.0 */
#ifndef EXTMAP_PRIVATE_H
#define EXTMAP_PRIVATE_H

#include <linux/blkdev.h>
#include <linux/fs.h>
#include <linux/iomap.h>
#include <linux/rbtree.h>
#include <linux/rwsem.h>
#include <linux/spinlock.h>
#include <linux/wait.h>

#include "compat.h"
#include "include/extmap.h"

/* A run of a file that lies in one piece on the device. */
struct extmap_run {
	struct rb_node node;
	u64 offset;
	u64 device;
	u64 length;
	bool unwritten;
};

/* The runs of a file, in order, none over another. */
struct extmap_map {
	struct rw_semaphore lock;
	struct rb_root runs;
	u32 count;
};

/*
 * What a control descriptor was bound to. It is the superblock's, which lives
 * as long as the control descriptor or any file does.
 */
struct extmap_connection {
	struct vfsmount *mount;		/* the control descriptor's reference */
	/* Open until the control descriptor is closed, and not used later. */
	struct file *device;
	u64 device_size;
	u32 block_size;			/* of files */
	u32 device_block;
	bool ended;			/* nothing more may reach the device */

	spinlock_t lock;		/* the lists */
	struct list_head files;
	struct list_head quiet;		/* no I/O is under way, and none begins */
	wait_queue_head_t evicted;
	atomic_t file_count;
	atomic_t run_count;
};

struct extmap_inode {
	struct inode vfs;
	struct extmap_map map;
	struct list_head list;		/* of the connection; empty for the root */
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
int extmap_connection_charge(struct extmap_connection *c, u32 runs);
void extmap_connection_uncharge(struct extmap_connection *c, u32 runs);

/* super.c */
struct vfsmount *extmap_mount(struct extmap_connection *c);
int extmap_super_init(void);
void extmap_super_exit(void);

/* file.c */
extern const struct file_operations extmap_file_operations;
int extmap_file_new(struct extmap_connection *c, u64 size);
int extmap_file_push(struct extmap_connection *c, const struct extmap_push *push);

/* map.c */
void extmap_map_init(struct extmap_map *map);
int extmap_map_add(struct extmap_connection *c, struct extmap_map *map,
		   const struct extmap_extent *extents, u32 count);
void extmap_map_clear(struct extmap_connection *c, struct extmap_map *map);
bool extmap_map_find(struct extmap_map *map, u64 offset, struct extmap_run *found);
int extmap_map_module_init(void);
void extmap_map_module_exit(void);

/* iomap.c */
extern const struct address_space_operations extmap_pages;
extern const struct iomap_ops extmap_iomap_ops;

/* control.c */
int extmap_control_init(void);
void extmap_control_exit(void);

#endif
