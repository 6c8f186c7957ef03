/* The index of a list of shards. See index.h. */
#include "worker/data/shards/index.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "worker/data/fileio.h"

enum { LABEL_BYTES_MAX = 16 };

/* One shard while it is read. */
struct shard_walk {
    struct index *index;
    const char *path;
    int fd;
    uint32_t shard;
    size_t first;                     /* index of this shard's first sample */
    char key[TAR_NAME_BYTES_MAX + 1]; /* of the files that make up the current sample; "": none */
    bool has_picture, has_label;
    struct index_sample sample;
};

const char *index_name(const struct index *index, const struct index_sample *sample)
{
    return index->names.bytes + sample->name;
}

static enum status add_sample(struct index *index, const struct index_sample *sample,
                              struct err *err)
{
    if (index->count >= INDEX_SAMPLES_MAX)
        return err_set(err, STATUS_TOO_BIG, 0, "the shards have over %u samples",
                       INDEX_SAMPLES_MAX);
    if (index->count == index->capacity) {
        size_t capacity = index->capacity > 0 ? 2 * index->capacity : 1024;
        struct index_sample *more = realloc(index->samples, capacity * sizeof *more);

        if (more == NULL)
            return err_set(err, STATUS_MEMORY, 0, "no memory for %zu samples", capacity);
        index->samples = more;
        index->capacity = capacity;
    }
    index->samples[index->count++] = *sample;
    return STATUS_OK;
}

/* -- names -- */

static const char *last_part(const char *name)
{
    const char *slash = strrchr(name, '/');

    return slash != NULL ? slash + 1 : name;
}

/* torchvision's extensions. */
static bool is_picture(const char *ending)
{
    static const char *const endings[] = {"jpg", "jpeg", "png",  "ppm", "bmp",
                                          "pgm", "tif",  "tiff", "webp"};

    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++)
        if (strcasecmp(ending, endings[i]) == 0)
            return true;
    return false;
}

/* The length of a name's key: everything before the first dot of its last part, as WebDataset
 * splits, or before the last dot. */
static size_t key_length(const char *name, bool first_dot)
{
    const char *part = last_part(name);
    const char *dot = first_dot ? strchr(part, '.') : strrchr(part, '.');

    return dot != NULL ? (size_t)(dot - name) : strlen(name);
}

static const char *ending_of(const char *name, size_t key_bytes)
{
    return name[key_bytes] == '.' ? name + key_bytes + 1 : "";
}

/* -- samples of key.jpg and key.cls -- */

static enum status close_group(struct shard_walk *walk, struct err *err)
{
    enum status status = STATUS_OK;

    if (walk->has_picture && walk->has_label)
        status = add_sample(walk->index, &walk->sample, err);
    else if (walk->has_picture)
        tar_refuse(&walk->index->refusals, walk->path, walk->key,
                   "no label: expected a .cls with a number beside the picture");
    else if (walk->has_label)
        tar_refuse(&walk->index->refusals, walk->path, walk->key, "a label without a picture");
    walk->has_picture = walk->has_label = false;
    walk->key[0] = '\0';
    return status;
}

/* Parses a whole number; white space may follow. */
static bool parse_label(const char *text, size_t byte_count, uint32_t *label)
{
    uint64_t value = 0;
    size_t i = 0;

    for (; i < byte_count && text[i] >= '0' && text[i] <= '9'; i++) {
        value = value * 10 + (uint64_t)(text[i] - '0');
        if (value >= INDEX_CLASSES_MAX)
            return false;
    }
    if (i == 0)
        return false;
    for (; i < byte_count; i++)
        if (strchr(" \t\r\n", text[i]) == NULL || text[i] == '\0')
            return false;
    *label = (uint32_t)value;
    return true;
}

static enum status take_label(struct shard_walk *walk, const struct tar_member *member,
                              struct err *err)
{
    char text[LABEL_BYTES_MAX];
    uint32_t label;
    enum status status = STATUS_OK;

    if (member->byte_count <= sizeof text)
        status =
            fileio_read_at(walk->fd, walk->path, text, member->byte_count, member->offset, err);
    if (status != STATUS_OK)
        return status;
    if (member->byte_count > sizeof text || !parse_label(text, member->byte_count, &label)) {
        tar_refuse(&walk->index->refusals, walk->path, member->name,
                   "expected a class as a number, 0 to 65535");
        return STATUS_OK;
    }
    walk->sample.label = label;
    walk->has_label = true;
    return STATUS_OK;
}

static struct index_sample sample_of(struct shard_walk *walk, const struct tar_member *member)
{
    struct buf *names = &walk->index->names;
    const struct index_sample sample = {.offset = member->offset,
                                        .name = names->byte_count,
                                        .byte_count = (uint32_t)member->byte_count,
                                        .shard = walk->shard};

