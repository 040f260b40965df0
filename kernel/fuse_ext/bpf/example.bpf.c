// SPDX-License-Identifier: GPL-2.0
/*
 * Example of a program: denies OPEN and OPENDIR to the users in a map.
 *
 * The daemon, or bpftool, adds users to `denied` at run time.
 */

#include "fuse_ext_bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);	/* uid */
	__type(value, __u32);	/* requests refused */
} denied SEC(".maps");

SEC("struct_ops/handle")
int example_handle(unsigned long long *ctx)
{
	struct fuse_ext_request *request = (void *)ctx[0];
	__u32 uid = request->uid;
	__u32 *refused = bpf_map_lookup_elem(&denied, &uid);

	if (!refused)
		return FUSE_EXT_PASS;
	__sync_fetch_and_add(refused, 1);
	return -EACCES;
}

SEC(".struct_ops.link")
struct fuse_ext_ops example = {
	.op_mask = BIT(FUSE_OPEN) | BIT(FUSE_OPENDIR),
	.handle = (void *)example_handle,
};

char _license[] SEC("license") = "GPL";
