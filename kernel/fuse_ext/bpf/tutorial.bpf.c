// SPDX-License-Identifier: GPL-2.0
/* Answers GETATTR with the attributes that the daemon stored in `known`, until they change. */

#include "fuse_ext_bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 2 << 16);
	__type(key, __u64);			/* node */
	__type(value, struct fuse_attr_out);
} known SEC(".maps");

SEC("struct_ops/handle")
int tutorial_handle(unsigned long long *ctx)
{
	struct fuse_ext_request *request = (void *)ctx[0];
	__u64 node = request->nodeid;
	struct fuse_attr_out *out;

	if (request->opcode != FUSE_GETATTR) {
		bpf_map_delete_elem(&known, &node);
		return FUSE_EXT_PASS;
	}
	out = bpf_map_lookup_elem(&known, &node);
	if (!out || fuse_ext_write(request, 0, 0, out, sizeof(*out)))
		return FUSE_EXT_PASS;
	return FUSE_EXT_ANSWER;
}

SEC(".struct_ops.link")
struct fuse_ext_ops tutorial = {
	.op_mask = BIT(FUSE_GETATTR) | BIT(FUSE_SETATTR) | BIT(FUSE_WRITE),
	.handle = (void *)tutorial_handle,
};

char _license[] SEC("license") = "GPL";
