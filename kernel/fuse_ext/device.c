// SPDX-License-Identifier: GPL-2.0
/* Lookup of a connection by a descriptor of /dev/fuse. */

#include <linux/file.h>
#include <linux/fs.h>

#include "private.h"

/*
 * Returns the connection with a reference. ENOTCONN: the descriptor is not
 * used by a mount yet, or the pointer has flags in its low bits, as in later
 * kernels.
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
	/* The open descriptor holds its device, and that the connection. */
	fc = fud->fc;
	refcount_inc(&fc->count);
out:
	fput(file);
	return fc;
}
