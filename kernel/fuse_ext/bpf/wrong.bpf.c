// SPDX-License-Identifier: GPL-2.0
/*
 * For tests: invalid replies that the module must refuse. `how` selects the
 * kind; each of these requests must be passed on to the daemon.
 */

#include "fuse_ext_bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} how SEC(".maps");

SEC("struct_ops/handle")
int wrong_handle(unsigned long long *ctx)
{
	struct fuse_ext_request *request = (void *)ctx[0];
	char bytes[256] = {};
	__u32 zero = 0;
	__u64 *choice = bpf_map_lookup_elem(&how, &zero);

	switch (choice ? *choice : 0) {
	case 1:		/* would disable the operation */
		return -ENOSYS;
	case 2:		/* not a valid errno of a reply */
		return -512;
	case 3:		/* nothing written */
		return FUSE_EXT_ANSWER;
	case 4:		/* incomplete reply */
		fuse_ext_write(request, 0, 0, bytes, 16);
		return FUSE_EXT_ANSWER;
	case 5:		/* out of bounds, and with a gap */
		fuse_ext_write(request, 0, 0, bytes, sizeof(bytes));
		fuse_ext_write(request, 0, 64, bytes, 40);
		fuse_ext_write(request, 3, 0, bytes, 8);
		fuse_ext_write(request, 0, ~0U, bytes, 8);
		fuse_ext_read(request, 7, 0, bytes, 8);
		fuse_ext_read(request, 0, ~0U, bytes, 8);
		return FUSE_EXT_ANSWER;
	case 6:		/* not a verdict */
		return 12345;
	}
	return FUSE_EXT_PASS;
}

SEC(".struct_ops.link")
struct fuse_ext_ops wrong = {
	.op_mask = ~0ULL,
	.handle = (void *)wrong_handle,
};

char _license[] SEC("license") = "GPL";
