/* SPDX-License-Identifier: GPL-2.0 */
/* Invalidation of table entries by requests that are passed on to the daemon. */
#ifndef SHUNT_FUSE_EXT_INVALIDATE_H
#define SHUNT_FUSE_EXT_INVALIDATE_H

#include "tables.h"

/* Handle of files that a program opened. Daemons do not use this value. */
#define FUSE_EXT_HANDLE 0xffffffff53485558ULL

/* FUSE_COPY_FILE_RANGE_64 of newer kernels: the same request with a longer reply. */
#define COPY_FILE_RANGE_64 53

#define INVALIDATING							\
	(BIT(FUSE_SETATTR) | BIT(FUSE_WRITE) | BIT(FUSE_FALLOCATE) |	\
	 BIT(FUSE_SETXATTR) | BIT(FUSE_REMOVEXATTR) | BIT(FUSE_READ) |	\
	 BIT(FUSE_READDIR) | BIT(FUSE_READDIRPLUS) | BIT(FUSE_IOCTL) |	\
	 BIT(FUSE_COPY_FILE_RANGE) | BIT(FUSE_CREATE) | BIT(FUSE_MKNOD) | \
	 BIT(FUSE_MKDIR) | BIT(FUSE_SYMLINK) | BIT(FUSE_LINK) |		\
	 BIT(FUSE_UNLINK) | BIT(FUSE_RMDIR) | BIT(FUSE_RENAME) |	\
	 BIT(FUSE_RENAME2) | BIT(COPY_FILE_RANGE_64))

/* Reads the name in argument @arg. Returns 0 if it is too long for the tables. */
__inline int read_name(struct fuse_ext_request *request, __u32 arg, __u64 parent,
		       struct name_key *key)
{
	int size = fuse_ext_in_size(request, arg);

	__builtin_memset(key, 0, sizeof(*key));
	key->parent = parent;
	if (size < 2 || size > NAME_ROOM)
		return 0;
	return fuse_ext_read(request, arg, 0, key->name, sizeof(key->name)) == size;
}

__inline __u64 name_hash(const struct name_key *key)
{
	return hash_words(key->parent, key->name, NAME_ROOM / 8);
}

__inline int same_name(const struct name_key *a, const struct name_key *b)
{
	__u64 differ = a->parent ^ b->parent;

#pragma unroll
	for (int i = 0; i < NAME_ROOM / 8; i++)
		differ |= a->name[i] ^ b->name[i];
	return !differ;
}

__inline int same_xattr(const struct xattr_key *a, const struct xattr_key *b)
{
	__u64 differ = a->node ^ b->node;

#pragma unroll
	for (int i = 0; i < XATTR_NAME_ROOM / 8; i++)
		differ |= a->name[i] ^ b->name[i];
	return !differ;
}

/* Looks up a name. Returns 0 if no valid entry is stored. */
__inline int find_name(const struct name_key *key, struct name_slot *found)
{
	__u64 hash = name_hash(key), now = version(NAME, hash), seq;
	struct name_slot *slot;

#pragma unroll
	for (int i = 0; i < WAYS; i++) {
		slot = SLOT(names, NAMES, hash, i);
		if (!slot)
			continue;
		seq = begin(&slot->seq);
		if (!seq || slot->version != now || !same_name(&slot->key, key))
			continue;
		found->node = slot->node;
		found->life = slot->life;
		found->generation = slot->generation;
		if (unchanged(&slot->seq, seq))
			return 1;
	}
	return 0;
}

__inline void node_changed(__u64 node)
{
	__u64 hash = mix(node);

	changed(ATTR, hash);
	/* A write removes capabilities, and a mode change changes ACLs. */
	changed(XATTR, hash);
}

/* Invalidates a name in @parent, and the attributes of the node it refers to. */
static __attribute__((noinline)) int name_changed(struct fuse_ext_request *request, __u32 arg,
						   __u64 parent)
{
	struct name_slot found;
	struct name_key key;

	changed(ATTR, mix(parent));
	if (!read_name(request, arg, parent, &key))
		return 0;
	if (find_name(&key, &found) && found.node)
		changed(ATTR, mix(found.node));
	changed(NAME, name_hash(&key));
	return 0;
}

__inline void renamed(struct fuse_ext_request *request)
{
	__u64 parent = 0;

	/* RENAME and RENAME2 both start with the new directory. */
	fuse_ext_read(request, 0, 0, &parent, sizeof(parent));
	name_changed(request, 1, request->nodeid);
	name_changed(request, 2, parent);
}

__inline void linked(struct fuse_ext_request *request)
{
	__u64 node = 0;

	fuse_ext_read(request, 0, 0, &node, sizeof(node));
	changed(ATTR, mix(node));
	name_changed(request, 1, request->nodeid);
}

__inline void copied(struct fuse_ext_request *request)
{
	__u64 node = 0;

	fuse_ext_read(request, 0, offsetof(struct fuse_copy_file_range_in, nodeid_out),
		      &node, sizeof(node));
	node_changed(node);
	changed(ATTR, mix(request->nodeid));
}

__inline void invalidate(struct fuse_ext_request *request)
{
	switch (request->opcode) {
	case FUSE_SETATTR:
	case FUSE_WRITE:
	case FUSE_FALLOCATE:
	case FUSE_SETXATTR:
	case FUSE_REMOVEXATTR:
	case FUSE_IOCTL:
		node_changed(request->nodeid);
		break;
	case FUSE_READ:
	case FUSE_READDIR:
	case FUSE_READDIRPLUS:
		/* Access times. */
		changed(ATTR, mix(request->nodeid));
		break;
	case FUSE_UNLINK:
	case FUSE_RMDIR:
	case FUSE_SYMLINK:
		name_changed(request, 0, request->nodeid);
		break;
	case FUSE_CREATE:
	case FUSE_MKNOD:
	case FUSE_MKDIR:
		name_changed(request, 1, request->nodeid);
		break;
	case FUSE_LINK:
		linked(request);
		break;
	case FUSE_RENAME:
	case FUSE_RENAME2:
		renamed(request);
		break;
	case FUSE_COPY_FILE_RANGE:
	case COPY_FILE_RANGE_64:
		copied(request);
		break;
	}
}

#endif
