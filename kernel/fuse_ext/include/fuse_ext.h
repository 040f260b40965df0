/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the module and the BPF programs agree on. BPF programs include it
 * after they have defined __u32 and __u64 (bpf/fuse_ext_bpf.h does).
 */
#ifndef SHUNT_FUSE_EXT_H
#define SHUNT_FUSE_EXT_H

/* What handle() returns; a negative errno answers with that error. */
enum fuse_ext_verdict {
	FUSE_EXT_PASS = 0,	/* the daemon gets the request */
	FUSE_EXT_ANSWER = 1,	/* the reply is what fuse_ext_write() wrote */
};

/*
 * A request as a program sees it. Ids are those of the request's header:
 * in the connection's user namespace, and right in background work too.
 */
struct fuse_ext_request {
	__u64 nodeid;
	__u32 opcode;
	__u32 uid;
	__u32 gid;
	__u32 pid;
	__u32 in_count;
	__u32 out_count;
	/* What follows is the module's; programs have no use for it. */
	void *req;
	__u32 written[2];
};

/*
 * A program's table. The connection is named by a descriptor of /dev/fuse
 * that is open in the process that attaches.
 */
struct fuse_ext_ops {
	__u32 fd;
	__u32 flags;		/* must be 0 */
	__u64 op_mask;		/* bit N: handle() is asked about opcode N */
	/* Asked in the requester's context; must not sleep. */
	int (*handle)(struct fuse_ext_request *request);
	/*
	 * The daemon is about to lose references to a node: nothing that was
	 * stored about it may be used again. Optional.
	 */
	void (*forget)(__u64 nodeid);
};

#endif
