// SPDX-License-Identifier: GPL-2.0
/*
 * LSM hooks that enforce the rules of a policy on one FUSE mount: which
 * operations a caller may perform on an inode, by user and group, from tables
 * that the daemon fills. The kernel's caches, which all callers share, can
 * therefore hold names, inodes and attributes indefinitely.
 *
 * The hooks can only deny access. They ignore inodes without an entry; the
 * daemon adds the entry before it introduces the inode to the kernel.
 */
#include <linux/types.h>
#include <linux/errno.h>

#include "policy.h"

#define SEC(name) __attribute__((section(name), used))
#define __uint(name, value) int (*name)[value]
#define __type(name, type) typeof(type) *name
#define __inline static inline __attribute__((always_inline))

#define BPF_MAP_TYPE_HASH 1
#define BPF_F_NO_PREALLOC 1

/* BPF helpers, by their numbers in the kernel. */
static void *(*bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*bpf_probe_read_kernel)(void *to, __u32 size, const void *from) = (void *)113;
static struct task_struct *(*bpf_get_current_task_btf)(void) = (void *)158;

/* Fields read from kernel structures; their offsets are relocated at load time (CO-RE). */
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct super_block { __u32 s_dev; };
struct inode { unsigned short i_mode; struct super_block *i_sb; };
struct fuse_inode { struct inode inode; __u64 nodeid; };
struct dentry { struct inode *d_inode; };
struct path { struct dentry *dentry; };
struct file { unsigned int f_mode; struct inode *f_inode; };
typedef struct { __u32 val; } kuid_t;
typedef struct { __u32 val; } kgid_t;
struct cred { kuid_t fsuid; kgid_t fsgid; };
struct task_struct { const struct cred *cred; };
#pragma clang attribute pop

#define S_IFMT 0170000
#define S_IFDIR 0040000
#define MAY_EXEC 1
#define MAY_WRITE 2
#define MAY_READ 4
#define MAY_APPEND 8
#define FMODE_READ 1
#define FMODE_WRITE 2

char _license[] SEC("license") = "GPL";

struct policy_settings settings;

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, POLICY_MOST_INODES);
	__type(key, __u64);
	__type(value, __u32);
} inodes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, POLICY_MOST_CLASSES);
	__type(key, __u32);
	__type(value, struct policy_class);
} classes SEC(".maps");

__inline __u32 class_of(struct inode *inode)
{
	__u64 nodeid = 0;
	__u32 *class;

	/* A dentry without an inode has nothing to check. The verifier of Linux 7.3 requires this. */
	if (!inode)
		return 0;
	if (inode->i_sb->s_dev != settings.device || !settings.device)
		return 0;
	if (bpf_probe_read_kernel(&nodeid, sizeof(nodeid),
				  __builtin_preserve_access_index(&((struct fuse_inode *)inode)->nodeid)))
		return 0;
	class = bpf_map_lookup_elem(&inodes, &nodeid);
	return class ? *class : 0;
}

/* Returns 1 if id >= bound, else 0. Branch-free: each branch would double the paths that the verifier explores. */
__inline __u32 is_behind(__u32 id, __u32 bound)
{
	return ((__u64)bound - 1 - id) >> 63;
}

/* Negates by a subtraction, because the verifier does not track the bounds of a negation. */
__inline long minus(__u64 error)
{
	long result = 0;

	asm volatile("%0 -= %1" : "+r"(result) : "r"(error));
	return result;
}

/*
 * Returns 0 if the operations in the bit mask `ops` are allowed, or else a
 * negative errno. The result is a long because the kernel tests its sign in 64
 * bits.
 */
__inline long refusal(struct inode *inode, __u32 ops, int is_path)
{
	__u32 number = class_of(inode), user = 0, group = 0, cell, i;
	const struct cred *cred;
	struct policy_class *class;

	if (!number)
		return 0;
	/* The rules changed: path walks must look the name up again; operations on the open inode are allowed. */
	if (number == POLICY_STALE)
		return is_path ? -ESTALE : 0;
	class = bpf_map_lookup_elem(&classes, &number);
	if (!class)
		return -EACCES;
	cred = bpf_get_current_task_btf()->cred;
	/* Unused ranges start beyond all ids; range 0 starts at id 0. */
	for (i = 1; i < POLICY_MOST_USERS; i++)
		user += is_behind(cred->fsuid.val, class->user[i]);
	for (i = 1; i < POLICY_MOST_GROUPS; i++)
		group += is_behind(cred->fsgid.val, class->group[i]);
	cell = user * class->groups + group;
	if (cell >= POLICY_MOST_CELLS)
		return -EACCES;
	for (i = 0; i < 8; i++)
		if (ops & (1 << i) && class->cell[cell][i])
			return minus(class->cell[cell][i]);
	return 0;
}

#define OP(name) (1 << POLICY_##name)

SEC("lsm/inode_permission")
long policy_permission(__u64 *ctx)
{
	struct inode *inode = (struct inode *)ctx[0];
	int mask = ctx[1];
	__u32 ops = OP(LOOKUP);

	if ((inode->i_mode & S_IFMT) == S_IFDIR) {
		if (mask & MAY_READ)
			ops |= OP(LIST);
	} else {
		if (mask & (MAY_READ | MAY_EXEC))
			ops |= OP(READ);
		if (mask & (MAY_WRITE | MAY_APPEND))
			ops |= OP(WRITE);
	}
	return refusal(inode, ops, 1);
}

SEC("lsm/file_open")
long policy_open(__u64 *ctx)
{
	struct file *file = (struct file *)ctx[0];
	struct inode *inode = file->f_inode;
	__u32 ops = OP(LOOKUP);

	if ((inode->i_mode & S_IFMT) == S_IFDIR) {
		ops |= OP(LIST);
	} else {
		if (file->f_mode & FMODE_READ)
			ops |= OP(READ);
		if (file->f_mode & FMODE_WRITE)
			ops |= OP(WRITE);
	}
	return refusal(inode, ops, 1);
}

SEC("lsm/inode_getattr")
long policy_getattr(__u64 *ctx)
{
	struct path *path = (struct path *)ctx[0];

	settings.seen = 1;
	return refusal(path->dentry->d_inode, OP(LOOKUP), 0);
}

SEC("lsm/inode_getxattr")
long policy_getxattr(__u64 *ctx)
{
	struct dentry *dentry = (struct dentry *)ctx[0];

	return refusal(dentry->d_inode, OP(READ), 0);
}

SEC("lsm/inode_listxattr")
long policy_listxattr(__u64 *ctx)
{
	struct dentry *dentry = (struct dentry *)ctx[0];

	return refusal(dentry->d_inode, OP(READ), 0);
}

SEC("lsm/inode_readlink")
long policy_readlink(__u64 *ctx)
{
	struct dentry *dentry = (struct dentry *)ctx[0];

	return refusal(dentry->d_inode, OP(LOOKUP), 0);
}

SEC("lsm/inode_follow_link")
long policy_follow_link(__u64 *ctx)
{
	struct inode *inode = (struct inode *)ctx[1];

	return refusal(inode, OP(LOOKUP), 0);
}
