/* SPDX-License-Identifier: GPL-2.0 */
/*
 * iomap's interface changes between releases: operations get other arguments,
 * completions other structures. What is not tested is not built.
 */
#ifndef EXTMAP_COMPAT_H
#define EXTMAP_COMPAT_H

#include <linux/version.h>

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 12, 0) || LINUX_VERSION_CODE >= KERNEL_VERSION(6, 13, 0)
#error "shunt_extmap is tested with Linux 6.12 alone"
#endif

#endif
