// SPDX-License-Identifier: GPL-2.0
/* /sys/kernel/debug/shunt_fuse_ext: verdicts by connection and opcode. */

#include <linux/debugfs.h>
#include <linux/seq_file.h>

#include "private.h"

static struct dentry *fext_file;

static void fext_show_conn(struct fext_conn *c, void *arg)
{
	struct seq_file *m = arg;
	int op, cpu;

	/* The minor number is the name under /sys/fs/fuse/connections. */
	seq_printf(m, "connection %u program %d nodes %u lookups %llu\n",
		   MINOR(c->fc->dev), !!rcu_access_pointer(c->prog),
		   READ_ONCE(c->extra.nodes), READ_ONCE(c->extra.lookups));
	for (op = 0; op < FEXT_OPS; op++) {
		u64 sum[FEXT_OUTCOMES] = {};
		int i;

		for_each_possible_cpu(cpu)
			for (i = 0; i < FEXT_OUTCOMES; i++)
				sum[i] += per_cpu_ptr(c->stats, cpu)->count[op][i];
		if (sum[FEXT_ANSWERED] || sum[FEXT_PASSED] || sum[FEXT_REFUSED])
			seq_printf(m, "op %d answered %llu passed %llu refused %llu\n", op,
				   sum[FEXT_ANSWERED], sum[FEXT_PASSED], sum[FEXT_REFUSED]);
	}
}

static int fext_stats_show(struct seq_file *m, void *unused)
{
	fext_for_each(fext_show_conn, m);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(fext_stats);

void fext_stats_create(void)
{
	fext_file = debugfs_create_file("shunt_fuse_ext", 0400, NULL, NULL, &fext_stats_fops);
}

void fext_stats_remove(void)
{
	debugfs_remove(fext_file);
}
