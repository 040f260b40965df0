// SPDX-License-Identifier: GPL-2.0
/*
 * The extent map of a file: a tree of runs, ordered by offset. A run that was
 * added as unwritten has a bitmap of the blocks written since, so that write
 * completion allocates no memory.
 */

#include <linux/bitmap.h>
#include <linux/slab.h>

#include "private.h"

/* A run of blocks that is contiguous on the device. */
struct run {
	struct rb_node node;
	u64 offset;
	u64 device;
	u64 length;
	/* Bitmap of written blocks; NULL if the run was added as written. */
	unsigned long *written;
	unsigned long *reported;	/* written blocks already reported to user space */
};

static struct kmem_cache *runs;

static struct run *run_of(struct rb_node *node)
{
	return rb_entry_safe(node, struct run, node);
}

static struct run *following(struct run *run)
{
	return run_of(rb_next(&run->node));
}

static u32 block_of(const struct extmap_map *map, const struct run *run, u64 offset)
{
	return (offset - run->offset) >> map->block_bits;
}

static u32 blocks_of(const struct extmap_map *map, const struct run *run)
{
	return run->length >> map->block_bits;
}

/* Size in bytes of both bitmaps of an unwritten run. */
static size_t bits_size(u32 blocks)
{
	return 2 * BITS_TO_LONGS(blocks) * sizeof(long);
}

/* The caller charges the run to the connection. */
static struct run *run_new(const struct extmap_map *map, u64 offset, u64 device, u64 length,
			   bool unwritten)
{
	struct run *run = kmem_cache_zalloc(runs, GFP_KERNEL_ACCOUNT);
	u32 blocks = length >> map->block_bits;

	if (!run)
		return NULL;
	run->offset = offset;
	run->device = device;
	run->length = length;
	if (!unwritten)
		return run;
	/* One allocation holds both bitmaps. */
	run->written = kzalloc(bits_size(blocks), GFP_KERNEL_ACCOUNT);
	if (!run->written) {
		kmem_cache_free(runs, run);
		return NULL;
	}
	run->reported = run->written + BITS_TO_LONGS(blocks);
	return run;
}

/* Charge of a run against the limit of its connection: 1, plus its bitmaps in units of 64 bytes. */
static u32 cost_of(const struct extmap_map *map, u64 length, bool unwritten)
{
	return 1 + (unwritten ? DIV_ROUND_UP(bits_size(length >> map->block_bits), 64) : 0);
}

static void run_free(struct extmap_connection *c, const struct extmap_map *map, struct run *run)
{
	extmap_connection_uncharge(c, cost_of(map, run->length, run->written));
	kfree(run->written);
	kmem_cache_free(runs, run);
}

void extmap_map_init(struct extmap_map *map, u32 block_bits)
{
	init_rwsem(&map->lock);
	map->runs = RB_ROOT;
	map->count = 0;
	map->block_bits = block_bits;
	map->version = 0;
	map->held = false;
	map->held_from = 0;
	map->held_to = 0;
}

/* Returns the run that contains the offset, or else the next run. */
static struct run *nearest(const struct extmap_map *map, u64 offset)
{
	struct rb_node *at = map->runs.rb_node;
	struct run *best = NULL;