    buf_add(names, member->name, strlen(member->name) + 1);
    return sample;
}

static void take_picture(struct shard_walk *walk, const struct tar_member *member)
{
    const uint32_t label = walk->sample.label;

    if (walk->has_picture) {
        tar_refuse(&walk->index->refusals, walk->path, member->name,
                   "a second picture of its sample");
        return;
    }
    walk->sample = sample_of(walk, member);
    walk->sample.label = label;
    walk->has_picture = true;
}

static enum status take_keyed(void *user, const struct tar_member *member, struct err *err)
{
    struct shard_walk *walk = user;
    const size_t key_bytes = key_length(member->name, true);
    const char *ending = ending_of(member->name, key_bytes);
    enum status status = STATUS_OK;

    if (strlen(walk->key) != key_bytes || memcmp(walk->key, member->name, key_bytes) != 0) {
        status = close_group(walk, err);
        (void)snprintf(walk->key, sizeof walk->key, "%.*s", (int)key_bytes, member->name);
    }
    if (status == STATUS_OK && strcasecmp(ending, "cls") == 0)
        status = take_label(walk, member, err);
    else if (status == STATUS_OK && is_picture(ending))
        take_picture(walk, member);
    return status;
}

/* -- samples of class/name.jpg -- */

/* The index of a class in the sorted `classes`; if it is not there, the index at which to insert
 * it. */
static uint32_t class_place(const struct index *index, const char *name, size_t name_bytes,
                            bool *found)
{
    uint32_t low = 0, high = index->name_count;

    *found = false;
    while (low < high && !*found) {
        uint32_t middle = (low + high) / 2;
        const char *there = index->classes[middle];
        size_t there_bytes = strlen(there);
        int order = memcmp(there, name, there_bytes < name_bytes ? there_bytes : name_bytes);

        if (order == 0)
            order = (there_bytes > name_bytes) - (there_bytes < name_bytes);
        *found = order == 0;
        low = order < 0 ? middle + 1 : order == 0 ? middle : low;
        high = order > 0 ? middle : high;
    }
    return low;
}

static enum status add_class(struct index *index, const char *name, size_t name_bytes,
                             struct err *err)
{
    bool found;
    uint32_t at = class_place(index, name, name_bytes, &found);
    char **more;

    if (found)
        return STATUS_OK;
    if (index->name_count >= INDEX_CLASSES_MAX)
        return err_set(err, STATUS_TOO_BIG, 0, "the shards have over %u classes",
                       INDEX_CLASSES_MAX);
    more = realloc(index->classes, (index->name_count + 1) * sizeof *more);
    if (more == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory for the names of classes");
    index->classes = more;
    memmove(more + at + 1, more + at, (index->name_count - at) * sizeof *more);
    more[at] = strndup(name, name_bytes);
    if (more[at] == NULL) {
        memmove(more + at, more + at + 1, (index->name_count - at) * sizeof *more);
        return err_set(err, STATUS_MEMORY, 0, "no memory for the names of classes");
    }
    index->name_count++;
    return STATUS_OK;
}

/* The folder directly above the file. False: there is none. */
static bool class_of(const char *name, const char **class_name, size_t *class_bytes)
{
    const char *end = strrchr(name, '/'), *begin = end;

    if (end == NULL || end == name)
        return false;
    while (begin > name && begin[-1] != '/')
        begin--;
    *class_name = begin;
    *class_bytes = (size_t)(end - begin);
    return *class_bytes > 0;
}

static enum status take_foldered(void *user, const struct tar_member *member, struct err *err)
{
    struct shard_walk *walk = user;
    const char *class_name;
    size_t class_bytes;
    enum status status;

    if (!is_picture(ending_of(member->name, key_length(member->name, false))))
        return STATUS_OK;
    if (!class_of(member->name, &class_name, &class_bytes)) {
        tar_refuse(&walk->index->refusals, walk->path, member->name,
                   "no label: expected CLASS/NAME.jpg, or a .cls beside NAME.jpg");
        return STATUS_OK;
    }
    status = add_class(walk->index, class_name, class_bytes, err);
    walk->sample = sample_of(walk, member);
    return status == STATUS_OK ? add_sample(walk->index, &walk->sample, err) : status;
}

/* -- a shard -- */

/* Two samples of one shard with the same key are duplicates. */
static int compare_keys(const struct index *index, size_t a, size_t b)
{
    const char *left = index_name(index, &index->samples[a]);
    const char *right = index_name(index, &index->samples[b]);
    size_t left_bytes = index->is_folder_like ? strlen(left) : key_length(left, true);
    size_t right_bytes = index->is_folder_like ? strlen(right) : key_length(right, true);
    int order = memcmp(left, right, left_bytes < right_bytes ? left_bytes : right_bytes);

    return order != 0 ? order : (left_bytes > right_bytes) - (left_bytes < right_bytes);
}

static int by_key(const void *a, const void *b, void *user)
{
    const size_t x = *(const size_t *)a, y = *(const size_t *)b;
    int order = compare_keys(user, x, y);

    return order != 0 ? order : (x > y) - (x < y);
}

/* Of several samples with one key the first in the shard is kept. */
static enum status drop_doubles(struct shard_walk *walk, struct err *err)
{
    struct index *index = walk->index;
    const size_t n = index->count - walk->first;
    size_t *order = calloc(n + 1, sizeof *order), kept = walk->first;

