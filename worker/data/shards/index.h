/* Which samples a list of shards has: private to worker/data/shards/. */
#ifndef WORKER_DATA_SHARDS_INDEX_H
#define WORKER_DATA_SHARDS_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/buf.h"
#include "common/status.h"
#include "worker/data/shards/tar.h"

#define INDEX_CLASSES_MAX 65536U
#define INDEX_SAMPLES_MAX 100000000U

struct index_sample {
    uint64_t offset;
    uint64_t name; /* of the picture, in index.names */
    uint32_t byte_count;
    uint32_t shard;
    uint32_t label;
    bool is_double; /* its key was seen before in this shard: it is left out at the shard's end */
};

struct index {
    struct index_sample *samples; /* [count], by shard, then by offset */
    size_t count, capacity;
    struct buf names;    /* strings with their NUL */
    bool is_folder_like; /* class/name.jpg; known after the first shard */
    char **classes;      /* [name_count], sorted; only of folder-like shards */
    uint32_t name_count;
    uint32_t class_count; /* after index_finish(): of the training set */
    struct tar_refusals refusals;
};

/* Adds the samples of shard number `shard`, open as `fd`. Errors as tar_walk()'s. */
enum status index_add(struct index *index, int fd, const char *path, uint32_t shard,
                      struct err *err);
/* After the last shard: gives folder-like samples the labels of their classes, sorted, or those of
 * `like` (NULL: none). Errors: STATUS_BAD_INPUT (a class that `like` does not have),
 * STATUS_TOO_BIG, STATUS_MEMORY. */
enum status index_finish(struct index *index, const struct index *like, struct err *err);
void index_close(struct index *index);
const char *index_name(const struct index *index, const struct index_sample *sample);

#endif
