// SPDX-License-Identifier: GPL-2.0
/* Regular files whose extents on a block device are set by user space. */

#include <linux/module.h>

#include "private.h"

static int __init extmap_init(void)
{
	int err;

	err = extmap_map_module_init();
	if (err)
		return err;
	err = extmap_writeback_init();
	if (err)
		goto no_writeback;
	err = extmap_super_init();
	if (err)
		goto no_super;
	err = extmap_control_init();
	if (err)
		goto no_control;
	return 0;

no_control:
	extmap_super_exit();
no_super:
	extmap_writeback_exit();
no_writeback:
	extmap_map_module_exit();
	return err;
}

/* Control descriptors, superblocks and open files each hold a module reference. */
static void __exit extmap_exit(void)
{
	extmap_control_exit();
	extmap_super_exit();
	extmap_writeback_exit();
	extmap_map_module_exit();
}

module_init(extmap_init);
module_exit(extmap_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Files whose bytes lie where user space says on a block device");
MODULE_VERSION("0.1");
