/* SPDX-License-Identifier: GPL-2.0 */
#ifndef FEXT_ARGS_H
#define FEXT_ARGS_H

#include "private.h"

int fext_args_read(const struct fuse_req *req, u32 arg, u32 offset, void *dst, u32 size);
int fext_args_write(struct fuse_ext_request *request, u32 arg, u32 offset,
		    const void *src, u32 size);
u32 fext_args_in_count(const struct fuse_req *req);
int fext_args_in_size(const struct fuse_req *req, u32 arg);
int fext_args_out_size(const struct fuse_req *req, u32 arg);

/* kfuncs.c; only programs call these. */
int fuse_ext_read(struct fuse_ext_request *request, u32 arg, u32 offset,
		  void *dst, u32 dst__sz);
int fuse_ext_write(struct fuse_ext_request *request, u32 arg, u32 offset,
		   const void *src, u32 src__sz);
int fuse_ext_in_size(struct fuse_ext_request *request, u32 arg);
int fuse_ext_out_size(struct fuse_ext_request *request, u32 arg);

#endif