	while (at) {
		struct run *run = run_of(at);

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

/* Returns the part of a run around the offset that is uniformly written or unwritten. */
static void lookup_in(const struct extmap_map *map, const struct run *run, u64 offset,
		      struct extmap_lookup *found)
{
	u32 first, end, blocks = blocks_of(map, run);

	found->kind = EXTMAP_LOOKUP_WRITTEN;
	found->offset = run->offset;
	found->device = run->device;
	found->length = run->length;
	if (!run->written)
		return;
	first = block_of(map, run, offset);
	if (test_bit(first, run->written)) {
		end = find_next_zero_bit(run->written, blocks, first);
	} else {
		found->kind = EXTMAP_LOOKUP_UNWRITTEN;
		end = find_next_bit(run->written, blocks, first);
	}
	found->offset += (u64)first << map->block_bits;
	found->device += (u64)first << map->block_bits;
	found->length = (u64)(end - first) << map->block_bits;
}

/* Looks up an offset. For a hole, the length reaches to the next run. */
void extmap_map_find(struct extmap_map *map, u64 offset, struct extmap_lookup *found)
{
	struct run *run;

	down_read(&map->lock);
	run = nearest(map, offset);
	if (run && run->offset <= offset) {
		lookup_in(map, run, offset, found);
	} else {
		found->kind = EXTMAP_LOOKUP_HOLE;
		found->offset = offset;
		found->device = 0;
		found->length = (run ? run->offset : EXTMAP_END) - offset;
	}
	found->version = map->version;
	up_read(&map->lock);
}

/* Reports whether the map is unchanged since @version. */
bool extmap_map_is(struct extmap_map *map, u64 version)
{
	return READ_ONCE(map->version) == version;
}

/* Must precede the unlock: lockless readers then see the new version before the new runs. */
static void changes(struct extmap_map *map)
{
	lockdep_assert_held_write(&map->lock);
	WRITE_ONCE(map->version, map->version + 1);
}

/* Inserts a run. Fails with EEXIST if it overlaps another one. */
static int insert(struct extmap_map *map, struct run *new)
{
	struct rb_node **at = &map->runs.rb_node, *parent = NULL;

	while (*at) {
		struct run *run = run_of(*at);

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

/* Validates an extent from user space. */
static int check(const struct extmap_connection *c, const struct extmap_extent *extent)
{
	if (!extent->length || (extent->offset | extent->length) & (c->block_size - 1))
		return -EINVAL;
	/* Aligned to the device's block size only: a partition may start at any sector. */
	if (extent->device & (c->device_block - 1))
		return -EINVAL;
	if (extent->flags & ~EXTMAP_UNWRITTEN || extent->unused)
		return -EINVAL;
	if (extent->offset > MAX_LFS_FILESIZE || extent->length > MAX_LFS_FILESIZE - extent->offset)
		return -EINVAL;
	if (extent->device > c->device_size || extent->length > c->device_size - extent->device)
		return -ENXIO;
	if (extent->flags && extent->length / c->block_size > EXTMAP_UNWRITTEN_MAX)
		return -EINVAL;
	return 0;
}

static bool is_held(const struct extmap_map *map, u64 offset, u64 end)
{
	return map->held && offset < map->held_to && end > map->held_from;
}

/* Reports whether a range overlaps the held one: cut, and not yet freed by user space. */
bool extmap_map_is_held(struct extmap_map *map, u64 offset, u64 end)
{
	bool held;

	down_read(&map->lock);
	held = is_held(map, offset, end);
	up_read(&map->lock);
	return held;
}

/* Reports whether the map has a held range, which may be empty. */
bool extmap_map_has_hold(struct extmap_map *map)
{
	return READ_ONCE(map->held);
}

/* The caller holds the inode lock, and found no held range under it. */
static void hold_range(struct extmap_map *map, u64 offset, u64 end)
{
	lockdep_assert_held_write(&map->lock);
	map->held_from = offset;
	map->held_to = end;
	WRITE_ONCE(map->held, true);
}

/*
 * Holds an empty range, for a cut without whole blocks: each cut with a hold is
 * followed by a release, which must not release a range of somebody else.
 */
void extmap_map_hold_nothing(struct extmap_map *map)
{
	down_write(&map->lock);
	hold_range(map, 0, 0);
	up_write(&map->lock);
}

void extmap_map_release_hold(struct extmap_map *map)
{
	down_write(&map->lock);
	WRITE_ONCE(map->held, false);
	up_write(&map->lock);
}

static int add_one(struct extmap_connection *c, struct extmap_map *map,
		   const struct extmap_extent *extent)
{
	bool unwritten = extent->flags & EXTMAP_UNWRITTEN;
	struct run *run;
	u32 cost;
	int err = check(c, extent);

	if (err)
		return err;
	if (is_held(map, extent->offset, extent->offset + extent->length))
		return -EAGAIN;
	cost = cost_of(map, extent->length, unwritten);
	err = extmap_connection_charge(c, cost);
	if (err)
		return err;
	run = run_new(map, extent->offset, extent->device, extent->length, unwritten);
	if (!run) {
		extmap_connection_uncharge(c, cost);
		return -ENOMEM;
	}
	err = insert(map, run);
	if (err)
		run_free(c, map, run);
	return err;
}

/* Adds all extents or none. */
int extmap_map_add(struct extmap_connection *c, struct extmap_map *map,
		   const struct extmap_extent *extents, u32 count)
{
	struct run *run;
	int err = -E2BIG;
	u32 i;

	down_write(&map->lock);
	/* Cuts split runs, and so may have exceeded the limit. */
	if (map->count > EXTMAP_EXTENTS_MAX || count > EXTMAP_EXTENTS_MAX - map->count)
		goto refused;
	for (i = 0; i < count; i++) {
		err = add_one(c, map, &extents[i]);
		if (err)
			goto undo;
	}
	map->count += count;
	changes(map);
	up_write(&map->lock);
	return 0;

undo:
	/* The extents before the failed one are in the map unchanged. */
	while (i--) {
		run = nearest(map, extents[i].offset);
		rb_erase(&run->node, &map->runs);
		run_free(c, map, run);
	}
refused:
	up_write(&map->lock);
	return err;
}

/* Marks a range as written, at write completion. Does not allocate. */
void extmap_map_written(struct extmap_map *map, u64 offset, u64 length)
{
	u64 end = offset + length;
	struct run *run;

	/* A partly written block counts as written, because the rest of it was zeroed. */
	offset = round_down(offset, 1ULL << map->block_bits);
	down_write(&map->lock);
	for (run = nearest(map, offset); run && run->offset < end; run = following(run)) {
		u64 from = max(offset, run->offset), to = min(end, run->offset + run->length);
		u32 first = block_of(map, run, from);

		if (run->written)
			bitmap_set(run->written, first, block_of(map, run, to - 1) + 1 - first);
	}
	changes(map);
	up_write(&map->lock);
}

/* Returns the next written range from *at on, among those not returned before. */
bool extmap_map_report(struct extmap_map *map, u64 *at, struct extmap_range *range)
{
	bool found = false;
	struct run *run;

	down_write(&map->lock);
	for (run = nearest(map, *at); run && !found; run = following(run)) {
		u32 first, end, blocks = blocks_of(map, run);

		if (!run->written)
			continue;
		first = *at > run->offset ? block_of(map, run, *at) : 0;
		first = find_next_andnot_bit(run->written, run->reported, blocks, first);
		if (first >= blocks)
			continue;
		end = find_next_zero_bit(run->written, blocks, first);
		end = min_t(u32, end, find_next_bit(run->reported, blocks, first));
		bitmap_set(run->reported, first, end - first);
		range->offset = run->offset + ((u64)first << map->block_bits);
		range->length = (u64)(end - first) << map->block_bits;
		*at = range->offset + range->length;
		found = true;
	}
	up_write(&map->lock);
	return found;
}

/*
 * Called if a report could not be copied to user space: every written range is
 * reported again. Reporting a range twice is harmless.
 */
void extmap_map_clear_reported(struct extmap_map *map)
{
	struct run *run;

	down_write(&map->lock);
	for (run = run_of(rb_first(&map->runs)); run; run = following(run))
		if (run->written)
			bitmap_zero(run->reported, blocks_of(map, run));
	up_write(&map->lock);
}

/*
 * Creates a run for the remaining part of one that is cut. It is charged beyond
 * the limit of the connection, so that cuts never fail on it.
 */
static struct run *part_of(struct extmap_connection *c, const struct extmap_map *map,
			   const struct run *run, u64 offset, u64 length)
{
	u32 i, first, blocks = length >> map->block_bits;
	struct run *part;

	part = run_new(map, offset, run->device + (offset - run->offset), length, run->written);

	if (part)
		extmap_connection_count(c, cost_of(map, length, run->written));
	if (!part || !run->written)
		return part;
	first = block_of(map, run, offset);
	for (i = 0; i < blocks; i++) {
		if (test_bit(first + i, run->written))
			__set_bit(i, part->written);
		if (test_bit(first + i, run->reported))
			__set_bit(i, part->reported);
	}
	return part;
}

/*
 * Removes whole blocks from the map. Fails before any change: with ENOMEM, or
 * with E2BIG if the cut would split a run of a file that has EXTMAP_EXTENTS_MAX
 * already. Each split adds a run, and a program that punches holes chooses how
 * many.
 */
int extmap_map_cut(struct extmap_connection *c, struct extmap_map *map, u64 offset, u64 end,
		   bool hold)
{
	struct run *run, *next, *before = NULL, *behind = NULL;
	u32 removed = 0;
	int err = -E2BIG;
	bool splits;

	down_write(&map->lock);
	run = nearest(map, offset);
	splits = run && run->offset < offset && run->offset + run->length > end;
	if (splits && map->count >= EXTMAP_EXTENTS_MAX)
		goto out;
	err = -ENOMEM;
	if (run && run->offset < offset) {
		before = part_of(c, map, run, run->offset, offset - run->offset);
		if (!before)
			goto out;
	}
	next = nearest(map, end - 1);
	if (next && next->offset < end && next->offset + next->length > end) {
		behind = part_of(c, map, next, end, next->offset + next->length - end);
		if (!behind)
			goto out;
	}
	for (; run && run->offset < end; run = next) {
		next = following(run);
		rb_erase(&run->node, &map->runs);
		run_free(c, map, run);
		removed++;
	}
	/* Cannot fail: they replace parts of runs that were erased. */
	if (before)
		insert(map, before);
	if (behind)
		insert(map, behind);
	removed -= !!before;
	removed -= !!behind;
	before = NULL;
	changes(map);
	if (hold)
		hold_range(map, offset, end);
	map->count -= removed;
	err = 0;
out:
	up_write(&map->lock);
	if (before)
		run_free(c, map, before);
	return err;
}

/* Frees all runs. The map is no longer in use. */
void extmap_map_clear(struct extmap_connection *c, struct extmap_map *map)
{
	struct run *run, *next;

	rbtree_postorder_for_each_entry_safe(run, next, &map->runs, node) {
		run_free(c, map, run);
		cond_resched();
	}
	map->runs = RB_ROOT;
	map->count = 0;
}

int extmap_map_module_init(void)
{
	runs = kmem_cache_create("shunt_extmap_run", sizeof(struct run), 0, SLAB_ACCOUNT, NULL);
	return runs ? 0 : -ENOMEM;
}

void extmap_map_module_exit(void)
{
	kmem_cache_destroy(runs);
}
