/* SPDX-License-Identifier: GPL-2.0 */
/* Interface between the programs and the daemon (crates/lsm). */
#ifndef SHUNT_POLICY_H
#define SHUNT_POLICY_H

#define POLICY_MOST_USERS 64
#define POLICY_MOST_GROUPS 8
#define POLICY_MOST_CELLS 128
#define POLICY_MOST_CLASSES 65536
#define POLICY_MOST_INODES 1048576

/* Class of an inode whose rules changed. */
#define POLICY_STALE 0xffffffff

enum policy_op {
	POLICY_LOOKUP,
	POLICY_READ,
	POLICY_WRITE,
	POLICY_LIST,
	POLICY_CREATE,
	POLICY_DELETE,
	POLICY_ATTRIBUTES,
	POLICY_CREATE_INSIDE,	/* of a directory: create any name in it */
};

/* Contents of .bss. */
struct policy_settings {
	__u32 device;	/* device number of the mount; 0: not set yet */
	__u32 seen;	/* set when a hook has run */
};

/* Errors by operation for each combination of a user range and a group range, given by their start ids. */
struct policy_class {
	__u32 users;
	__u32 groups;
	__u32 user[POLICY_MOST_USERS];
	__u32 group[POLICY_MOST_GROUPS];
	__u8 cell[POLICY_MOST_CELLS][8];
};

#endif
