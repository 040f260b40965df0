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
typedef struct { __u32 val; } kuid_t;
typedef struct { __u32 val; } kgid_t;
typedef struct { __u64 val; } kernel_cap_t;
struct super_block { __u32 s_dev; unsigned long s_flags; };
struct inode { unsigned short i_mode; kuid_t i_uid; kgid_t i_gid; struct super_block *i_sb; };
struct fuse_inode { struct inode inode; __u64 nodeid; };
struct dentry { struct inode *d_inode; };
struct path { struct dentry *dentry; };
struct iattr { unsigned int ia_valid; kuid_t ia_uid; kgid_t ia_gid; };
struct file { unsigned int f_mode; struct inode *f_inode; };
struct user_namespace { int level; };
struct cred { kuid_t fsuid; kgid_t fsgid; kernel_cap_t cap_effective; struct user_namespace *user_ns; };
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
#define ATTR_UID (1 << 1)
#define ATTR_GID (1 << 2)
#define ATTR_SIZE (1 << 3)
#define ATTR_FORCE (1 << 9)
#define ATTR_FILE (1 << 13)
#define SB_POSIXACL (1 << 16)
#define CAP_CHOWN 0
#define CAP_FOWNER 3

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

/*
 * Changes. The daemon checks every change as well, so these hooks only spare it
 * the requests that it would refuse. They check in the same order as the daemon,
 * so that the errors are equal. Each of these programs is optional: the loader
 * leaves out those that the kernel does not accept.
 *
 * A path walk ends at the dentry without a check of its inode, and the kernel may
 * have cached a name that is hidden from this caller: LOOKUP comes first.
 */

SEC("lsm/inode_unlink")
long policy_unlink(__u64 *ctx)
{
	struct dentry *dentry = (struct dentry *)ctx[1];

	return refusal(dentry->d_inode, OP(LOOKUP) | OP(DELETE), 0);
}

SEC("lsm/inode_rmdir")
long policy_rmdir(__u64 *ctx)
{
	struct dentry *dentry = (struct dentry *)ctx[1];

	return refusal(dentry->d_inode, OP(LOOKUP) | OP(DELETE), 0);
}

/*
 * The kernel runs this hook twice for an exchange, first with the two names
 * swapped. A target that exists was looked up for this caller just now, unless
 * this is an exchange, in which a hidden name does not exist.
 */
SEC("lsm/inode_rename")
long policy_rename(__u64 *ctx)
{
	struct dentry *old = (struct dentry *)ctx[1], *new = (struct dentry *)ctx[3];
	struct inode *dir = (struct inode *)ctx[2], *target = new->d_inode;
	long error = refusal(target, OP(LOOKUP), 0);

	if (error)
		return error;
	error = refusal(old->d_inode, OP(LOOKUP) | OP(DELETE), 0);
	if (error)
		return error;
	/* The rules of an existing target are known exactly; those of a new name only if all names have the same. */
	if (class_of(target))
		return refusal(target, OP(CREATE) | OP(DELETE), 0);
	return refusal(dir, OP(CREATE_INSIDE), 0);
}

SEC("lsm/inode_create")
long policy_create(__u64 *ctx)
{
	return refusal((struct inode *)ctx[0], OP(CREATE_INSIDE), 0);
}

SEC("lsm/inode_mkdir")
long policy_mkdir(__u64 *ctx)
{
	return refusal((struct inode *)ctx[0], OP(CREATE_INSIDE), 0);
}

SEC("lsm/inode_mknod")
long policy_mknod(__u64 *ctx)
{
	return refusal((struct inode *)ctx[0], OP(CREATE_INSIDE), 0);
}

SEC("lsm/inode_symlink")
long policy_symlink(__u64 *ctx)
{
	return refusal((struct inode *)ctx[0], OP(CREATE_INSIDE), 0);
}

SEC("lsm/inode_link")
long policy_link(__u64 *ctx)
{
	struct dentry *old = (struct dentry *)ctx[0];
	long error = refusal(old->d_inode, OP(LOOKUP), 0);

	return error ? error : refusal((struct inode *)ctx[1], OP(CREATE_INSIDE), 0);
}

