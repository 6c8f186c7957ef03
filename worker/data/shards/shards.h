/* Pictures in tar shards, in WebDataset's layout: the files of one sample have the same name up to
 * the first dot of its last part, `key.jpg` and `key.cls` (the label as a number), one after the
 * other. Or tars of a folder of classes: `class/name.jpg`, classes sorted by name; a set of tars is
 * of this kind if its first shard has no .cls.
 *
 * All shards are indexed once, at the start (tar.h). Then each sample is read at its offset.
 * Left-out entries are counted (a sample without label or picture, a repeated name in one shard,
 * files that tar.h refuses).
 *
 * Samples are numbered in the order of the shards' names. shards_order() gives an order that reads
 * the shards one after another: the shards are in random order, the samples are shuffled in a
 * window that moves over them. */
#ifndef WORKER_DATA_SHARDS_SHARDS_H
#define WORKER_DATA_SHARDS_SHARDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "worker/data/picture/picture.h"
#include "worker/data/source.h"
#include "worker/data/shards/tar.h"

#define SHARDS_MAX 100000U

struct shard_list {
    char **paths; /* sorted by name */
    size_t count;
};

/* Finds the shards that DATA names: a folder, or a pattern of names with `{a..b}` (numbers; leading
 * zeros of `a` are kept) and `{x,y}`. In a folder: `train*.tar` or those in `train/`, `val*.tar` or
 * those in `val/`. In a pattern: shards whose name, or whose folder's name, begins with "val" are
 * for validation. An empty list is no error. Errors: STATUS_BAD_INPUT (the pattern),
 * STATUS_TOO_BIG, STATUS_IO, STATUS_MEMORY. */
enum status shard_list_find(struct shard_list *list, const char *data, bool is_validation,
                            struct err *err);
void shard_list_free(struct shard_list *list);
/* Whether DATA is a pattern or the name of one tar, rather than a folder. */
bool shard_list_is_pattern(const char *data);

struct shards_options {
    struct picture_rules rules;
    uint64_t seed;
};

/* `like`: shards whose classes these shards have too, or NULL; borrowed for the call. Errors:
 * STATUS_NOT_FOUND, STATUS_BAD_INPUT (no sample; a shard is no whole tar; labels),
 * STATUS_UNSUPPORTED (compressed), STATUS_TOO_BIG, STATUS_IO, STATUS_MEMORY. */
enum status shards_open(struct source **source, const struct shard_list *list,
                        const struct shards_options *options, const struct source *like,
                        struct err *err);
/* Whether the source was made by shards_open(). */
bool shards_is(const struct source *source);
const struct tar_refusals *shards_refusals(const struct source *source);
/* order: [count], each sample once. It depends only on the seed, the epoch and the window. window:
 * 0 or 1: samples of a shard stay in their order. */
void shards_order(const struct source *source, uint64_t seed, uint64_t epoch, uint32_t window,
                  int64_t *order);

#endif
