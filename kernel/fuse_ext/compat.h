/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Differences between the kernels that the module knows. layout.h has the
 * structures of the one that the module is built for.
 */
#ifndef FEXT_COMPAT_H
#define FEXT_COMPAT_H

#include "layout.h"

#ifdef FEXT_HAS_CHAN

static inline struct fuse_iqueue *fext_queue(struct fuse_conn *fc)
{
	return &fc->chan->iq;
}

/* The pointer has its low bit set once the descriptor was closed. */
static inline struct fuse_conn *fext_device_conn(struct fuse_dev *fud)
{
	/* Pairs with the cmpxchg() in fuse_dev_install_with_pq(). */
	struct fuse_chan *chan = smp_load_acquire(&fud->chan);

	return chan && !((unsigned long)chan & 7) ? chan->conn : NULL;
}

#else

static inline struct fuse_iqueue *fext_queue(struct fuse_conn *fc)
{
	return &fc->iq;
}

static inline struct fuse_conn *fext_device_conn(struct fuse_dev *fud)
{
	return fud->fc;
}

#endif

/* Descriptions of the buffers of a request: both kinds have a length and an offset. */
#ifdef FEXT_HAS_PAGES

static inline unsigned int fext_buffers(const struct fuse_args_pages *ap)
{
	return ap->uses_folios ? ap->num_folios : ap->num_pages;
}

static inline u32 fext_buffer_length(const struct fuse_args_pages *ap, unsigned int i)
{
	return ap->uses_folios ? ap->folio_descs[i].length : ap->descs[i].length;
}

static inline u32 fext_buffer_offset(const struct fuse_args_pages *ap, unsigned int i)
{
	return ap->uses_folios ? ap->folio_descs[i].offset : ap->descs[i].offset;
}

static inline void *fext_buffer_map(const struct fuse_args_pages *ap, unsigned int i, u32 at)
{
	if (ap->uses_folios)
		return kmap_local_folio(ap->folios[i], at);
	return kmap_local_page(ap->pages[i]) + at;
}

#else

static inline unsigned int fext_buffers(const struct fuse_args_pages *ap)
{
	return ap->num_folios;
}

static inline u32 fext_buffer_length(const struct fuse_args_pages *ap, unsigned int i)
{
	return ap->descs[i].length;
}

static inline u32 fext_buffer_offset(const struct fuse_args_pages *ap, unsigned int i)
{
	return ap->descs[i].offset;
}

static inline void *fext_buffer_map(const struct fuse_args_pages *ap, unsigned int i, u32 at)
{
	return kmap_local_folio(ap->folios[i], at);
}

#endif

#endif
