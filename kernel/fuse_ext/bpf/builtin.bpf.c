// SPDX-License-Identifier: GPL-2.0
/*
 * The built-in program: answers requests from tables that the daemon fills
 * with its replies, until a change invalidates the entry.
 */

#include "tables.h"
#include "invalidate.h"

#define ACCESS_MODE 3		/* O_ACCMODE */
#define TRUNCATES 01000		/* O_TRUNC */
#define PLAIN_READ_FLAGS (0100000 | 0400000 | 02000000 | 040) /* O_LARGEFILE, O_NOFOLLOW, O_CLOEXEC, execve */
#define FOPEN_PASSTHROUGH_BIT (1U << 7)

#define STATX_BASIC 0x7ff	/* STATX_BASIC_STATS */
#define STATX_BIRTH 0x800	/* STATX_BTIME */

/* FUSE_STATX and its reply: older kernel headers do not have them. */
#define STATX 52

struct statx_time {
	__s64 seconds;
	__u32 nanoseconds;
	__u32 zero;
};

struct statx_reply {
	__u64 attr_valid;
	__u32 attr_valid_nsec;
	__u32 flags;
	__u64 spare[2];
	__u32 mask;
	__u32 blksize;
	__u64 attributes;
	__u32 nlink;
	__u32 uid;
	__u32 gid;
	__u16 mode;
	__u16 spare0;
	__u64 ino;
	__u64 size;
	__u64 blocks;
	__u64 attributes_mask;
	struct statx_time atime;
	struct statx_time btime;
	struct statx_time ctime;
	struct statx_time mtime;
	__u32 rdev_major;
	__u32 rdev_minor;
	__u32 dev_major;
	__u32 dev_minor;
	__u64 spare2[14];
};

/* A cache time for the kernel, in the format of replies. */
struct validity {
	__u64 seconds;
	__u64 nanoseconds;
};

/* Sets the remaining cache time. Returns 0 if the entry has expired. */
__inline int remaining(__u64 until, struct validity *validity)
{
	struct settings *set;
	__u32 zero = 0;
	__u64 now;

	set = bpf_map_lookup_elem(&settings, &zero);
	if (!set)
		return 0;
	validity->seconds = set->attr_valid;
	validity->nanoseconds = 0;
	if (until == FOREVER)
		return 1;
	now = bpf_ktime_get_ns();
	if (now >= until)
		return 0;
	if (validity->seconds) {
		validity->seconds = (until - now) / 1000000000;
		validity->nanoseconds = (until - now) % 1000000000;
	}
	return 1;
}

__inline struct attr_slot *find_attr(__u64 node, __u64 *seq, struct validity *validity)
{
	__u64 hash = mix(node), now = version(ATTR, hash);
	struct attr_slot *slot;

#pragma unroll
	for (int i = 0; i < WAYS; i++) {
		slot = SLOT(attrs, ATTRS, hash, i);
		if (!slot || slot->node != node)
			continue;
		*seq = begin(&slot->seq);
		if (*seq && slot->node == node && slot->version == now)
			return remaining(READ_ONCE(slot->until), validity) ? slot : NULL;
	}
	return NULL;
}

static __attribute__((noinline)) int getattr(struct fuse_ext_request *request)
{
	struct validity validity = {};
	struct attr_slot *slot;
	__u64 head[2], seq;

	slot = find_attr(request->nodeid, &seq, &validity);
	if (!slot)
		return FUSE_EXT_PASS;
	head[0] = validity.seconds;
	head[1] = validity.nanoseconds;
	if (fuse_ext_write(request, 0, 0, head, sizeof(head)) ||
	    fuse_ext_write(request, 0, sizeof(head), &slot->attr, sizeof(slot->attr)) ||
	    !unchanged(&slot->seq, seq))
		return FUSE_EXT_PASS;
	return FUSE_EXT_ANSWER;
}