    if (order == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory to compare %zu names", n);
    for (size_t i = 0; i < n; i++)
        order[i] = walk->first + i;
    qsort_r(order, n, sizeof *order, by_key, index);
    for (size_t i = 1; i < n; i++)
        if (compare_keys(index, order[i - 1], order[i]) == 0)
            index->samples[order[i]].is_double = true;
    free(order);
    for (size_t i = walk->first; i < index->count; i++) {
        if (index->samples[i].is_double)
            tar_refuse(&index->refusals, walk->path, index_name(index, &index->samples[i]),
                       "a sample of this name was in the shard before");
        else
            index->samples[kept++] = index->samples[i];
    }
    index->count = kept;
    return STATUS_OK;
}

static enum status look_for_label(void *user, const struct tar_member *member, struct err *err)
{
    bool *found = user;

    (void)err;
    *found =
        *found || strcasecmp(ending_of(member->name, key_length(member->name, true)), "cls") == 0;
    return STATUS_OK;
}

enum status index_add(struct index *index, int fd, const char *path, uint32_t shard,
                      struct err *err)
{
    struct shard_walk walk = {
        .index = index, .path = path, .fd = fd, .shard = shard, .first = index->count};
    enum status status = STATUS_OK;

    if (shard == 0) {
        struct tar_refusals ignored = {0};
        bool has_label = false;

        status = tar_walk(fd, path, look_for_label, &has_label, &ignored, err);
        index->is_folder_like = !has_label;
    }
    if (status == STATUS_OK)
        status = tar_walk(fd, path, index->is_folder_like ? take_foldered : take_keyed, &walk,
                          &index->refusals, err);
    if (status == STATUS_OK)
        status = close_group(&walk, err);
    if (status == STATUS_OK && index->names.failed)
        status =
            err_set(err, STATUS_MEMORY, 0, "no memory for the names of %zu samples", index->count);
    return status == STATUS_OK ? drop_doubles(&walk, err) : status;
}

/* -- all shards -- */

static enum status label_foldered(struct index *index, const struct index *classes, struct err *err)
{
    for (size_t i = 0; i < index->count; i++) {
        struct index_sample *sample = &index->samples[i];
        const char *name = index_name(index, sample), *class_name = "";
        size_t class_bytes = 0;
        bool found = false;

        if (class_of(name, &class_name, &class_bytes))
            sample->label = class_place(classes, class_name, class_bytes, &found);
        if (!found)
            return err_set(err, STATUS_BAD_INPUT, 0,
                           "the training shards have no class \"%.*s\", which %.120s is of",
                           class_bytes < 60 ? (int)class_bytes : 60, class_name, name);
    }
    return STATUS_OK;
}

enum status index_finish(struct index *index, const struct index *like, struct err *err)
{
    if (like != NULL && like->is_folder_like != index->is_folder_like)
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "the training shards have %s, the validation shards %s: make both alike",
                       like->is_folder_like ? "CLASS/NAME.jpg" : "labels in .cls files",
                       index->is_folder_like ? "CLASS/NAME.jpg" : "labels in .cls files");
    if (index->is_folder_like) {
        index->class_count = like != NULL ? like->class_count : index->name_count;
        return label_foldered(index, like != NULL ? like : index, err);
    }
    for (size_t i = 0; i < index->count; i++)
        if (index->samples[i].label >= index->class_count)
            index->class_count = index->samples[i].label + 1;
    if (like != NULL && index->class_count > like->class_count)
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "the validation shards have label %u, the training shards 0 to %u",
                       index->class_count - 1, like->class_count - 1);
    index->class_count = like != NULL ? like->class_count : index->class_count;
    return STATUS_OK;
}

void index_close(struct index *index)
{
    for (uint32_t i = 0; i < index->name_count; i++)
        free(index->classes[i]);
    free((void *)index->classes);
    free(index->samples);
    buf_free(&index->names);
    memset(index, 0, sizeof *index);
}
