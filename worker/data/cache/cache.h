/* A source around another one: its pictures are decoded once and kept in a file, the shorter side
 * brought to what the crop needs.
 *
 * What a training sees does not depend on whether the file was there: every picture is resized
 * first, then cropped, in the first epoch too. A picture whose shorter side is not above
 * `rules.resize` is kept as it is.
 *
 * Several processes of one machine may share the file. Whoever reads a picture that is not in it
 * decodes and adds it: the pixels are appended, then the picture's entry in the table is written,
 * with a checksum of both. So a picture is in the cache when all of it is. A process checks the pixels
 * at its first read; what is not right is decoded and added again.
 *
 * The file has a key: of the source (source->hash), its count, the size, and this format. A file
 * that cannot be made or added to (no room, no permission) is a warning; the training goes on
 * without it. */
#ifndef WORKER_DATA_CACHE_CACHE_H
#define WORKER_DATA_CACHE_CACHE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/status.h"
#include "worker/data/picture/picture.h"
#include "worker/data/source.h"

struct cache_options {
    struct picture_rules rules; /* `resize` is the shorter side of what is kept */
    bool plain_crop; /* a random square of `size`, without resampling, and a flip; `rules` are for
                        pictures that are too small for it */
    uint64_t seed;
    bool rebuild; /* begin anew: once for a job, if it has a number */
    uint64_t job; /* the same for all ranks of a job, and for no other; 0: none */
};

/* `source` has read_file(); it is owned, also on failure. path: NULL: no file, the same pictures.
 * Errors: STATUS_CONFLICT (a cache of other
 * data, or no cache at all), STATUS_BAD_INPUT (damaged), STATUS_MEMORY, and those of
 * source->reader_new(). */
enum status cache_open(struct source **cache, struct source *source, const char *path,
                       const struct cache_options *options, struct err *err);

/* How many pictures this process has read from the file, and how many it has decoded. */
struct cache_counts {
    uint64_t read, decoded, damaged;
    bool has_file; /* false: it could not be made, or no longer be added to */
};
struct cache_counts cache_counts(const struct source *cache);

#endif