/*
 * Who may change attributes at all is decided behind these hooks, with EPERM and
 * without a request. So that this error precedes the rules, as it does where the
 * daemon checks them, the hooks refuse only what the kernel would pass on. A
 * hidden name does not exist, whoever owns the file.
 */

/* Returns 1 if the caller has a capability on the whole machine, else 0. */
__inline __u32 is_capable(const struct cred *cred, int capability)
{
	return !cred->user_ns->level && cred->cap_effective.val >> capability & 1;
}

/* Returns 1 if the caller owns the inode or acts as its owner, else 0. */
__inline __u32 is_owner(struct inode *inode)
{
	const struct cred *cred = bpf_get_current_task_btf()->cred;

	return inode && (cred->fsuid.val == inode->i_uid.val || is_capable(cred, CAP_FOWNER));
}

/* Returns 1 if the caller may change owner and group of the inode to these, else 0; a few who may are not recognised. */
__inline __u32 may_chown(struct inode *inode, struct iattr *attr)
{
	const struct cred *cred = bpf_get_current_task_btf()->cred;

	if (!inode || is_capable(cred, CAP_CHOWN))
		return !!inode;
	if (cred->fsuid.val != inode->i_uid.val)
		return 0;
	if (attr->ia_valid & ATTR_UID && attr->ia_uid.val != inode->i_uid.val)
		return 0;
	return !(attr->ia_valid & ATTR_GID) || attr->ia_gid.val == inode->i_gid.val ||
	       attr->ia_gid.val == cred->fsgid.val;
}

/* The first argument is the idmap since Linux 6.9; before, the verifier refuses this program. */
SEC("lsm/inode_setattr")
long policy_setattr(__u64 *ctx)
{
	struct dentry *dentry = (struct dentry *)ctx[1];
	struct iattr *attr = (struct iattr *)ctx[2];
	struct inode *inode = dentry->d_inode;
	unsigned int valid = attr->ia_valid;
	long error;

	if (!class_of(inode))
		return 0;
	if (valid & ATTR_SIZE) {
		/* The truncation of an open file was checked at its open. */
		return valid & ATTR_FILE ? 0 : refusal(inode, OP(LOOKUP) | OP(WRITE), 0);
	}
	/* The kernel itself clears set-user-ID and file capabilities for a write. */
	if (valid & ATTR_FORCE)
		return 0;
	error = refusal(inode, OP(LOOKUP), 0);
	if (error)
		return error;
	if (!(valid & (ATTR_UID | ATTR_GID) ? may_chown(inode, attr) : is_owner(inode)))
		return 0;
	return refusal(inode, OP(ATTRIBUTES), 0);
}

/* Without ACLs in the file system, or by a caller other than the owner, an ACL is refused behind the hook. */
__inline long acl_refusal(struct inode *inode)
{
	long error = refusal(inode, OP(LOOKUP), 0);

	if (error || !class_of(inode) || !(inode->i_sb->s_flags & SB_POSIXACL) || !is_owner(inode))
		return error;
	return refusal(inode, OP(ATTRIBUTES), 0);
}

/*
 * Before Linux 6.11 the result of a program at inode_setxattr or
 * inode_removexattr replaces the capability check of attributes in "security.".
 * The loader leaves these two out there.
 */
SEC("lsm/inode_setxattr")
long policy_setxattr(__u64 *ctx)
{
	struct dentry *dentry = (struct dentry *)ctx[1];

	return refusal(dentry->d_inode, OP(LOOKUP) | OP(ATTRIBUTES), 0);
}

SEC("lsm/inode_removexattr")
long policy_removexattr(__u64 *ctx)
{
	struct dentry *dentry = (struct dentry *)ctx[1];

	return refusal(dentry->d_inode, OP(LOOKUP) | OP(ATTRIBUTES), 0);
}

SEC("lsm/inode_set_acl")
long policy_set_acl(__u64 *ctx)
{
	struct dentry *dentry = (struct dentry *)ctx[1];

	return acl_refusal(dentry->d_inode);
}

SEC("lsm/inode_remove_acl")
long policy_remove_acl(__u64 *ctx)
{
	struct dentry *dentry = (struct dentry *)ctx[1];

	return acl_refusal(dentry->d_inode);
}