static __attribute__((noinline)) int statx(struct fuse_ext_request *request)
{
	struct statx_reply out = {};
	struct validity validity = {};
	struct attr_slot *slot;
	struct fuse_attr *attr;
	__u64 seq;

	slot = find_attr(request->nodeid, &seq, &validity);
	if (!slot || slot->birth == BIRTH_UNKNOWN)
		return FUSE_EXT_PASS;
	attr = &slot->attr;
	out.attr_valid = validity.seconds;
	out.attr_valid_nsec = validity.nanoseconds;
	out.mask = STATX_BASIC;
	if (slot->birth == BIRTH_STORED)
		out.mask |= STATX_BIRTH;
	out.blksize = attr->blksize;
	out.nlink = attr->nlink;
	out.uid = attr->uid;
	out.gid = attr->gid;
	out.mode = attr->mode;
	out.ino = attr->ino;
	out.size = attr->size;
	out.blocks = attr->blocks;
	out.atime.seconds = attr->atime;
	out.atime.nanoseconds = attr->atimensec;
	out.btime.seconds = slot->btime;
	out.btime.nanoseconds = slot->btime_nsec;
	out.ctime.seconds = attr->ctime;
	out.ctime.nanoseconds = attr->ctimensec;
	out.mtime.seconds = attr->mtime;
	out.mtime.nanoseconds = attr->mtimensec;
	/* The encoding of new_encode_dev() in the kernel. */
	out.rdev_major = attr->rdev >> 8 & 0xfff;
	out.rdev_minor = (attr->rdev & 0xff) | (attr->rdev >> 12 & 0xfff00);
	if (!unchanged(&slot->seq, seq) || fuse_ext_write(request, 0, 0, &out, sizeof(out)))
		return FUSE_EXT_PASS;
	return FUSE_EXT_ANSWER;
}

static __attribute__((noinline)) int answer_absent(struct fuse_ext_request *request)
{
	struct fuse_entry_out out = {};
	struct settings *set;
	__u32 zero = 0;

	set = bpf_map_lookup_elem(&settings, &zero);
	if (!set)
		return FUSE_EXT_PASS;
	out.entry_valid = set->absent_valid;
	return fuse_ext_write(request, 0, 0, &out, sizeof(out)) ? FUSE_EXT_PASS : FUSE_EXT_ANSWER;
}

__inline int answer_entry(struct fuse_ext_request *request, __u64 node, __u64 generation)
{
	struct validity validity = {};
	struct attr_slot *slot;
	struct settings *set;
	__u64 head[5], seq;
	__u32 zero = 0;

	set = bpf_map_lookup_elem(&settings, &zero);
	slot = find_attr(node, &seq, &validity);
	if (!slot || !set)
		return FUSE_EXT_PASS;
	head[0] = node;
	head[1] = generation;
	head[2] = set->entry_valid;
	head[3] = validity.seconds;
	/* The low half, entry_valid_nsec, is 0. */
	head[4] = validity.nanoseconds << 32;
	if (fuse_ext_write(request, 0, 0, head, sizeof(head)) ||
	    fuse_ext_write(request, 0, sizeof(head), &slot->attr, sizeof(slot->attr)) ||
	    !unchanged(&slot->seq, seq))
		return FUSE_EXT_PASS;
	return FUSE_EXT_ANSWER;
}

static __attribute__((noinline)) int lookup(struct fuse_ext_request *request)
{
	struct name_slot found;
	struct name_key key;

	if (!read_name(request, 0, request->nodeid, &key) || !find_name(&key, &found))
		return FUSE_EXT_PASS;
	if (!found.node)
		return answer_absent(request);
	if (found.life != version(LIFE, mix(found.node)))
		return FUSE_EXT_PASS;
	return answer_entry(request, found.node, found.generation);
}

