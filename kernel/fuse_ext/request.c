// SPDX-License-Identifier: GPL-2.0
/* Interception of requests: runs the program and applies its verdict. */

#include "args.h"

/*
 * Reports whether a program may answer an operation with success. Replies that
 * introduce nodes to the kernel by the daemon's references are left to the
 * daemon. A program may answer these with an error.
 */
static bool fext_may_answer(u32 opcode)
{
	switch (opcode) {
	case FUSE_CREATE:
	case FUSE_MKNOD:
	case FUSE_MKDIR:
	case FUSE_SYMLINK:
	case FUSE_LINK:
	case FUSE_TMPFILE:
	case FUSE_READDIRPLUS:
		return false;
	}
	return true;
}

static bool fext_may_ask(const struct fuse_req *req)
{
	switch (req->in.h.opcode) {
	case FUSE_INIT:
	case FUSE_DESTROY:
	case FUSE_NOTIFY_REPLY:
	case FUSE_FORGET:
	case FUSE_BATCH_FORGET:
	case FUSE_INTERRUPT:
		return false;
	}
	return req->in.h.opcode < FEXT_OPS && test_bit(FR_ISREPLY, &req->flags);
}

/*
 * Applies the program's verdict. Returns 0 or a negative errno to end the
 * request with, or 1 to pass it on to the daemon.
 */
static int fext_judge(struct fext_conn *c, struct fuse_req *req,
		      struct fuse_ext_request *request, int verdict, u64 seq)
{
	u32 opcode = req->in.h.opcode;
	int err;

	if (verdict == FUSE_EXT_PASS) {
		fext_count(c, opcode, FEXT_PASSED);
		return 1;
	}
	/* ENOSYS would disable the operation for the lifetime of the mount. */
	if (verdict < 0 && verdict > -512 && verdict != -ENOSYS) {
		fext_count(c, opcode, FEXT_ANSWERED);
		return verdict;
	}
	if (verdict != FUSE_EXT_ANSWER || !fext_may_answer(opcode) ||
	    fext_args_commit(request))
		goto refused;
	if (opcode == FUSE_LOOKUP) {
		const struct fuse_entry_out *entry = req->args->out_args[0].value;

		if (entry->nodeid == FUSE_ROOT_ID)
			goto refused;
		if (entry->nodeid) {
			err = fext_extra_add(&c->extra, entry->nodeid, seq);
			/* The lookup cannot be counted, so the daemon answers it. */
			if (err) {
				fext_count(c, opcode, FEXT_PASSED);
				return 1;
			}
		}
	}
	fext_count(c, opcode, FEXT_ANSWERED);
	return 0;

refused:
	fext_count(c, opcode, FEXT_REFUSED);
	return 1;
}

static int fext_ask(struct fext_conn *c, struct fuse_req *req)
{
	struct fuse_ext_ops *prog = rcu_dereference(c->prog);
	struct fuse_ext_request request;
	u64 seq;

	if (!prog || !fext_may_ask(req) ||
	    !(prog->op_mask & BIT_ULL(req->in.h.opcode)))
		return 1;
	request = (struct fuse_ext_request) {
		.nodeid = req->in.h.nodeid,
		.opcode = req->in.h.opcode,
		.uid = req->in.h.uid,
		.gid = req->in.h.gid,
		.pid = req->in.h.pid,
		.in_count = fext_args_in_count(req),
		.out_count = req->args->out_numargs,
		.req = req,
	};
	/* Read before the program looks up a node; pairs with fext_settle(). */
	seq = smp_load_acquire(&c->extra.seq);
	return fext_judge(c, req, &request, prog->handle(&request), seq);
}

/*
 * Background requests are sent under the connection's bg_lock, which
 * fuse_request_end() takes, so a worker ends them.
 */
static void fext_end_later(struct fext_conn *c, struct fuse_req *req)
{
	spin_lock(&c->ended_lock);
	list_add_tail(&req->list, &c->ended);
	spin_unlock(&c->ended_lock);
	queue_work(fext_wq, &c->end_work);
}

void fext_end_work(struct work_struct *work)
{
	struct fext_conn *c = container_of(work, struct fext_conn, end_work);
	struct fuse_req *req, *next;
	LIST_HEAD(ended);

	spin_lock(&c->ended_lock);
	list_splice_init(&c->ended, &ended);
	spin_unlock(&c->ended_lock);
	list_for_each_entry_safe(req, next, &ended, list) {
		list_del_init(&req->list);
		fuse_request_end(req);
	}
}

void fext_send_req(struct fuse_iqueue *fiq, struct fuse_req *req)
{
	const struct fuse_iqueue_ops *under;
	struct fext_conn *c;
	bool later = false;
	int error = 1;

	rcu_read_lock();
	c = fext_find(fiq);
	/* NULL: the connection's original operations were restored meanwhile. */
	under = c ? READ_ONCE(c->under) : READ_ONCE(fiq->ops);
	if (c)
		error = fext_ask(c, req);
	if (error <= 0) {
		req->out.h.error = error;
		clear_bit(FR_PENDING, &req->flags);
		later = test_bit(FR_BACKGROUND, &req->flags);
		if (later)
			fext_end_later(c, req);
	}
	rcu_read_unlock();

	if (error > 0)
		under->send_req(fiq, req);
	else if (!later)
		fuse_request_end(req);
}
