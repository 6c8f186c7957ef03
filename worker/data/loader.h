/* Batches of one epoch, in order, gathered by a thread while the step before them runs. What is
 * given out does not depend on whether there is a thread. */
#ifndef WORKER_DATA_LOADER_H
#define WORKER_DATA_LOADER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "worker/data/dataset.h"

struct loader;

struct loader_options {
    uint32_t batch_max;
    bool in_background;
    bool as_bytes; /* as they are in the set, else as floats from 0 to 1 */
};

/* One of floats and bytes is NULL: [n][channels][height][width]. */
struct loader_batch {
    const float *floats;
    const uint8_t *bytes;
    const int64_t *labels; /* [n] */
    uint32_t n;
};

/* `set` is borrowed until loader_free, and is the loader's alone between loader_begin and the last
 * loader_next. */
enum status loader_new(struct loader **loader, struct dataset *set,
                       const struct loader_options *options, struct err *err);
void loader_free(struct loader **loader);

/* Begins with the images `indices` [count], borrowed until the next loader_begin or loader_free;
 * what was left of an earlier list is dropped. */
void loader_begin(struct loader *loader, const int64_t *indices, size_t count);
/* The next batch_max of them, or the rest; n == 0 at the end. Valid until the next call. */
struct loader_batch loader_next(struct loader *loader);

#endif
