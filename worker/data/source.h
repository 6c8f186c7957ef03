/* Where images come from: the samples of a training or validation set, read one by one by any
 * number of threads. Implemented by sets in memory (dataset.h), folders of pictures, caches, and
 * shards.
 *
 * A sample is its index, 0 to count - 1. Its augmentation depends only on the source's seed, the
 * epoch and the index, so the same sample of the same epoch has the same bytes, whatever thread or
 * rank reads it, and in whatever order. */
#ifndef WORKER_DATA_SOURCE_H
#define WORKER_DATA_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "worker/data/dataset.h"

struct source;

/* A picture file in memory. */
struct source_file {
    const uint8_t *bytes;
    size_t byte_count;
    const char *name; /* for errors */
    int64_t label;
};

struct source_ops {
    /* What one thread needs to read: buffers, decoders. NULL functions: nothing is needed, and
     * `reader` is NULL. Errors: STATUS_MEMORY, STATUS_LIBRARY. */
    enum status (*reader_new)(struct source *source, void **reader, struct err *err);
    void (*reader_free)(void *reader);
    /* Reads sample `index` as it is in `epoch`. Calls with different readers may run at the same
     * time.
     *   image: [height][width][channels] bytes of source->shape, written
     *   label: below source->shape.classes
     * Errors: STATUS_BAD_INPUT, STATUS_NOT_FOUND, STATUS_TOO_BIG, STATUS_UNSUPPORTED (this sample
     * cannot be read: err names the file and why; others can), anything else (the source cannot be
     * read). */
    enum status (*read)(struct source *source, void *reader, uint64_t epoch, int64_t index,
                        uint8_t *image, int64_t *label, struct err *err);
    void (*close)(struct source *source);
    /* The file of sample `index`; valid until the next call with this reader. NULL: the samples are
     * not picture files. Errors: as read(). */
    enum status (*read_file)(struct source *source, void *reader, int64_t index,
                             struct source_file *file, struct err *err);
    /* The label of sample `index`, without reading it. NULL: it is in the sample. */
    int64_t (*label)(const struct source *source, int64_t index);
};

/* The first member of every source's own struct. */
struct source {
    const struct source_ops *ops;
    struct dataset_shape shape; /* of what read() writes */
    size_t count;
    const char *const *class_names; /* [shape.classes], owned by the source; NULL: none */
    uint64_t hash; /* of the set's names and labels (hash.h), to recognise the set; 0: unknown */
};

static inline size_t source_image_bytes(const struct source *source)
{
    return (size_t)source->shape.channels * source->shape.height * source->shape.width;
}

/* Whether a read with this status says that one sample cannot be read, and others can. */
static inline bool source_is_of_sample(enum status status)
{
    return status == STATUS_BAD_INPUT || status == STATUS_NOT_FOUND || status == STATUS_TOO_BIG ||
           status == STATUS_UNSUPPORTED;
}

static inline enum status source_reader_new(struct source *source, void **reader, struct err *err)
{
    *reader = NULL;
    return source->ops->reader_new != NULL ? source->ops->reader_new(source, reader, err)
                                           : STATUS_OK;
}

static inline void source_reader_free(struct source *source, void **reader)
{
    if (*reader != NULL && source->ops->reader_free != NULL)
        source->ops->reader_free(*reader);
    *reader = NULL;
}

static inline void source_free(struct source **source)
{
    if (*source != NULL)
        (*source)->ops->close(*source);
    *source = NULL;
}

#endif
