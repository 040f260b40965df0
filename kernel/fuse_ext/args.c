// SPDX-License-Identifier: GPL-2.0
/*
 * Arguments of a request: bounded reads of the request, bounded writes of the
 * reply. A reply is written from its start without gaps, so it contains no
 * uninitialised byte.
 */

#include <linux/highmem.h>
#include <linux/string.h>

#include "args.h"

/* Reports whether an argument is in pages: the last one may be, in struct fuse_args_pages. */
static bool fext_out_in_pages(const struct fuse_args *args, u32 arg)
{
	return args->out_pages && arg + 1 == args->out_numargs;
}

/*
 * Newer kernels begin operations without a header with an empty argument, and
 * split the name of a lookup from its NUL. Programs see the arguments as the
 * protocol has them: no empty header, and one name.
 */
static u32 fext_in_hidden(const struct fuse_args *args)
{
	return args->in_numargs && !args->in_args[0].size;
}

static bool fext_in_name_is_split(const struct fuse_args *args)
{
	return args->opcode == FUSE_LOOKUP && args->in_numargs == fext_in_hidden(args) + 2;
}

u32 fext_args_in_count(const struct fuse_req *req)
{
	const struct fuse_args *args = req->args;

	return args->in_numargs - fext_in_hidden(args) - fext_in_name_is_split(args);
}

int fext_args_in_size(const struct fuse_req *req, u32 arg)
{
	const struct fuse_args *args = req->args;
	const struct fuse_in_arg *in;

	if (arg >= fext_args_in_count(req))
		return -EINVAL;
	in = &args->in_args[fext_in_hidden(args) + arg];
	return fext_in_name_is_split(args) ? in[0].size + in[1].size : in[0].size;
}

int fext_args_out_size(const struct fuse_req *req, u32 arg)
{
	if (arg >= req->args->out_numargs)
		return -EINVAL;
	return req->args->out_args[arg].size;
}

/* Copies up to @size bytes from @offset. Returns the number copied, or a negative errno. */
int fext_args_read(const struct fuse_req *req, u32 arg, u32 offset, void *dst, u32 size)
{
	const struct fuse_args *args = req->args;
	int total = fext_args_in_size(req, arg);
	const struct fuse_in_arg *in;
	u32 first;

	if (total < 0 || offset > total)
		return -EINVAL;
	if (args->in_pages && arg + 1 == fext_args_in_count(req))
		return -EINVAL;
	in = &args->in_args[fext_in_hidden(args) + arg];
	size = min(size, (u32)total - offset);
	first = offset < in->size ? min(size, in->size - offset) : 0;
	memcpy(dst, in->value + offset, first);
	if (first < size)
		memcpy(dst + first, in[1].value + (offset + first - in->size), size - first);
	return size;
}

/* Copies @size bytes to @offset in the pages; clears them if @src is NULL. */
static void fext_pages_fill(struct fuse_args *args, u32 offset, const void *src, u32 size)
{
	struct fuse_args_pages *ap = container_of(args, struct fuse_args_pages, args);
	unsigned int i;

	for (i = 0; i < fext_buffers(ap) && size; i++) {
		u32 length = fext_buffer_length(ap, i), start = fext_buffer_offset(ap, i);

		if (offset >= length) {
			offset -= length;
			continue;
		}
		while (size && offset < length) {
			u32 at = start + offset;
			u32 n = min3(size, length - offset, (u32)(PAGE_SIZE - offset_in_page(at)));
			char *page = fext_buffer_map(ap, i, at);

			if (src)
				memcpy(page, src, n);
			else
				memset(page, 0, n);
			kunmap_local(page);
			if (src)
				src += n;
			offset += n;
			size -= n;
		}
		offset = 0;
	}
}

int fext_args_write(struct fuse_ext_request *request, u32 arg, u32 offset,
		    const void *src, u32 size)
{
	struct fuse_args *args = ((struct fuse_req *)request->req)->args;
	u32 room;

	if (arg >= args->out_numargs || arg >= ARRAY_SIZE(request->written))
		return -EINVAL;
	room = args->out_args[arg].size;
	if (offset > request->written[arg] || offset > room || size > room - offset)
		return -ERANGE;
	if (fext_out_in_pages(args, arg))
		fext_pages_fill(args, offset, src, size);
	else
		memcpy(args->out_args[arg].value + offset, src, size);
	request->written[arg] = max(request->written[arg], offset + size);
	return 0;
}

/* Completes the reply. Fails without any change if it is incomplete. */
int fext_args_commit(struct fuse_ext_request *request)
{
	struct fuse_args *args = ((struct fuse_req *)request->req)->args;
	u32 last = args->out_numargs - 1;
	u32 i;

	for (i = 0; i < args->out_numargs; i++)
		if (request->written[i] != args->out_args[i].size &&
		    !(i == last && args->out_argvar))
			return -EINVAL;
	if (!args->out_numargs || !args->out_argvar)
		return 0;
	if (fext_out_in_pages(args, last) && args->page_zeroing)
		fext_pages_fill(args, request->written[last], NULL,
				args->out_args[last].size - request->written[last]);
	args->out_args[last].size = request->written[last];
	return 0;
}
