// SPDX-License-Identifier: GPL-2.0
/* Upcalls: the module requests blocks or a commit from user space, and waits for the reply. */

#include <linux/poll.h>
#include <linux/uaccess.h>

#include "private.h"

void extmap_questions_init(struct extmap_connection *c)
{
	spin_lock_init(&c->question_lock);
	INIT_LIST_HEAD(&c->unread);
	INIT_LIST_HEAD(&c->taken);
	init_waitqueue_head(&c->asked);
	init_waitqueue_head(&c->let_go);
}

static void answer(struct extmap_question *question, int error)
{
	list_del_init(&question->list);
	question->error = error;
	complete(&question->answered);
}

/* Fails all upcalls with EIO. c->ended is set, so no further ones are queued. */
void extmap_questions_end(struct extmap_connection *c)
{
	struct extmap_question *question, *next;

	spin_lock(&c->question_lock);
	list_splice_init(&c->unread, &c->taken);
	list_for_each_entry_safe(question, next, &c->taken, list)
		answer(question, -EIO);
	spin_unlock(&c->question_lock);
	wake_up_all(&c->let_go);
}

/* Sends an upcall and waits for the reply, killably. The caller holds no lock that user space may wait for. */
int extmap_ask(struct extmap_inode *file, u32 kind, u64 offset, u64 length)
{
	struct extmap_connection *c = extmap_connection(file->vfs.i_sb);
	struct extmap_question question = {
		.request = { .file = file->cookie, .kind = kind, .offset = offset, .length = length },
	};

	init_completion(&question.answered);
	spin_lock(&c->question_lock);
	if (c->ended) {
		spin_unlock(&c->question_lock);
		return -EIO;
	}
	question.request.id = ++c->last_question;
	list_add_tail(&question.list, &c->unread);
	spin_unlock(&c->question_lock);
	wake_up(&c->asked);
	if (!wait_for_completion_killable(&question.answered))
		return question.error;
	spin_lock(&c->question_lock);
	list_del_init(&question.list);
	spin_unlock(&c->question_lock);
	return -EINTR;
}

bool extmap_question_waits(struct extmap_connection *c)
{
	return !list_empty(&c->unread);
}

/* Takes the next upcall, as a copy, because the waiter that owns it may be killed at any time. */
static bool take(struct extmap_connection *c, struct extmap_request *request)
{
	struct extmap_question *question;

	spin_lock(&c->question_lock);
	question = list_first_entry_or_null(&c->unread, struct extmap_question, list);
	if (question) {
		*request = question->request;
		list_move_tail(&question->list, &c->taken);
	}
	spin_unlock(&c->question_lock);
	return question;
}

ssize_t extmap_question_read(struct extmap_connection *c, char __user *to, size_t size, bool wait)
{
	struct extmap_request request;

	if (size < sizeof(request))
		return -EINVAL;
	while (!take(c, &request)) {
		if (!wait)
			return -EAGAIN;
		if (wait_event_interruptible(c->asked, extmap_question_waits(c)))
			return -ERESTARTSYS;
	}
	if (!copy_to_user(to, &request, sizeof(request)))
		return sizeof(request);
	extmap_question_reply(c, &(struct extmap_reply) { .id = request.id, .error = -EIO });
	return -EFAULT;
}

int extmap_question_reply(struct extmap_connection *c, const struct extmap_reply *reply)
{
	struct extmap_question *question;
	int err = -ENOENT;

	if (reply->unused || reply->error > 0 || reply->error < -MAX_ERRNO)
		return -EINVAL;
	spin_lock(&c->question_lock);
	list_for_each_entry(question, &c->taken, list) {
		if (question->request.id == reply->id) {
			answer(question, reply->error);
			err = 0;
			break;
		}
	}
	spin_unlock(&c->question_lock);
	return err;
}
