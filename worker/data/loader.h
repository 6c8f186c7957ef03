/* Batches of one epoch, in order. With a thread, the next batch is gathered while the current one
 * is in use. The batches are the same with and without a thread. */
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
    bool as_bytes; /* images as bytes, else as floats from 0 to 1 */
};

/* Images are [n][channels][height][width], as floats or as bytes; the other pointer is NULL. */
struct loader_batch {
    const float *floats;
    const uint8_t *bytes;
    const int64_t *labels; /* [n] */
    uint32_t n;
};

/* `set` is borrowed until loader_free(). Between loader_begin() and the last loader_next() nothing
 * else may read it. Errors: STATUS_MEMORY, STATUS_SYSTEM. */
enum status loader_new(struct loader **loader, struct dataset *set,
                       const struct loader_options *options, struct err *err);
void loader_free(struct loader **loader);

/* Starts over with the images `indices` [count], borrowed until the next loader_begin() or
 * loader_free(). The rest of an earlier list is dropped. */
void loader_begin(struct loader *loader, const int64_t *indices, size_t count);
/* The next batch of at most batch_max images; n == 0 at the end. Valid until the next call. */
struct loader_batch loader_next(struct loader *loader);

#endif
