/* Batches of one epoch, in order, gathered ahead by threads.
 *
 * The threads share one bounded queue of images, so that a slow image delays only its own batch.
 * Batches and their order are the same for every number of threads, 0 included. While the caller
 * uses a batch, threads prepare up to LOADER_AHEAD further batches, and one more for each batch
 * that the threads fill at the same time.
 *
 * A sample that cannot be read (source_is_of_sample) is replaced by the next readable one of the
 * set (index + 1, index + 2, ..., the first after the last); or left out, which makes its batch
 * smaller; or ends the loading. */
#ifndef WORKER_DATA_LOADER_H
#define WORKER_DATA_LOADER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "worker/data/source.h"

/* Batches that are made ready while one is in use. */
#define LOADER_AHEAD 2

struct loader;

enum loader_unreadable { LOADER_REPLACES, LOADER_LEAVES_OUT, LOADER_FAILS };

/* Where batches are stored, if not in the loader's own memory. Called by the thread that calls the
 * loader. */
struct loader_memory {
    void *(*allocate)(void *user, size_t bytes); /* NULL: out of memory */
    void (*release)(void *user, void *memory);
    /* Waits until no one reads a batch in `memory` any more. NULL: no reader is left once the batch
     * is no longer valid (loader_next). */
    enum status (*settle)(void *user, const void *memory, struct err *err);
    void *user;
    uint32_t held; /* settle is called this many batches later */
};

struct loader_options {
    uint32_t batch_max;
    uint32_t threads; /* 0: batches are gathered in loader_next */
    enum loader_unreadable unreadable;
    const struct loader_memory *memory; /* copied; NULL: the loader's own */
};

struct loader_batch {
    const uint8_t *images; /* [n][height][width][channels] */
    const int64_t *labels; /* [n] */
    uint32_t n;
};

/* `source` is borrowed until loader_free(). Errors: STATUS_MEMORY, STATUS_SYSTEM, those of the
 * source's readers. */
enum status loader_new(struct loader **loader, struct source *source,
                       const struct loader_options *options, struct err *err);
/* Returns when the images that threads are reading are done; starts no further reads. */
void loader_free(struct loader **loader);

/* Starts over with the samples `indices` [count] as they are in `epoch`, borrowed until the next
 * loader_begin() or loader_free(). The rest of an earlier list is dropped. */
void loader_begin(struct loader *loader, uint64_t epoch, const int64_t *indices, size_t count);
/* The next batch of at most batch_max images; n == 0 at the end. The batch is valid until the next
 * call; its images stay for memory.held calls more, also across a loader_begin(). After an error
 * the list is at its end. Errors: those of the source; with LOADER_FAILS those of a sample; a set
 * without any readable sample; those of settle. */
enum status loader_next(struct loader *loader, struct loader_batch *batch, struct err *err);

/* How many samples of the batches since loader_begin() could not be read. */
size_t loader_unreadable_count(const struct loader *loader);
/* The same by class: [source->shape.classes]; of what was read so far. NULL: the source does not know it. */
const uint32_t *loader_unreadable_classes(const struct loader *loader);
/* Takes one reason that was not taken yet. A sample gets a reason only once in the loader's life,
 * and at most LOADER_REASONS samples get one. */
#define LOADER_REASONS 10
bool loader_take_reason(struct loader *loader, struct err *reason);

#endif
