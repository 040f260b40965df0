// SPDX-License-Identifier: GPL-2.0
/*
 * Connections whose queue operations are replaced: attach, replace, detach,
 * and release.
 *
 * fext_mutex serialises attach and detach. The release operation of a dying
 * connection must not wait for that mutex, so the data that both sides use
 * (->fc and the hash table) is protected by fext_lock.
 */

#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/slab.h>

#include "private.h"

static DEFINE_HASHTABLE(fext_conns, 6);
static LIST_HEAD(fext_attached);
static DEFINE_SPINLOCK(fext_lock);
static DEFINE_MUTEX(fext_mutex);

/* The kernel's operations for /dev/fuse. */
static const struct fuse_iqueue_ops *fext_dev_ops;

/* Finds the operations of /dev/fuse where they are not exported: a new channel has them. */
int fext_conns_init(void)
{
#ifdef FEXT_HAS_CHAN
	struct fuse_chan *chan = fuse_dev_chan_new();

	if (!chan)
		return -ENOMEM;
	fext_dev_ops = chan->iq.ops;
	fuse_chan_free(chan);
#else
	fext_dev_ops = &fuse_dev_fiq_ops;
#endif
	return 0;
}

/* Called under rcu_read_lock(), fext_lock or fext_mutex. */
struct fext_conn *fext_find(const struct fuse_iqueue *fiq)
{
	struct fext_conn *c;

	hash_for_each_possible_rcu(fext_conns, c, hash, (unsigned long)fiq, true)
		if (c->fiq == fiq)
			return c;
	return NULL;
}

static void fext_free_work(struct work_struct *work)
{
	struct fext_conn *c = container_of(to_rcu_work(work), struct fext_conn, free_work);

	/* The work may still be running: it may have ended the last request of the connection. */
	flush_work(&c->end_work);
	flush_work(&c->restore_work);
	fext_ring_flush(c);
	fext_extra_free(&c->extra);
	free_percpu(c->stats);
	kfree(c);
	/* fext_exit() drains the work queue before this code is unloaded. */
	module_put(THIS_MODULE);
}

static void fext_put(struct fext_conn *c)
{
	if (refcount_dec_and_test(&c->count))
		queue_rcu_work(fext_wq, &c->free_work);
}

/* Called when the last reference to the connection is dropped; no request can be in flight. */
static void fext_release(struct fuse_iqueue *fiq)
{
	struct fext_conn *c;

	spin_lock(&fext_lock);
	c = fext_find(fiq);
	if (c && c->fc) {
		c->fc = NULL;
		hash_del_rcu(&c->hash);
	} else {
		c = NULL;
	}
	spin_unlock(&fext_lock);
	if (!c)
		return;
	if (c->under->release)
		c->under->release(fiq);
	fext_put(c);
}

/*
 * Restores the connection's original operations, unless a program or a counted
 * lookup still needs the replaced ones. A dying connection keeps the latter:
 * fext_release() is about to be called.
 */
static void fext_restore(struct fext_conn *c)
{
	struct fuse_conn *fc;

	lockdep_assert_held(&fext_mutex);
	spin_lock(&fext_lock);
	fc = c->fc;
	if (!fc || rcu_access_pointer(c->prog) || READ_ONCE(c->extra.nodes) ||
	    !refcount_inc_not_zero(&fc->count)) {
		spin_unlock(&fext_lock);
		return;
	}
	/* io_uring may have replaced them already: its operations stay. */
	cmpxchg(&c->fiq->ops, &c->ops, c->under);
	c->fc = NULL;
	hash_del_rcu(&c->hash);
	spin_unlock(&fext_lock);
	if (fext_ring_stop(c, fc))
		fuse_conn_put(fc);

	/* Wait for tasks that have read the old pointer, until they have left its functions. */
	synchronize_rcu_tasks();
	fuse_conn_put(fc);
	fext_put(c);
}

static void fext_restore_work(struct work_struct *work)
{
	struct fext_conn *c = container_of(work, struct fext_conn, restore_work);

	mutex_lock(&fext_mutex);
	fext_restore(c);
	mutex_unlock(&fext_mutex);
}

/* Called when the last counted lookup was forgotten. */
void fext_drained(struct fext_conn *c)
{
	if (!rcu_access_pointer(c->prog))
		queue_work(fext_wq, &c->restore_work);
}

static struct fext_conn *fext_new(struct fuse_conn *fc)
{
	struct fext_conn *c = kzalloc(sizeof(*c), GFP_KERNEL);

	if (!c)
		return NULL;
	c->stats = alloc_percpu(struct fext_stats);
	if (!c->stats || fext_extra_init(&c->extra)) {
		free_percpu(c->stats);
		kfree(c);
		return NULL;
	}
	c->fc = fc;
	c->fiq = fext_queue(fc);
	refcount_set(&c->count, 1);
	spin_lock_init(&c->ended_lock);
	INIT_LIST_HEAD(&c->ended);
	INIT_WORK(&c->end_work, fext_end_work);
	INIT_WORK(&c->restore_work, fext_restore_work);
	INIT_RCU_WORK(&c->free_work, fext_free_work);
	__module_get(THIS_MODULE);
	return c;
}

