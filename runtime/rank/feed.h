/* What the model sees of the data: one micro-batch after another, read by the loader and brought to
 * the device. All tensor ranks of a data rank read the same rows. */
#ifndef TANDEM_RUNTIME_RANK_FEED_H
#define TANDEM_RUNTIME_RANK_FEED_H

#include "base/roots.h"
#include "kernels/device.h"
#include "proto/names.h"
#include "runtime/data/loader.h"
#include "runtime/layers/model.h"

struct feed;

struct feed_options {
    const Plan *plan; /* borrowed, as all here */
    int32_t rank;
    const struct roots *roots; /* for the open alone */
    struct device *dev;
    struct stream *compute;
    struct arenas *arenas; /* where a micro-batch lies */
};

int feed_open(struct feed **out, const struct feed_options *options, struct error *err);
/* Compute has come to its end (synced). */
void feed_close(struct feed *f);

/* *out lies in device memory until the next call. step counts from 1, micro_batch from 0. */
int feed_read(struct feed *f, int64_t step, int64_t micro_batch, struct batch *out,
              struct error *err);
/* For what has to be counted of a step. */
struct loader *feed_loader(const struct feed *f);

#endif