static __attribute__((noinline)) int getxattr(struct fuse_ext_request *request)
{
	struct fuse_getxattr_in in;
	struct fuse_getxattr_out out = {};
	struct xattr_key key = { .node = request->nodeid };
	struct xattr_slot *slot;
	__u64 hash, now, seq;
	__s64 length;
	int size;

	size = fuse_ext_in_size(request, 1);
	if (size < 2 || size > XATTR_NAME_ROOM)
		return FUSE_EXT_PASS;
	if (fuse_ext_read(request, 0, 0, &in, sizeof(in)) != sizeof(in) ||
	    fuse_ext_read(request, 1, 0, key.name, sizeof(key.name)) != size)
		return FUSE_EXT_PASS;
	hash = hash_words(key.node, key.name, XATTR_NAME_ROOM / 8);
	now = version(XATTR, mix(key.node));
#pragma unroll
	for (int i = 0; i < WAYS; i++) {
		slot = SLOT(xattrs, XATTRS, hash, i);
		if (!slot)
			continue;
		seq = begin(&slot->seq);
		if (!seq || slot->version != now || !same_xattr(&slot->key, &key))
			continue;
		length = slot->length;
		if (!unchanged(&slot->seq, seq))
			continue;
		if (length < 0)
			return length;
		if (length > XATTR_ROOM)
			continue;
		if (!in.size) {
			out.size = length;
			if (fuse_ext_write(request, 0, 0, &out, sizeof(out)))
				return FUSE_EXT_PASS;
			return FUSE_EXT_ANSWER;
		}
		if (length > in.size)
			return -ERANGE;
		if (fuse_ext_write(request, 0, 0, slot->value, length & 0x7f) ||
		    !unchanged(&slot->seq, seq))
			return FUSE_EXT_PASS;
		return FUSE_EXT_ANSWER;
	}
	return FUSE_EXT_PASS;
}

static __attribute__((noinline)) int listxattr(struct fuse_ext_request *request)
{
	__u64 node = request->nodeid, root = !request->uid, hash, now, seq, length;
	struct fuse_getxattr_out out = {};
	struct fuse_getxattr_in in;
	struct list_slot *slot;

	if (fuse_ext_read(request, 0, 0, &in, sizeof(in)) != sizeof(in))
		return FUSE_EXT_PASS;
	hash = hash_words(node, &root, 1);
	now = version(XATTR, mix(node));
#pragma unroll
	for (int i = 0; i < WAYS; i++) {
		slot = SLOT(lists, LISTS, hash, i);
		if (!slot)
			continue;
		seq = begin(&slot->seq);
		if (!seq || slot->node != node || slot->root != root || slot->version != now)
			continue;
		length = slot->length;
		if (!unchanged(&slot->seq, seq) || length > LIST_ROOM)
			continue;
		if (!in.size) {
			out.size = length;
			if (fuse_ext_write(request, 0, 0, &out, sizeof(out)))
				return FUSE_EXT_PASS;
			return FUSE_EXT_ANSWER;
		}
		if (length > in.size)
			return -ERANGE;
		if (fuse_ext_write(request, 0, 0, slot->names, length & 0x7f) ||
		    !unchanged(&slot->seq, seq))
			return FUSE_EXT_PASS;
		return FUSE_EXT_ANSWER;
	}
	return FUSE_EXT_PASS;
}

static __attribute__((noinline)) int readlink(struct fuse_ext_request *request)
{
	__u64 node = request->nodeid, hash = mix(node), now = version(LIFE, hash), seq, length;
	struct link_slot *slot;

#pragma unroll
	for (int i = 0; i < WAYS; i++) {
		slot = SLOT(links, LINKS, hash, i);
		if (!slot)
			continue;
		seq = begin(&slot->seq);
		if (!seq || slot->node != node || slot->version != now)
			continue;
		length = slot->length;
		if (!length || length > LINK_ROOM)
			continue;
		if (fuse_ext_write(request, 0, 0, slot->target, length) ||
		    !unchanged(&slot->seq, seq))
			return FUSE_EXT_PASS;
		return FUSE_EXT_ANSWER;
	}
	return FUSE_EXT_PASS;
}

__inline __u64 *opened_count(__u64 node)
{
	__u32 index = mix(node) & (OPENS - 1);

	return bpf_map_lookup_elem(&opened, &index);
}

