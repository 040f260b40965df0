// SPDX-License-Identifier: GPL-2.0
/* Functions that programs may call. The verifier checks every pointer and its size. */

#include <linux/bpf.h>
#include <linux/btf.h>
#include <linux/btf_ids.h>
#include <linux/module.h>

#include "args.h"

/* Arguments are always trusted since the flag was removed. */
#ifndef KF_TRUSTED_ARGS
#define KF_TRUSTED_ARGS 0
#endif

__bpf_kfunc_start_defs();

/* Reads argument @arg at @offset. Returns the number of bytes copied, or a negative errno. */
__bpf_kfunc int fuse_ext_read(struct fuse_ext_request *request, u32 arg, u32 offset,
			      void *dst, u32 dst__sz)
{
	return fext_args_read(request->req, arg, offset, dst, dst__sz);
}

/* Writes reply argument @arg: appends to or overwrites its written part. */
__bpf_kfunc int fuse_ext_write(struct fuse_ext_request *request, u32 arg, u32 offset,
			       const void *src, u32 src__sz)
{
	return fext_args_write(request, arg, offset, src, src__sz);
}

__bpf_kfunc int fuse_ext_in_size(struct fuse_ext_request *request, u32 arg)
{
	return fext_args_in_size(request->req, arg);
}

/* Returns the size of the caller's buffer, for arguments of variable length. */
__bpf_kfunc int fuse_ext_out_size(struct fuse_ext_request *request, u32 arg)
{
	return fext_args_out_size(request->req, arg);
}

__bpf_kfunc_end_defs();

BTF_KFUNCS_START(fext_kfunc_ids)
BTF_ID_FLAGS(func, fuse_ext_read, KF_TRUSTED_ARGS)
BTF_ID_FLAGS(func, fuse_ext_write, KF_TRUSTED_ARGS)
BTF_ID_FLAGS(func, fuse_ext_in_size, KF_TRUSTED_ARGS)
BTF_ID_FLAGS(func, fuse_ext_out_size, KF_TRUSTED_ARGS)
BTF_KFUNCS_END(fext_kfunc_ids)

static const struct btf_kfunc_id_set fext_kfunc_set = {
	.owner = THIS_MODULE,
	.set = &fext_kfunc_ids,
};

int fext_kfuncs_register(void)
{
	return register_btf_kfunc_id_set(BPF_PROG_TYPE_STRUCT_OPS, &fext_kfunc_set);
}
