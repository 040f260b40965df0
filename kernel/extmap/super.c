// SPDX-License-Identifier: GPL-2.0
/*
 * One superblock per connection. It uses the backing_dev_info of the device,
 * so write-back and read-ahead follow its settings, and it lives as long as
 * the control descriptor or any file of the connection.
 */

#include <linux/backing-dev.h>
#include <linux/module.h>
#include <linux/mount.h>
#include <linux/pagemap.h>
#include <linux/pseudo_fs.h>
#include <linux/slab.h>

#include "private.h"

#define EXTMAP_MAGIC 0x65786d70

static struct kmem_cache *inodes;

static struct inode *new_inode_of(struct super_block *sb)
{
	struct extmap_inode *file = alloc_inode_sb(sb, inodes, GFP_KERNEL);

	if (!file)
		return NULL;
	extmap_map_init(&file->map, 0);
	INIT_LIST_HEAD(&file->list);
	file->writable = false;
	spin_lock_init(&file->ended_lock);
	INIT_LIST_HEAD(&file->ended);
	INIT_WORK(&file->enter, extmap_enter_written);
	return &file->vfs;
}

static void free_inode(struct inode *inode)
{
	kmem_cache_free(inodes, extmap_inode(inode));
}

static void evict_inode(struct inode *inode)
{
	struct extmap_connection *c = extmap_connection(inode->i_sb);
	struct extmap_inode *file = extmap_inode(inode);

	truncate_inode_pages_final(&inode->i_data);
	/* The queue is empty, but the work may still be running. */
	flush_work(&file->enter);
	clear_inode(inode);
	/* The root is not on the list of files. */
	if (list_empty(&file->list))
		return;
	extmap_map_clear(c, &file->map);
	extmap_connection_remove(c, file);
}

static const struct super_operations super_operations = {
	.alloc_inode = new_inode_of,
	.free_inode = free_inode,
	.evict_inode = evict_inode,
	/* A closed file cannot be looked up again, so it is not cached. */
	.drop_inode = inode_just_drop,
	.statfs = simple_statfs,
};

/* Name of an open file in /proc. */
static char *name_of(struct dentry *dentry, char *buffer, int size)
{
	u64 number = d_inode(dentry)->i_ino;
	char name[32];
	int length = scnprintf(name, sizeof(name), "extmap:[%llu]", number) + 1;

	if (length > size)
		return ERR_PTR(-ENAMETOOLONG);
	return memcpy(buffer + size - length, name, length);
}

static const struct dentry_operations dentry_operations = {
	.d_dname = name_of,
};

static int init_context(struct fs_context *context)
{
	struct pseudo_fs_context *pseudo = init_pseudo(context, EXTMAP_MAGIC);

	if (!pseudo)
		return -ENOMEM;
	pseudo->ops = &super_operations;
	pseudo->dops = &dentry_operations;
	return 0;
}

static void kill_super(struct super_block *sb)
{
	struct extmap_connection *c = extmap_connection(sb);

	kill_anon_super(sb);
	/* NULL if the mount failed. */
	kfree(c);
}

/* Not registered, so user space cannot mount it. */
static struct file_system_type type = {
	.owner = THIS_MODULE,
	.name = "extmap",
	.init_fs_context = init_context,
	.kill_sb = kill_super,
};

/* Mounts the superblock, which owns the connection from then on. */
struct vfsmount *extmap_mount(struct extmap_connection *c)
{
	struct vfsmount *mount = kern_mount(&type);
	struct super_block *sb;

	if (IS_ERR(mount))
		return mount;
	sb = mount->mnt_sb;
	/* Set after the mount, which is safe as there are no files yet. */
	sb->s_fs_info = c;
	sb->s_maxbytes = MAX_LFS_FILESIZE;
	sb->s_bdi = bdi_get(file_bdev(c->device)->bd_disk->bdi);
	return mount;
}

static void init_once(void *object)
{
	struct extmap_inode *file = object;

	inode_init_once(&file->vfs);
}

int extmap_super_init(void)
{
	inodes = kmem_cache_create("shunt_extmap_file", sizeof(struct extmap_inode), 0,
				   SLAB_RECLAIM_ACCOUNT | SLAB_ACCOUNT, init_once);
	return inodes ? 0 : -ENOMEM;
}

void extmap_super_exit(void)
{
	/* Inodes are freed by RCU callbacks. */
	rcu_barrier();
	kmem_cache_destroy(inodes);
}
