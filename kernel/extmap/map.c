// SPDX-License-Identifier: GPL-2.0
/* Where the parts of a file lie: runs in the order of their offsets. */

#include <linux/slab.h>

#include "private.h"

/* Runs of one file; ext4 with blocks of 4 KiB and none beside another has so many in 4 GiB. */
#define MOST_RUNS (1 << 20)

static struct kmem_cache *runs;

static struct extmap_run *run_of(struct rb_node *node)
{
	return rb_entry_safe(node, struct extmap_run, node);
}

void extmap_map_init(struct extmap_map *map)
{
	init_rwsem(&map->lock);
	map->runs = RB_ROOT;
	map->count = 0;
}

/* The last run that begins at the offset or before it, or the first behind it. */
static struct extmap_run *nearest(struct extmap_map *map, u64 offset)
{
	struct rb_node *at = map->runs.rb_node;
	struct extmap_run *best = NULL;

	while (at) {
		struct extmap_run *run = run_of(at);

		if (run->offset <= offset) {
			if (offset - run->offset < run->length)
				return run;
			at = at->rb_right;
		} else {
			best = run;
			at = at->rb_left;
		}
	}
	return best;
}

/* The run that has the offset, else the next one; false where there is none. */
bool extmap_map_find(struct extmap_map *map, u64 offset, struct extmap_run *found)
{
	struct extmap_run *run;

	down_read(&map->lock);
	run = nearest(map, offset);
	if (run)
		*found = *run;
	up_read(&map->lock);
	return run;
}

/* Takes the run, unless another one is where it would be. */
static int insert(struct extmap_map *map, struct extmap_run *new)
{
	struct rb_node **at = &map->runs.rb_node, *parent = NULL;

	while (*at) {
		struct extmap_run *run = run_of(*at);

		parent = *at;
		if (new->offset + new->length <= run->offset)
			at = &parent->rb_left;
		else if (run->offset + run->length <= new->offset)
			at = &parent->rb_right;
		else
			return -EEXIST;
	}
	rb_link_node(&new->node, parent, at);
	rb_insert_color(&new->node, &map->runs);
	return 0;
}

/* User space is not trusted with any of it. */
static int check(const struct extmap_connection *c, const struct extmap_extent *extent)
{
	if (!extent->length || (extent->offset | extent->length) & (c->block_size - 1))
		return -EINVAL;
	/* A partition may begin anywhere. */
	if (extent->device & (c->device_block - 1))
		return -EINVAL;
	if (extent->flags & ~EXTMAP_UNWRITTEN || extent->unused)
		return -EINVAL;
	if (extent->offset > MAX_LFS_FILESIZE || extent->length > MAX_LFS_FILESIZE - extent->offset)
		return -EINVAL;
	if (extent->device > c->device_size || extent->length > c->device_size - extent->device)
		return -ENXIO;
	return 0;
}

static int add_one(struct extmap_connection *c, struct extmap_map *map, const struct extmap_extent *extent)
{
	struct extmap_run *run;
	int err = check(c, extent);

	if (err)
		return err;
	run = kmem_cache_alloc(runs, GFP_KERNEL_ACCOUNT);
	if (!run)
		return -ENOMEM;
	run->offset = extent->offset;
	run->device = extent->device;
	run->length = extent->length;
	run->unwritten = extent->flags & EXTMAP_UNWRITTEN;
	err = insert(map, run);
	if (err)
		kmem_cache_free(runs, run);
	return err;
}

/* All of them or none. */
int extmap_map_add(struct extmap_connection *c, struct extmap_map *map,
		   const struct extmap_extent *extents, u32 count)
{
	struct extmap_run *run;
	int err;
	u32 i;

	err = extmap_connection_charge(c, count);
	if (err)
		return err;
	down_write(&map->lock);
	err = -E2BIG;
	if (count > MOST_RUNS - map->count)
		goto refused;
	for (i = 0; i < count; i++) {
		err = add_one(c, map, &extents[i]);
		if (err)
			goto undo;
	}
	map->count += count;
	up_write(&map->lock);
	return 0;

undo:
	/* Those that came before are there as they were given. */
	while (i--) {
		run = nearest(map, extents[i].offset);
		rb_erase(&run->node, &map->runs);
		kmem_cache_free(runs, run);
	}
refused:
	up_write(&map->lock);
	extmap_connection_uncharge(c, count);
	return err;
}

/* Nobody uses it any more. */
void extmap_map_clear(struct extmap_connection *c, struct extmap_map *map)
{
	struct extmap_run *run, *next;

	rbtree_postorder_for_each_entry_safe(run, next, &map->runs, node) {
		kmem_cache_free(runs, run);
		cond_resched();
	}
	map->runs = RB_ROOT;
	extmap_connection_uncharge(c, map->count);
	map->count = 0;
}

int extmap_map_module_init(void)
{
	runs = KMEM_CACHE(extmap_run, SLAB_ACCOUNT);
	return runs ? 0 : -ENOMEM;
}

void extmap_map_module_exit(void)
{
	kmem_cache_destroy(runs);
}
