/* SPDX-License-Identifier: GPL-2.0 */
#ifndef FEXT_PRIVATE_H
#define FEXT_PRIVATE_H

#include <linux/fuse.h>
#include <linux/hashtable.h>
#include <linux/highmem.h>
#include <linux/list.h>
#include <linux/percpu.h>
#include <linux/rcupdate.h>
#include <linux/refcount.h>
#include <linux/spinlock.h>
#include <linux/workqueue.h>

#include "compat.h"
#include "include/fuse_ext.h"

#define FEXT_OPS 64	/* opcodes that an op mask can name */

enum fext_outcome {
	FEXT_ANSWERED,
	FEXT_PASSED,
	FEXT_REFUSED,	/* invalid verdict or reply; passed on to the daemon */
	FEXT_OUTCOMES,
};

struct fext_stats {
	u64 count[FEXT_OPS][FEXT_OUTCOMES];
};

/* Lookups that programs answered, and that the daemon does not count. */
struct fext_extra {
	spinlock_t lock;	/* all members */
	struct hlist_head *buckets;
	u64 seq;	/* number of FORGETs sent to the daemon */
	u64 lookups;
	u32 nodes;
};

/*
 * A connection whose queue operations are replaced. The connection holds one
 * reference (while ->ops is installed), and the program another.
 */
struct fext_conn {
	struct fuse_iqueue_ops ops;
	const struct fuse_iqueue_ops *under;
	struct fuse_iqueue *fiq;
	struct fuse_conn *fc;			/* NULL after its release; fext_lock */
	struct fuse_ext_ops __rcu *prog;
	struct hlist_node hash;
	struct list_head attached;		/* on the list while it has a program; fext_mutex */
	refcount_t count;
	struct fext_extra extra;
	struct fext_stats __percpu *stats;

	/* Background requests to be ended outside bg_lock. */
	spinlock_t ended_lock;
	struct list_head ended;
	struct work_struct end_work;

#ifdef FEXT_HAS_CHAN
	/* Until io_uring has replaced the queue's operations or cannot do so any more. */
	struct wait_queue_entry ring_wait;
	struct work_struct ring_work;
	bool ring_waits;			/* holds a reference to ->fc; fext_mutex */
#endif

	struct work_struct restore_work;
	struct rcu_work free_work;
};

extern struct workqueue_struct *fext_wq;
extern const struct file_operations fuse_dev_operations;

/* conn.c */
int fext_conns_init(void);
bool fext_is_dev(const struct fuse_iqueue_ops *ops);
struct fuse_conn *fext_ring_get(struct fext_conn *c);
void fext_ring_settled(struct fext_conn *c);
struct fext_conn *fext_find(const struct fuse_iqueue *fiq);
int fext_attach(struct fuse_ext_ops *prog);
int fext_replace(struct fuse_ext_ops *prog, const struct fuse_ext_ops *old);
void fext_detach(const struct fuse_ext_ops *prog);
void fext_drained(struct fext_conn *c);
void fext_for_each(void (*show)(struct fext_conn *c, void *arg), void *arg);

/* ring.c */
#ifdef FEXT_HAS_CHAN
void fext_ring_start(struct fext_conn *c, struct fuse_conn *fc);
void fext_ring_check(struct fext_conn *c);
bool fext_ring_stop(struct fext_conn *c, struct fuse_conn *fc);
void fext_ring_flush(struct fext_conn *c);
#else
/* These kernels never replace the operations. */
static inline void fext_ring_start(struct fext_conn *c, struct fuse_conn *fc)
{
}

static inline void fext_ring_check(struct fext_conn *c)
{
}

static inline bool fext_ring_stop(struct fext_conn *c, struct fuse_conn *fc)
{
	return false;
}

static inline void fext_ring_flush(struct fext_conn *c)
{
}
#endif

/* device.c */
struct fuse_conn *fext_conn_of_fd(int fd);

/* request.c */
void fext_send_req(struct fuse_iqueue *fiq, struct fuse_req *req);
void fext_end_work(struct work_struct *work);

/* forget.c */
int fext_extra_init(struct fext_extra *extra);
void fext_extra_free(struct fext_extra *extra);
int fext_extra_add(struct fext_extra *extra, u64 nodeid, u64 seq);
void fext_send_forget(struct fuse_iqueue *fiq, struct fuse_forget_link *link);
int fext_extra_cache_create(void);
void fext_extra_cache_destroy(void);

/* args.c */
int fext_args_commit(struct fuse_ext_request *request);

/* kfuncs.c */
int fext_kfuncs_register(void);

/* struct_ops.c */
int fext_struct_ops_register(void);

/* stats.c */
void fext_stats_create(void);
void fext_stats_remove(void);

static inline void fext_count(struct fext_conn *c, u32 opcode, enum fext_outcome outcome)
{
	if (opcode < FEXT_OPS)
		this_cpu_inc(c->stats->count[opcode][outcome]);
}

#endif