/* Replaces the current operations of the queue. */
static void fext_install(struct fext_conn *c)
{
	const struct fuse_iqueue_ops *under = READ_ONCE(c->fiq->ops);

	lockdep_assert_held(&fext_mutex);
	if (under == &c->ops)
		return;
	WRITE_ONCE(c->under, under);
	c->ops = (struct fuse_iqueue_ops) {
		.send_req = fext_send_req,
		.send_forget = fext_send_forget,
		/* The same function for /dev/fuse and io_uring. */
		.send_interrupt = under->send_interrupt,
		.release = fext_release,
	};
	/* A task that sees these operations must find the connection and the original ones. */
	smp_store_release(&c->fiq->ops, &c->ops);
}

static void fext_hook(struct fext_conn *c, struct fuse_conn *fc)
{
	spin_lock(&fext_lock);
	hash_add_rcu(fext_conns, &c->hash, (unsigned long)c->fiq);
	spin_unlock(&fext_lock);
	fext_ring_start(c, fc);
	fext_install(c);
	fext_ring_check(c);
}

#ifdef FEXT_HAS_CHAN

/* Returns the connection with a reference, while it waits for the ring. */
struct fuse_conn *fext_ring_get(struct fext_conn *c)
{
	struct fuse_conn *fc = NULL;

	mutex_lock(&fext_mutex);
	if (c->ring_waits) {
		fc = c->fc;
		refcount_inc(&fc->count);
	}
	mutex_unlock(&fext_mutex);
	return fc;
}

/* Called once nobody else can replace the operations any more. The caller has a reference. */
void fext_ring_settled(struct fext_conn *c)
{
	mutex_lock(&fext_mutex);
	if (c->ring_waits) {
		fext_install(c);
		fext_ring_stop(c, c->fc);
		fuse_conn_put(c->fc);
	}
	mutex_unlock(&fext_mutex);
}

#endif

bool fext_is_dev(const struct fuse_iqueue_ops *ops)
{
	return ops == fext_dev_ops;
}

/* Reports whether the queue's operations are the kernel's own. */
static bool fext_may_replace(struct fuse_conn *fc)
{
#ifdef FEXT_HAS_CHAN
	if (READ_ONCE(fc->chan->ring))
		return true;
#endif
	return fext_is_dev(READ_ONCE(fext_queue(fc)->ops));
}

int fext_attach(struct fuse_ext_ops *prog)
{
	struct fuse_conn *fc = fext_conn_of_fd(prog->fd);
	struct fext_conn *c;
	int err = 0;

	if (IS_ERR(fc))
		return PTR_ERR(fc);
	mutex_lock(&fext_mutex);
	c = fext_find(fext_queue(fc));
	if (c) {
		/* Still installed, for lookups that an earlier program answered. */
		if (rcu_access_pointer(c->prog))
			err = -EBUSY;
	} else {
		c = fext_may_replace(fc) ? fext_new(fc) : ERR_PTR(-EBUSY);
		if (IS_ERR_OR_NULL(c))
			err = c ? PTR_ERR(c) : -ENOMEM;
		else
			fext_hook(c, fc);
	}
	if (!err) {
		refcount_inc(&c->count);
		list_add(&c->attached, &fext_attached);
		rcu_assign_pointer(c->prog, prog);
	}
	mutex_unlock(&fext_mutex);
	fuse_conn_put(fc);
	return err;
}

/* Finds the connection by its program; the fuse_conn may be gone already. */
static struct fext_conn *fext_running(const struct fuse_ext_ops *prog)
{
	struct fext_conn *c;

	lockdep_assert_held(&fext_mutex);
	list_for_each_entry(c, &fext_attached, attached)
		if (rcu_access_pointer(c->prog) == prog)
			return c;
	return NULL;
}

int fext_replace(struct fuse_ext_ops *prog, const struct fuse_ext_ops *old)
{
	struct fuse_conn *fc = fext_conn_of_fd(prog->fd);
	struct fext_conn *c;
	int err = -ENOTCONN;

	if (IS_ERR(fc))
		return PTR_ERR(fc);
	mutex_lock(&fext_mutex);
	c = fext_running(old);
	if (c && c->fiq == fext_queue(fc)) {
		rcu_assign_pointer(c->prog, prog);
		/* Afterwards the old program, whose data may be outdated, answers nothing. */
		synchronize_rcu();
		err = 0;
	}
	mutex_unlock(&fext_mutex);
	fuse_conn_put(fc);
	return err;
}

void fext_detach(const struct fuse_ext_ops *prog)
{
	struct fext_conn *c;

	mutex_lock(&fext_mutex);
	c = fext_running(prog);
	if (c) {
		list_del(&c->attached);
		rcu_assign_pointer(c->prog, NULL);
		/* Afterwards the program does not run, and adds no lookups. */
		synchronize_rcu();
		flush_work(&c->end_work);
		fext_restore(c);
		fext_put(c);
	}
	mutex_unlock(&fext_mutex);
}

void fext_for_each(void (*show)(struct fext_conn *c, void *arg), void *arg)
{
	struct fext_conn *c;
	int bucket;

	spin_lock(&fext_lock);
	hash_for_each(fext_conns, bucket, c, hash)
		show(c, arg);
	spin_unlock(&fext_lock);
}
