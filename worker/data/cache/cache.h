/* A source around another one: it decodes the pictures once and keeps them in a file, with the
 * shorter side reduced to what the crop needs.
 *
 * The images that training gets do not depend on whether the file existed: every picture is resized
 * first, then cropped, in the first epoch too. A picture whose shorter side is not above
 * `rules.resize` is kept as it is.
 *
 * Several processes of one machine may share the file. A process that reads a picture which is not
 * in the file decodes and adds it: the pixels are appended, then the picture's entry in the table
 * is written, with a checksum of both. So a picture is in the cache only when all of it is. A
 * process checks the pixels at its first read; a damaged picture is decoded and added again.
 *
 * The file has a key: the source (source->hash), its count, the size, and this format's version. If
 * the file cannot be created or extended (no room, no permission), a warning is logged and the
 * training goes on without it. */
#ifndef WORKER_DATA_CACHE_CACHE_H
#define WORKER_DATA_CACHE_CACHE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/status.h"
#include "worker/data/picture/picture.h"
#include "worker/data/source.h"

struct cache_options {
    struct picture_rules rules; /* `resize`: the shorter side of a kept picture */
    bool plain_crop; /* a random square of `size`, without resampling, and a flip; `rules` apply to
                        pictures that are too small for this */
    uint64_t seed;
    bool rebuild; /* start with an empty file, once for each `job`; every time if job is 0 */
    uint64_t job; /* the same for all ranks of a job, different for every other job; 0: none */
};

/* `source` has read_file(); it is owned, also on failure. path: NULL: no file, the same pictures.
 * Errors: STATUS_CONFLICT (a cache of other data, or not a cache at all), STATUS_BAD_INPUT
 * (damaged), STATUS_MEMORY, and those of source->reader_new(). */
enum status cache_open(struct source **cache, struct source *source, const char *path,
                       const struct cache_options *options, struct err *err);

/* How many pictures this process has read from the file, and how many it has decoded. */
struct cache_counts {
    uint64_t read, decoded, damaged;
    bool has_file; /* false: the file could not be created, or can no longer be extended */
};
struct cache_counts cache_counts(const struct source *cache);

#endif
