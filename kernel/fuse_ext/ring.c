// SPDX-License-Identifier: GPL-2.0
/*
 * FUSE over io_uring. The kernel replaces the operations of a queue once, when
 * the last ring queue of the connection is registered. A program attached
 * earlier would be lost, so its operations are installed again.
 *
 * The kernel wakes blocked_waitq after it has replaced the operations, after
 * INIT and when the connection ends. No lookup is counted before: requests wait
 * until the ring is ready. Requests that pass between the two replacements go
 * to the daemon.
 */

#include "private.h"

#ifdef FEXT_HAS_CHAN

/* Called under the lock of the wait queue. */
static int fext_ring_wake(struct wait_queue_entry *entry, unsigned int mode, int flags, void *key)
{
	struct fext_conn *c = container_of(entry, struct fext_conn, ring_wait);

	queue_work(fext_wq, &c->ring_work);
	return 0;
}

static bool fext_ring_expected(struct fext_conn *c, const struct fuse_chan *chan)
{
	if (!READ_ONCE(chan->connected))
		return false;
	/* INIT decides about the ring; pairs with fuse_chan_set_initialized(). */
	if (!smp_load_acquire(&chan->initialized))
		return true;
	return READ_ONCE(chan->ring) && fext_is_dev(READ_ONCE(c->under)) &&
	       READ_ONCE(c->fiq->ops) == &c->ops;
}

static void fext_ring_work(struct work_struct *work)
{
	struct fext_conn *c = container_of(work, struct fext_conn, ring_work);
	struct fuse_chan *chan = container_of(c->fiq, struct fuse_chan, iq);
	struct fuse_conn *fc;

	fc = fext_ring_get(c);
	if (!fc)
		return;
	if (!fext_ring_expected(c, chan)) {
		/*
		 * Several tasks may register the last queues at once, and each
		 * replaces the operations, before it sees ring->ready and
		 * without sleeping. The first call waits until one of them has
		 * set ring->ready, the second for those that did not see it.
		 */
		if (READ_ONCE(chan->ring)) {
			synchronize_rcu_tasks();
			synchronize_rcu_tasks();
		}
		fext_ring_settled(c);
	}
	fuse_conn_put(fc);
}

/* Takes a reference to the connection until fext_ring_stop(). */
void fext_ring_start(struct fext_conn *c, struct fuse_conn *fc)
{
	INIT_WORK(&c->ring_work, fext_ring_work);
	init_waitqueue_func_entry(&c->ring_wait, fext_ring_wake);
	refcount_inc(&fc->count);
	c->ring_waits = true;
	add_wait_queue(&fc->chan->blocked_waitq, &c->ring_wait);
}

/* The ring may have become ready before the operations were installed. */
void fext_ring_check(struct fext_conn *c)
{
	queue_work(fext_wq, &c->ring_work);
}

/* Reports whether the wait was in progress; its reference is then the caller's. */
bool fext_ring_stop(struct fext_conn *c, struct fuse_conn *fc)
{
	if (!c->ring_waits)
		return false;
	c->ring_waits = false;
	remove_wait_queue(&fc->chan->blocked_waitq, &c->ring_wait);
	return true;
}

void fext_ring_flush(struct fext_conn *c)
{
	flush_work(&c->ring_work);
}

#endif
