// SPDX-License-Identifier: GPL-2.0
/* Upcalls: the module requests blocks or a commit from user space, and waits for the reply. */

#include <linux/poll.h>
#include <linux/uaccess.h>

#include "private.h"

void extmap_upcalls_init(struct extmap_connection *c)
{
	spin_lock_init(&c->upcall_lock);
	INIT_LIST_HEAD(&c->unread);
	INIT_LIST_HEAD(&c->taken);
	init_waitqueue_head(&c->upcall_queued);
	init_waitqueue_head(&c->hold_released);
}

static void answer(struct extmap_upcall *upcall, int error)
{
	list_del_init(&upcall->list);
	upcall->error = error;
	complete(&upcall->answered);
}

/* Fails all upcalls with EIO. c->ended is set, so no further ones are queued. */
void extmap_upcalls_end(struct extmap_connection *c)
{
	struct extmap_upcall *upcall, *next;

	spin_lock(&c->upcall_lock);
	list_splice_init(&c->unread, &c->taken);
	list_for_each_entry_safe(upcall, next, &c->taken, list)
		answer(upcall, -EIO);
	spin_unlock(&c->upcall_lock);
	wake_up_all(&c->hold_released);
}

/*
 * Sends an upcall and waits for the reply, killably. The caller holds no lock
 * that user space may wait for.
 */
int extmap_upcall_wait(struct extmap_inode *file, u32 kind, u64 offset, u64 length)
{
	struct extmap_connection *c = extmap_connection(file->vfs.i_sb);
	struct extmap_upcall upcall = {
		.request = {
			.file = file->cookie,
			.kind = kind,
			.offset = offset,
			.length = length,
		},
	};

	init_completion(&upcall.answered);
	spin_lock(&c->upcall_lock);
	if (c->ended) {
		spin_unlock(&c->upcall_lock);
		return -EIO;
	}
	upcall.request.id = ++c->last_upcall;
	list_add_tail(&upcall.list, &c->unread);
	spin_unlock(&c->upcall_lock);
	wake_up(&c->upcall_queued);
	if (!wait_for_completion_killable(&upcall.answered))
		return upcall.error;
	spin_lock(&c->upcall_lock);
	list_del_init(&upcall.list);
	spin_unlock(&c->upcall_lock);
	return -EINTR;
}

bool extmap_upcall_waits(struct extmap_connection *c)
{
	return !list_empty(&c->unread);
}

/* Takes the next upcall, as a copy, because the waiter that owns it may be killed at any time. */
static bool take(struct extmap_connection *c, struct extmap_request *request)
{
	struct extmap_upcall *upcall;

	spin_lock(&c->upcall_lock);
	upcall = list_first_entry_or_null(&c->unread, struct extmap_upcall, list);
	if (upcall) {
		*request = upcall->request;
		list_move_tail(&upcall->list, &c->taken);
	}
	spin_unlock(&c->upcall_lock);
	return upcall;
}

ssize_t extmap_upcall_read(struct extmap_connection *c, char __user *to, size_t size, bool wait)
{
	struct extmap_request request;

	if (size < sizeof(request))
		return -EINVAL;
	while (!take(c, &request)) {
		if (!wait)
			return -EAGAIN;
		if (wait_event_interruptible(c->upcall_queued, extmap_upcall_waits(c)))
			return -ERESTARTSYS;
	}
	if (!copy_to_user(to, &request, sizeof(request)))
		return sizeof(request);
	extmap_upcall_reply(c, &(struct extmap_reply) { .id = request.id, .error = -EIO });
	return -EFAULT;
}

int extmap_upcall_reply(struct extmap_connection *c, const struct extmap_reply *reply)
{
	struct extmap_upcall *upcall;
	int err = -ENOENT;

	if (reply->unused || reply->error > 0 || reply->error < -MAX_ERRNO)
		return -EINVAL;
	spin_lock(&c->upcall_lock);
	list_for_each_entry(upcall, &c->taken, list) {
		if (upcall->request.id == reply->id) {
			answer(upcall, reply->error);
			err = 0;
			break;
		}
	}
	spin_unlock(&c->upcall_lock);
	return err;
}
