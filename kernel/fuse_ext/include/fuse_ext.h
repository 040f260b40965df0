/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Interface between the module and BPF programs. Programs must define __u32
 * and __u64 before they include it (bpf/fuse_ext_bpf.h does).
 */
#ifndef SHUNT_FUSE_EXT_H
#define SHUNT_FUSE_EXT_H

/* Return values of handle(). A negative errno answers with that error. */
enum fuse_ext_verdict {
	FUSE_EXT_PASS = 0,	/* pass the request on to the daemon */
	FUSE_EXT_ANSWER = 1,	/* reply with the data from fuse_ext_write() */
};

/*
 * A request as a program sees it. The ids are those of the request header:
 * in the connection's user namespace, and of the requester also in background
 * requests.
 */
struct fuse_ext_request {
	__u64 nodeid;
	__u32 opcode;
	__u32 uid;
	__u32 gid;
	__u32 pid;
	__u32 in_count;
	__u32 out_count;
	/* Private to the module. */
	void *req;
	__u32 written[2];
};

/*
 * Operations of a program. fd is a descriptor of /dev/fuse, open in the
 * attaching process, that identifies the connection.
 */
struct fuse_ext_ops {
	__u32 fd;
	__u32 flags;		/* must be 0 */
	__u64 op_mask;		/* bit N: handle() is called for opcode N */
	/* Called in the context of the requester; must not sleep. */
	int (*handle)(struct fuse_ext_request *request);
	/*
	 * Called before the daemon receives a FORGET for a node. The program
	 * must discard all stored data of the node. Optional.
	 */
	void (*forget)(__u64 nodeid);
};

#endif
