// SPDX-License-Identifier: GPL-2.0
/* From a descriptor of /dev/fuse to its connection. */

#include <linux/file.h>
#include <linux/fs.h>

#include "private.h"

/*
 * Returns the connection with a reference. Until a mount uses the
 * descriptor there is none. Later kernels keep flags in the pointer's low
 * bits; such a value is refused.
 */
struct fuse_conn *fext_conn_of_fd(int fd)
{
	struct fuse_conn *fc = ERR_PTR(-EBADF);
	struct file *file = fget(fd);
	struct fuse_dev *fud;

	if (!file)
		return fc;
	fc = ERR_PTR(-EINVAL);
	if (file->f_op != &fuse_dev_operations)
		goto out;
	fud = READ_ONCE(file->private_data);
	fc = ERR_PTR(-ENOTCONN);
	if (!fud || (unsigned long)fud & 7)
		goto out;
	/* The open descriptor keeps its device and so the connection. */
	fc = fud->fc;
	refcount_inc(&fc->count);
out:
	fput(file);
	return fc;
}
