// SPDX-License-Identifier: GPL-2.0
/*
 * Lookup counts. A lookup answered by a program gives the kernel a reference
 * that the daemon does not count. FORGET requests are reduced by these
 * references, so the daemon's count stays exact, also after the program was
 * detached.
 */

#include <linux/hash.h>
#include <linux/mm.h>
#include <linux/slab.h>

#include "private.h"

#define FEXT_EXTRA_BITS	12
/* Maximum number of counted nodes, of 32 bytes each. Further lookups go to the daemon. */
#define FEXT_EXTRA_MAX	BIT(20)

struct fext_node {
	struct hlist_node link;
	u64 nodeid;
	u64 lookups;
};

static struct kmem_cache *fext_nodes;

int fext_extra_cache_create(void)
{
	/* Not merged, so that /proc/slabinfo shows the memory of the counts. */
	fext_nodes = KMEM_CACHE(fext_node, SLAB_NO_MERGE);
	return fext_nodes ? 0 : -ENOMEM;
}

void fext_extra_cache_destroy(void)
{
	kmem_cache_destroy(fext_nodes);
}

int fext_extra_init(struct fext_extra *extra)
{
	spin_lock_init(&extra->lock);
	extra->buckets = kvcalloc(1 << FEXT_EXTRA_BITS, sizeof(*extra->buckets), GFP_KERNEL);
	return extra->buckets ? 0 : -ENOMEM;
}

void fext_extra_free(struct fext_extra *extra)
{
	struct hlist_node *next;
	struct fext_node *node;
	int i;

	for (i = 0; i < 1 << FEXT_EXTRA_BITS; i++)
		hlist_for_each_entry_safe(node, next, &extra->buckets[i], link)
			kmem_cache_free(fext_nodes, node);
	kvfree(extra->buckets);
}

static struct fext_node *fext_node_find(struct hlist_head *bucket, u64 nodeid)
{
	struct fext_node *node;

	hlist_for_each_entry(node, bucket, link)
		if (node->nodeid == nodeid)
			return node;
	return NULL;
}

/*
 * Counts a lookup. Fails with ESTALE if a FORGET was sent to the daemon since
 * @seq was read: the program may have answered with a node that the daemon has
 * freed.
 */
int fext_extra_add(struct fext_extra *extra, u64 nodeid, u64 seq)
{
	struct hlist_head *bucket = &extra->buckets[hash_64(nodeid, FEXT_EXTRA_BITS)];
	struct fext_node *node;
	int err = -ESTALE;

	spin_lock(&extra->lock);
	if (extra->seq != seq)
		goto out;
	node = fext_node_find(bucket, nodeid);
	if (!node) {
		err = -ENOMEM;
		if (extra->nodes >= FEXT_EXTRA_MAX)
			goto out;
		node = kmem_cache_zalloc(fext_nodes, GFP_ATOMIC | __GFP_NOWARN);
		if (!node)
			goto out;
		node->nodeid = nodeid;
		hlist_add_head(&node->link, bucket);
		extra->nodes++;
	}
	node->lookups++;
	extra->lookups++;
	err = 0;
out:
	spin_unlock(&extra->lock);
	return err;
}

/* Subtracts counted lookups. Returns how many of @lookups they were. */
static u64 fext_extra_take(struct fext_extra *extra, u64 nodeid, u64 lookups)
{
	struct hlist_head *bucket = &extra->buckets[hash_64(nodeid, FEXT_EXTRA_BITS)];
	struct fext_node *node = fext_node_find(bucket, nodeid);
	u64 taken;

	if (!node)
		return 0;
	taken = min(lookups, node->lookups);
	node->lookups -= taken;
	extra->lookups -= taken;
	if (!node->lookups) {
		hlist_del(&node->link);
		kmem_cache_free(fext_nodes, node);
		extra->nodes--;
	}
	return taken;
}

/*
 * Reduces the FORGET in @link by the counted lookups. Returns whether any are
 * left for the daemon.
 */
static bool fext_settle(struct fext_conn *c, struct fuse_forget_link *link)
{
	struct fext_extra *extra = &c->extra;
	struct fuse_ext_ops *prog;
	bool drained;
	u64 taken;

	spin_lock(&extra->lock);
	taken = fext_extra_take(extra, link->forget_one.nodeid, link->forget_one.nlookup);
	link->forget_one.nlookup -= taken;
	drained = taken && !extra->nodes;
	if (link->forget_one.nlookup) {
		prog = rcu_dereference(c->prog);
		if (prog && prog->forget)
			prog->forget(link->forget_one.nodeid);
		/* After the program has dropped the node; pairs with fext_ask(). */
		smp_store_release(&extra->seq, extra->seq + 1);
	}
	spin_unlock(&extra->lock);
	if (drained)
		fext_drained(c);
	return link->forget_one.nlookup;
}

void fext_send_forget(struct fuse_iqueue *fiq, struct fuse_forget_link *link)
{
	const struct fuse_iqueue_ops *under;
	struct fext_conn *c;
	bool left = true;

	rcu_read_lock();
	c = fext_find(fiq);
	under = c ? READ_ONCE(c->under) : READ_ONCE(fiq->ops);
	if (c)
		left = fext_settle(c, link);
	rcu_read_unlock();
	if (left)
		under->send_forget(fiq, link);
	else
		kfree(link);
}
