// SPDX-License-Identifier: GPL-2.0
/* Lookup of a connection by a descriptor of /dev/fuse. */

#include <linux/file.h>
#include <linux/fs.h>

#include "private.h"

/*
 * Returns the connection with a reference. ENOTCONN: no mount uses the
 * descriptor, or the pointer to its device has flags in its low bits, as in
 * some kernels before the mount.
 */
struct fuse_conn *fext_conn_of_fd(int fd)
{
	struct fuse_conn *fc = ERR_PTR(-EBADF), *of_device;
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
	of_device = fext_device_conn(fud);
	if (of_device) {
		fc = of_device;
		refcount_inc(&fc->count);
	}
out:
	fput(file);
	return fc;
}