__inline int answer_open(struct fuse_ext_request *request, __u64 node)
{
	__u64 hash = mix(node), now = version(OPENING, hash), seq;
	struct { __u64 fh; __u32 flags; __u32 backing; } out = { .fh = FUSE_EXT_HANDLE };
	struct open_slot *slot;

#pragma unroll
	for (int i = 0; i < WAYS; i++) {
		slot = SLOT(opens, OPENS, hash, i);
		if (!slot)
			continue;
		seq = begin(&slot->seq);
		if (!seq || slot->node != node || slot->version != now)
			continue;
		out.flags = slot->open_flags | FOPEN_PASSTHROUGH_BIT;
		out.backing = slot->backing_id;
		if (!unchanged(&slot->seq, seq))
			continue;
		if (fuse_ext_write(request, 0, 0, &out, sizeof(out)))
			return FUSE_EXT_PASS;
		return FUSE_EXT_ANSWER;
	}
	return FUSE_EXT_PASS;
}

/*
 * Opens a file for reading with a backing file that the daemon has registered.
 * The open is counted before the lookup, so that a daemon that invalidates the
 * slot and then reads a count of 0 knows that no such open is in progress.
 */
static __attribute__((noinline)) int open_known(struct fuse_ext_request *request)
{
	__u64 *count = opened_count(request->nodeid);
	struct fuse_open_in in;

	if (fuse_ext_read(request, 0, 0, &in, sizeof(in)) != sizeof(in))
		return FUSE_EXT_PASS;
	if (!(in.flags & ~PLAIN_READ_FLAGS) && count) {
		__sync_fetch_and_add(count, 1);
		if (answer_open(request, request->nodeid) == FUSE_EXT_ANSWER)
			return FUSE_EXT_ANSWER;
		__sync_fetch_and_add(count, -1);
	}
	if (in.flags & (ACCESS_MODE | TRUNCATES))
		node_changed(request->nodeid);
	return FUSE_EXT_PASS;
}

/* FLUSH and RELEASE of files that open_known() opened. Both requests start with the handle. */
__inline int close_known(struct fuse_ext_request *request)
{
	__u64 handle = 0, *count;

	if (fuse_ext_read(request, 0, 0, &handle, sizeof(handle)) != sizeof(handle) ||
	    handle != FUSE_EXT_HANDLE)
		return FUSE_EXT_PASS;
	count = opened_count(request->nodeid);
	if (count && request->opcode == FUSE_RELEASE)
		__sync_fetch_and_add(count, -1);
	return FUSE_EXT_ANSWER;
}

SEC("struct_ops/handle")
int builtin_handle(unsigned long long *ctx)
{
	struct fuse_ext_request *request = (void *)ctx[0];

	switch (request->opcode) {
	case FUSE_GETATTR:
		return getattr(request);
	case STATX:
		return statx(request);
	case FUSE_LOOKUP:
		return lookup(request);
	case FUSE_GETXATTR:
		return getxattr(request);
	case FUSE_LISTXATTR:
		return listxattr(request);
	case FUSE_READLINK:
		return readlink(request);
	case FUSE_FLUSH:
	case FUSE_RELEASE:
		return close_known(request);
	case FUSE_OPEN:
		return open_known(request);
	}
	invalidate(request);
	return FUSE_EXT_PASS;
}

SEC("struct_ops/forget")
void builtin_forget(unsigned long long *ctx)
{
	__u64 hash = mix(ctx[0]);

	changed(LIFE, hash);
	changed(ATTR, hash);
	changed(XATTR, hash);
	changed(OPENING, hash);
}

SEC(".struct_ops.link")
struct fuse_ext_ops builtin = {
	.op_mask = BIT(FUSE_GETATTR) | BIT(STATX) | BIT(FUSE_LOOKUP) | BIT(FUSE_GETXATTR) | BIT(FUSE_READLINK) |
		   BIT(FUSE_LISTXATTR) | BIT(FUSE_OPEN) | BIT(FUSE_FLUSH) | BIT(FUSE_RELEASE) | INVALIDATING,
	.handle = (void *)builtin_handle,
	.forget = (void *)builtin_forget,
};

char _license[] SEC("license") = "GPL";
