/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Tables that the daemon fills through shared memory and programs read.
 *
 * A table is a 4-way set-associative array of slots. A slot starts with a
 * sequence number that is odd while the daemon writes (seqlock): a reader that
 * finds it odd or changed treats the slot as empty. Programs never write slots.
 *
 * A slot is valid while its version is current. The daemon reads the version
 * before it queries the lower file system, and stores it with the result;
 * every change increments the version. So a result that is older than a change
 * is never used, even if it is stored after the change.
 *
 * crates/fuse-ext/src/builtin/layout.rs defines the same layout in Rust.
 */
#ifndef SHUNT_FUSE_EXT_TABLES_H
#define SHUNT_FUSE_EXT_TABLES_H

#include "fuse_ext_bpf.h"

#define WAYS 4
#define NAME_ROOM 40
#define XATTR_NAME_ROOM 32
#define XATTR_ROOM 64
#define LINK_ROOM 224
#define LIST_ROOM 88

#define FOREVER (~0ULL)

#define VERSIONS (1U << 17)
#define ATTRS (1U << 17)
#define NAMES (1U << 17)
#define XATTRS (1U << 16)
#define LINKS (1U << 13)
#define LISTS (1U << 15)
#define OPENS (1U << 14)

/* Kinds of data with separate versions. Element 0 of the array is a global version. */
enum domain { ATTR = 1, LIFE, XATTR, NAME, OPENING };

/* Cache times of replies, in seconds. */
struct settings {
	__u64 entry_valid;
	__u64 attr_valid;
	__u64 absent_valid;
};

/* What is known of the time of birth, which the kernel requests by STATX. */
enum birth { BIRTH_UNKNOWN, BIRTH_ABSENT, BIRTH_STORED };

struct attr_slot {
	__u64 seq;
	__u64 node;
	__u64 version;
	__u64 until;		/* expiry: CLOCK_MONOTONIC in ns, or FOREVER */
	struct fuse_attr attr;
	__s64 btime;
	__u32 btime_nsec;
	__u32 birth;		/* enum birth */
};

_Static_assert(sizeof(struct attr_slot) == 136, "as AttrSlot in layout.rs");

struct name_key {
	__u64 parent;
	__u64 name[NAME_ROOM / 8];	/* padded with zeros */
};

struct name_slot {
	__u64 seq;
	struct name_key key;
	__u64 version;
	__u64 life;		/* LIFE version of the node; 0 for a negative entry */
	__u64 node;
	__u64 generation;
};

struct xattr_key {
	__u64 node;
	__u64 name[XATTR_NAME_ROOM / 8];
};

struct xattr_slot {
	__u64 seq;
	struct xattr_key key;
	__u64 version;
	__s64 length;		/* or a negative errno */
	char value[XATTR_ROOM];
};

struct link_slot {
	__u64 seq;
	__u64 node;
	__u64 version;
	__u64 length;
	char target[LINK_ROOM];
};

/* List of extended attributes. Stored separately for root, who may see more of them. */
struct list_slot {
	__u64 seq;
	__u64 node;
	__u64 root;
	__u64 version;
	__u64 length;
	char names[LIST_ROOM];
};

struct open_slot {
	__u64 seq;
	__u64 node;
	__u64 version;
	__u32 backing_id;
	__u32 open_flags;
};

#define TABLE(table, value_type, count)			\
	struct {					\
		__uint(type, BPF_MAP_TYPE_ARRAY);	\
		__uint(map_flags, BPF_F_MMAPABLE);	\
		__uint(max_entries, count);		\
		__type(key, __u32);			\
		__type(value, value_type);		\
	} table SEC(".maps")

TABLE(settings, struct settings, 1);
TABLE(versions, __u64, VERSIONS);
TABLE(attrs, struct attr_slot, ATTRS);
TABLE(names, struct name_slot, NAMES);
TABLE(xattrs, struct xattr_slot, XATTRS);
TABLE(links, struct link_slot, LINKS);
TABLE(lists, struct list_slot, LISTS);
TABLE(opens, struct open_slot, OPENS);
/*
 * Number of open files that programs opened, by hash. All programs of a mount
 * share this map, also those of later daemons.
 */
TABLE(opened, __u64, OPENS);

__inline __u64 mix(__u64 x)
{
	x ^= x >> 32;
	x *= 0xd6e8feb86659fd93ULL;
	x ^= x >> 32;
	x *= 0xd6e8feb86659fd93ULL;
	x ^= x >> 32;
	return x;
}

__inline __u64 hash_words(__u64 first, const __u64 *words, int count)
{
	__u64 hash = mix(first);

#pragma unroll
	for (int i = 0; i < count; i++)
		hash = mix(hash ^ words[i]);
	return hash;
}

__inline __u64 *version_of(enum domain domain, __u64 hash)
{
	__u32 index = mix(hash + domain) & (VERSIONS - 1);

	if (!index)
		index = 1;
	return bpf_map_lookup_elem(&versions, &index);
}

/* The version as stored in slots: sum of the object's own and the global one. */
__inline __u64 version(enum domain domain, __u64 hash)
{
	__u64 *own = version_of(domain, hash);
	__u32 zero = 0;
	__u64 *all = bpf_map_lookup_elem(&versions, &zero);

	return own && all ? READ_ONCE(*own) + READ_ONCE(*all) : 0;
}

__inline void changed(enum domain domain, __u64 hash)
{
	__u64 *own = version_of(domain, hash);

	if (own)
		__sync_fetch_and_add(own, 1);
}

/* The slot in way @i of the set selected by @hash. */
#define SLOT(table, count, hash, i) ({						\
	__u32 index__ = ((hash) & ((count) - 1) & ~(WAYS - 1)) + (i);		\
	bpf_map_lookup_elem(&table, &index__);					\
})

/* Starts a read. Returns the sequence number; 0 if the slot is empty or being written. */
__inline __u64 begin(__u64 *seq)
{
	__u64 now = READ_ONCE(*seq);

	/* x86-64 does not reorder loads; this keeps the compiler from it. */
	asm volatile("" ::: "memory");
	return now & 1 ? 0 : now;
}

__inline int unchanged(__u64 *seq, __u64 before)
{
	asm volatile("" ::: "memory");
	return READ_ONCE(*seq) == before;
}

#endif
