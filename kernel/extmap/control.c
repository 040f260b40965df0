// SPDX-License-Identifier: GPL-2.0
/* The character device. Each descriptor of it is one connection. */

#include <linux/capability.h>
#include <linux/file.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/poll.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "private.h"

struct extmap_control {
	struct mutex binding;		/* serialises EXTMAP_BIND: protects writes of connection */
	struct extmap_connection *connection;	/* set once */
};

static int control_open(struct inode *inode, struct file *file)
{
	struct extmap_control *control = kzalloc(sizeof(*control), GFP_KERNEL_ACCOUNT);

	if (!control)
		return -ENOMEM;
	mutex_init(&control->binding);
	file->private_data = control;
	return nonseekable_open(inode, file);
}

/* Returns the connection, or NULL if the descriptor is not bound. */
static struct extmap_connection *connection_of(struct file *file)
{
	struct extmap_control *control = file->private_data;

	/* Pairs with control_bind(). */
	return smp_load_acquire(&control->connection);
}

static int control_release(struct inode *inode, struct file *file)
{
	struct extmap_control *control = file->private_data;

	if (control->connection)
		extmap_connection_end(control->connection);
	mutex_destroy(&control->binding);
	kfree(control);
	return 0;
}

static long control_bind(struct extmap_control *control, struct extmap_bind __user *arg)
{
	struct extmap_connection *connection;
	struct extmap_bind bind;
	long err;

	if (copy_from_user(&bind, arg, sizeof(bind)))
		return -EFAULT;
	if (bind.version != EXTMAP_VERSION)
		return -EPROTO;
	if (bind.unused)
		return -EINVAL;
	/* The descriptor may have been passed on, or the device node's mode changed. */
	if (!capable(CAP_SYS_ADMIN))
		return -EPERM;
	mutex_lock(&control->binding);
	err = -EBUSY;
	if (control->connection)
		goto out;
	connection = extmap_connection_new(&bind);
	err = PTR_ERR_OR_ZERO(connection);
	if (err)
		goto out;
	if (copy_to_user(arg, &bind, sizeof(bind))) {
		extmap_connection_end(connection);
		err = -EFAULT;
		goto out;
	}
	/* Pairs with connection_of(): publishes the initialised connection. */
	smp_store_release(&control->connection, connection);
out:
	mutex_unlock(&control->binding);
	return err;
}

static long control_file(struct extmap_connection *connection, struct extmap_file __user *arg)
{
	struct extmap_file file;
	struct file *opened;
	long err;
	int fd;

	if (copy_from_user(&file, arg, sizeof(file)))
		return -EFAULT;
	if (file.cookie)
		return -EINVAL;
	fd = get_unused_fd_flags(O_CLOEXEC);
	if (fd < 0)
		return fd;
	opened = extmap_file_new(connection, &file);
	err = PTR_ERR_OR_ZERO(opened);
	if (err)
		goto no_file;
	/* Before fd_install(): a descriptor whose number is not returned would leak. */
	err = -EFAULT;
	if (put_user(file.cookie, &arg->cookie))
		goto no_answer;
	fd_install(fd, opened);
	return fd;

no_answer:
	fput(opened);
no_file:
	put_unused_fd(fd);
	return err;
}

static long control_push(struct extmap_connection *connection, struct extmap_push __user *arg)
{
	struct extmap_push push;

	if (copy_from_user(&push, arg, sizeof(push)))
		return -EFAULT;
	return extmap_file_push(connection, &push);
}

static long control_cut(struct extmap_connection *connection, struct extmap_cut __user *arg)
{
	struct extmap_cut cut;
	int err;

	if (copy_from_user(&cut, arg, sizeof(cut)))
		return -EFAULT;
	err = extmap_file_cut(connection, &cut);
	if (!err && put_user(cut.offset, &arg->offset))
		err = -EFAULT;
	return err;
}

static long control_settle(struct extmap_connection *connection, struct extmap_settle __user *arg)
{
	struct extmap_settle settle;

	if (copy_from_user(&settle, arg, sizeof(settle)))
		return -EFAULT;
	return extmap_file_settle(connection, &settle, arg);
}

static long control_freed(struct extmap_connection *connection, __s32 __user *arg)
{
	__s32 fd;

	if (get_user(fd, arg))
		return -EFAULT;
	return extmap_file_freed(connection, fd);
}

static long control_reply(struct extmap_connection *connection, struct extmap_reply __user *arg)
{
	struct extmap_reply reply;

	if (copy_from_user(&reply, arg, sizeof(reply)))
		return -EFAULT;
	return extmap_upcall_reply(connection, &reply);
}

static ssize_t control_read(struct file *file, char __user *to, size_t size, loff_t *offset)
{
	struct extmap_connection *connection = connection_of(file);

	if (!connection)
		return -ENOTCONN;
	return extmap_upcall_read(connection, to, size, !(file->f_flags & O_NONBLOCK));
}

static __poll_t control_poll(struct file *file, poll_table *table)
{
	struct extmap_connection *connection = connection_of(file);

	if (!connection)
		return EPOLLERR;
	poll_wait(file, &connection->upcall_queued, table);
	return extmap_upcall_waits(connection) ? EPOLLIN | EPOLLRDNORM : 0;
}

static long control_ioctl(struct file *file, unsigned int command, unsigned long arg)
{
	struct extmap_connection *connection;
	void __user *user = (void __user *)arg;

	if (command == EXTMAP_BIND)
		return control_bind(file->private_data, user);
	connection = connection_of(file);
	if (!connection)
		return -ENOTCONN;
	switch (command) {
	case EXTMAP_FILE:
		return control_file(connection, user);
	case EXTMAP_PUSH:
		return control_push(connection, user);
	case EXTMAP_CUT:
		return control_cut(connection, user);
	case EXTMAP_SETTLE:
		return control_settle(connection, user);
	case EXTMAP_FREED:
		return control_freed(connection, user);
	case EXTMAP_REPLY:
		return control_reply(connection, user);
	default:
		return -ENOTTY;
	}
}

static const struct file_operations control_operations = {
	.owner = THIS_MODULE,
	.open = control_open,
	.release = control_release,
	.read = control_read,
	.poll = control_poll,
	.unlocked_ioctl = control_ioctl,
	/* Commands and structures have the same layout for 32-bit programs. */
	.compat_ioctl = compat_ptr_ioctl,
};

static struct miscdevice control_device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "shunt_extmap",
	.fops = &control_operations,
	.mode = 0600,
};

int extmap_control_init(void)
{
	return misc_register(&control_device);
}

void extmap_control_exit(void)
{
	misc_deregister(&control_device);
}
