/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The iomap interface changes between releases (arguments of operations,
 * structures of completions). Untested kernel versions are refused.
 */
#ifndef EXTMAP_COMPAT_H
#define EXTMAP_COMPAT_H

#include <linux/version.h>

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 12, 0) || LINUX_VERSION_CODE >= KERNEL_VERSION(6, 13, 0)
#error "shunt_extmap is tested with Linux 6.12 alone"
#endif

#endif
