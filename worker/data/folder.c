/* Pictures of a folder. See folder.h. */
#include "worker/data/folder.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "worker/data/fileio.h"
#include "worker/data/hash.h"

struct folder {
    struct source source;
    struct folder_options options;
    struct folder_list list;
};

struct reader {
    struct picture_reader *pictures;
    uint8_t *bytes;
    size_t room;
    char path[PATH_MAX]; /* of the file in `bytes` */
};

static void reader_free(void *user)
{
    struct reader *reader = user;

    picture_reader_free(&reader->pictures);
    free(reader->bytes);
    free(reader);
}

static enum status reader_new(struct source *source, void **out, struct err *err)
{
    struct reader *reader = calloc(1, sizeof *reader);
    enum status status;

    (void)source;
    if (reader == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory to read pictures");
    status = picture_reader_new(&reader->pictures, err);
    if (status != STATUS_OK) {
        free(reader);
        return status;
    }
    *out = reader;
    return STATUS_OK;
}

/* If the machine lacks a resource, the training ends (STATUS_SYSTEM); any other failure concerns
 * only this file. */
static enum status cannot_open(const char *path, int code, struct err *err)
{
    const bool is_machine = code == EMFILE || code == ENFILE || code == ENOMEM;

    return err_set(err, is_machine ? STATUS_SYSTEM : STATUS_NOT_FOUND, code,
                   "%.200s: cannot open: %s", path, strerror(code));
}

static enum status read_bytes(struct reader *reader, int fd, const char *path, size_t *byte_count,
                              struct err *err)
{
    uint64_t bytes = 0;
    enum status status = fileio_size(fd, path, &bytes, err);

    if (status == STATUS_OK && bytes > FOLDER_FILE_BYTES_MAX)
        status =
            err_set(err, STATUS_TOO_BIG, 0, "%.180s: a file of %llu bytes, at most %u are read",
                    path, (unsigned long long)bytes, FOLDER_FILE_BYTES_MAX);
    if (status == STATUS_OK && bytes == 0)
        status = err_set(err, STATUS_BAD_INPUT, 0, "%.200s: an empty file", path);
    if (status == STATUS_OK && bytes > reader->room) {
        free(reader->bytes);
        reader->room = 0;
        reader->bytes = malloc(bytes);
        if (reader->bytes == NULL)
            return err_set(err, STATUS_MEMORY, 0, "%.180s: no memory for its %llu bytes", path,
                           (unsigned long long)bytes);
        reader->room = bytes;
    }
    if (status == STATUS_OK)
        status = fileio_read_at(fd, path, reader->bytes, bytes, 0, err);
    *byte_count = bytes;
    if (status != STATUS_IO)
        return status;
    if (err != NULL)
        err->status = STATUS_NOT_FOUND; /* a read error concerns only this file */
    return STATUS_NOT_FOUND;
}

static enum status folder_read_file(struct source *source, void *user, int64_t index,
                                    struct source_file *out, struct err *err)
{
    const struct folder_file *file = &((const struct folder *)source)->list.files[index];
    struct reader *reader = user;
    char *path = reader->path;
    size_t byte_count = 0;
    enum status status;
    int fd, n;

    assert(index >= 0 && (size_t)index < source->count);
    n = snprintf(path, sizeof reader->path, "%s/%s", file->dir, file->name);
    if (n < 0 || (size_t)n >= sizeof reader->path)
        return cannot_open(file->name, ENAMETOOLONG, err);
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY); /* do not wait for a pipe */
    if (fd < 0)
        return cannot_open(path, errno, err);
    status = read_bytes(reader, fd, path, &byte_count, err);
    (void)close(fd);
    if (status == STATUS_OK)
        *out = (struct source_file){reader->bytes, byte_count, path, file->class};
    return status;
}

static enum status folder_read(struct source *source, void *user, uint64_t epoch, int64_t index,
                               uint8_t *image, int64_t *label, struct err *err)
{
    const struct folder_options *options = &((const struct folder *)source)->options;
    struct reader *reader = user;
    struct source_file file;
    enum status status = folder_read_file(source, user, index, &file, err);

    if (status != STATUS_OK)
        return status;
    *label = file.label;
    return picture_read(reader->pictures, file.bytes, file.byte_count, file.name, &options->rules,
                        options->seed, epoch, (uint64_t)index, image, err);
}

static int64_t folder_label(const struct source *source, int64_t index)
{
    return ((const struct folder *)source)->list.files[index].class;
}

static void folder_close(struct source *source)
{
    struct folder *folder = (struct folder *)source;

    folder_list_close(&folder->list);
    free(folder);
}

/* Hashes the names below `path`, so that the folder's own place does not matter. */
static uint64_t hash_of(const struct folder_list *list, const char *path)
{
    const size_t above = strlen(path);
    uint64_t hash = hash_u64(HASH_BEGIN, list->class_count);

    for (uint32_t i = 0; i < list->class_count; i++)
        hash = hash_bytes(hash, list->classes[i], strlen(list->classes[i]));
    for (size_t i = 0; i < list->file_count; i++) {
        const struct folder_file *file = &list->files[i];

        assert(strlen(file->dir) > above);
        if (i == 0 || file->dir != list->files[i - 1].dir)
            hash = hash_bytes(hash, file->dir + above, strlen(file->dir + above));
        hash = hash_bytes(hash, file->name, strlen(file->name));
    }
    return hash;
}

static const struct source_ops folder_ops = {
    .reader_new = reader_new,
    .reader_free = reader_free,
    .read = folder_read,
    .close = folder_close,
    .read_file = folder_read_file,
    .label = folder_label,
};

enum status folder_open(struct source **source, const char *path,
                        const struct folder_options *options, struct err *err)
{
    struct folder *folder = calloc(1, sizeof *folder);
    const uint32_t size = options->rules.size;
    enum status status;

    if (folder == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory for a folder of pictures");
    folder->options = *options;
    status = folder_list_read(&folder->list, path, options->allow_empty, err);
    if (status != STATUS_OK) {
        free(folder);
        return status;
    }
    folder->source = (struct source){.ops = &folder_ops,
                                     .shape = {3, size, size, folder->list.class_count},
                                     .count = folder->list.file_count,
                                     .class_names = folder->list.classes,
                                     .hash = hash_of(&folder->list, path)};
    *source = &folder->source;
    return STATUS_OK;
}

const struct folder_list *folder_list_of(const struct source *source)
{
    assert(source->ops == &folder_ops);
    return &((const struct folder *)source)->list;
}
