// SPDX-License-Identifier: GPL-2.0
/* Registration of struct fuse_ext_ops as a BPF struct_ops type. */

#include <linux/bpf.h>
#include <linux/bpf_verifier.h>
#include <linux/btf.h>
#include <linux/module.h>

#include "private.h"

static int fext_handle_stub(struct fuse_ext_request *request)
{
	return FUSE_EXT_PASS;
}

static void fext_forget_stub(__u64 nodeid)
{
}

static struct fuse_ext_ops fext_stubs = {
	.handle = fext_handle_stub,
	.forget = fext_forget_stub,
};

static int fext_ops_init(struct btf *btf)
{
	return 0;
}

static bool fext_is_valid_access(int off, int size, enum bpf_access_type type,
				 const struct bpf_prog *prog,
				 struct bpf_insn_access_aux *info)
{
	return bpf_tracing_btf_ctx_access(off, size, type, prog, info);
}

static const struct bpf_func_proto *fext_func_proto(enum bpf_func_id id,
						    const struct bpf_prog *prog)
{
	return bpf_base_func_proto(id, prog);
}

/* No btf_struct_access: programs may read the fields of a request, not write them. */
static const struct bpf_verifier_ops fext_verifier_ops = {
	.get_func_proto = fext_func_proto,
	.is_valid_access = fext_is_valid_access,
};

/* Programs run under spinlocks and RCU, so they must not sleep. */
static int fext_check_member(const struct btf_type *t, const struct btf_member *member,
			     const struct bpf_prog *prog)
{
	return prog->sleepable ? -EINVAL : 0;
}

static int fext_init_member(const struct btf_type *t, const struct btf_member *member,
			    void *kdata, const void *udata)
{
	const struct fuse_ext_ops *from = udata;
	struct fuse_ext_ops *to = kdata;

	switch (__btf_member_bit_offset(t, member) / 8) {
	case offsetof(struct fuse_ext_ops, fd):
		to->fd = from->fd;
		return 1;
	case offsetof(struct fuse_ext_ops, flags):
		if (from->flags)
			return -EINVAL;
		return 1;
	case offsetof(struct fuse_ext_ops, op_mask):
		to->op_mask = from->op_mask;
		return 1;
	}
	return 0;
}

static int fext_validate(void *kdata)
{
	const struct fuse_ext_ops *prog = kdata;

	return prog->handle ? 0 : -EINVAL;
}

static int fext_reg(void *kdata, struct bpf_link *link)
{
	return fext_attach(kdata);
}

static void fext_unreg(void *kdata, struct bpf_link *link)
{
	fext_detach(kdata);
}

static int fext_update(void *kdata, void *old_kdata, struct bpf_link *link)
{
	return fext_replace(kdata, old_kdata);
}

static struct bpf_struct_ops fext_struct_ops = {
	.verifier_ops = &fext_verifier_ops,
	.init = fext_ops_init,
	.check_member = fext_check_member,
	.init_member = fext_init_member,
	.validate = fext_validate,
	.reg = fext_reg,
	.unreg = fext_unreg,
	.update = fext_update,
	.cfi_stubs = &fext_stubs,
	.owner = THIS_MODULE,
	.name = "fuse_ext_ops",
};

int fext_struct_ops_register(void)
{
	return register_bpf_struct_ops(&fext_struct_ops, fuse_ext_ops);
}
