/* SPDX-License-Identifier: GPL-2.0 */
/* Common definitions of all programs. Needs only the kernel's UAPI headers. */
#ifndef SHUNT_FUSE_EXT_BPF_H
#define SHUNT_FUSE_EXT_BPF_H

#include <linux/types.h>
#include <linux/fuse.h>
#include <linux/errno.h>
#include <stddef.h>

#include "fuse_ext.h"

#define SEC(name) __attribute__((section(name), used))
#define __uint(name, value) int (*name)[value]
#define __type(name, type) typeof(type) *name
#define __inline static inline __attribute__((always_inline))
#define __ksym __attribute__((section(".ksyms")))

#define BPF_MAP_TYPE_HASH 1
#define BPF_MAP_TYPE_ARRAY 2
#define BPF_F_MMAPABLE (1U << 10)

/* BPF helpers, by their numbers in the kernel. */
static void *(*bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*bpf_map_delete_elem)(void *map, const void *key) = (void *)3;
static __u64 (*bpf_ktime_get_ns)(void) = (void *)5;

extern int fuse_ext_read(struct fuse_ext_request *request, __u32 arg, __u32 offset,
			 void *dst, __u32 dst__sz) __ksym;
extern int fuse_ext_write(struct fuse_ext_request *request, __u32 arg, __u32 offset,
			  const void *src, __u32 src__sz) __ksym;
extern int fuse_ext_in_size(struct fuse_ext_request *request, __u32 arg) __ksym;
extern int fuse_ext_out_size(struct fuse_ext_request *request, __u32 arg) __ksym;

#define READ_ONCE(x) (*(volatile typeof(x) *)&(x))
#define BIT(n) (1ULL << (n))

#endif
