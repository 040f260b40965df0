// SPDX-License-Identifier: GPL-2.0
/* Answers FUSE requests in the kernel, by BPF programs that the file system supplies. */

#include <linux/module.h>

#include "private.h"

struct workqueue_struct *fext_wq;

static int __init fext_init(void)
{
	int err;

	err = fext_conns_init();
	if (!err)
		err = fext_extra_cache_create();
	if (err)
		return err;
	err = -ENOMEM;
	fext_wq = alloc_workqueue("shunt_fuse_ext", WQ_UNBOUND | WQ_MEM_RECLAIM, 0);
	if (!fext_wq)
		goto no_wq;
	err = fext_kfuncs_register();
	if (!err)
		err = fext_struct_ops_register();
	if (err)
		goto no_ops;
	fext_stats_create();
	return 0;

no_ops:
	destroy_workqueue(fext_wq);
no_wq:
	fext_extra_cache_destroy();
	return err;
}

/*
 * No connection is left, because each holds a module reference. There may
 * still be tasks returning from functions of this module, and pending frees.
 */
static void __exit fext_exit(void)
{
	fext_stats_remove();
	synchronize_rcu_tasks();
	rcu_barrier();
	destroy_workqueue(fext_wq);
	fext_extra_cache_destroy();
}

module_init(fext_init);
module_exit(fext_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Answers FUSE requests in the kernel by BPF programs");
MODULE_VERSION("0.1");
