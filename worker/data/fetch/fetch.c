/* Data sets from a mirror. See fetch.h. */
#include "worker/data/fetch/fetch.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "worker/data/fetch/http.h"
#include "worker/data/fetch/unpack.h"
#include "worker/data/fileio.h"

enum { SUMS_BYTES_MAX = 16 << 20, MD5_DIGITS = 32 };

/* -- what there is -- */

/* The MD5s are those that torchvision checks; no other hashes of these files are published. */
static const struct fetch_item mnist_items[] = {
    {"train-images-idx3-ubyte.gz", "f68b3c2dcbeaaa9fbdd348bbdeb94873", 9912422},
    {"train-labels-idx1-ubyte.gz", "d53e105ee54ea40749a09fcbcd1e9432", 28881},
    {"t10k-images-idx3-ubyte.gz", "9fb629c4189551a2d022fa330f9573f3", 1648877},
    {"t10k-labels-idx1-ubyte.gz", "ec29112dd5afa0611ce80d1b7f02629c", 4542},
};
static const struct fetch_item cifar10_items[] = {
    {"cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530", 170052171},
};
static const char *const cifar10_files[] = {
    "data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
    "data_batch_5.bin", "test_batch.bin",   "batches.meta.txt", NULL};

static const struct fetch_set {
    const char *name, *mirror;
    const struct fetch_item *items;
    size_t item_count;
    const char *folder; /* in the archive; NULL: nothing is unpacked */
    const char *const *files;
} sets[] = {
    {"mnist", "https://ossci-datasets.s3.amazonaws.com/mnist", mnist_items,
     sizeof mnist_items / sizeof mnist_items[0], NULL, NULL},
    {"cifar10", "https://www.cs.toronto.edu/~kriz", cifar10_items, 1, "cifar-10-batches-bin",
     cifar10_files},
};

/* -- one file -- */

struct fetch {
    const struct fetch_options *options;
    const char *mirror;
    struct http *http; /* NULL: no file had to be downloaded so far */
};

static enum status join(char *path, const char *dir, const char *before, const char *name,
                        const char *after, struct err *err)
{
    int n = snprintf(path, PATH_MAX, "%s/%s%s%s", dir, before, name, after);

    return n > 0 && n < PATH_MAX
               ? STATUS_OK
               : err_set(err, STATUS_TOO_BIG, 0, "%.100s: the path is too long", dir);
}

static enum status check_hash(const char *path, const struct fetch_item *item, bool *is_right,
                              char *found, struct err *err)
{
    uint64_t byte_count;
    enum status status = strlen(item->hash) == MD5_DIGITS
                             ? fileio_md5(path, found, &byte_count, err)
                             : fileio_sha256(path, found, &byte_count, err);

    *is_right = status == STATUS_OK && strcmp(found, item->hash) == 0;
    return status;
}

/* Checks a file of that name that already exists: the right file, or another file of the user. */
static enum status look_at(const char *path, const struct fetch_item *item, bool *is_there,
                           struct err *err)
{
    char found[FETCH_HASH_BYTES];
    enum status status = check_hash(path, item, is_there, found, err);

    if (status == STATUS_NOT_FOUND)
        return STATUS_OK;
    if (status != STATUS_OK || *is_there)
        return status;
    return err_set(err, STATUS_CONFLICT, 0,
                   "%.120s is there with another hash (%s): move it away to download it", path,
                   found);
}

/* Appends the missing bytes to `part`. */
static enum status load(struct fetch *fetch, const struct fetch_item *item, int fd, uint64_t from,
                        struct err *err)
{
    char url[PATH_MAX];
    struct http_request request = {
        .url = url,
        .fd = fd,
        .from = from,
        .byte_limit = item->byte_count > 0 ? item->byte_count : UINT64_MAX,
        .timeout_s = fetch->options->timeout_s,
    };
    enum status status = join(url, fetch->mirror, "", item->name, "", err);

    if (status == STATUS_OK && fetch->http == NULL)
        status = http_open(&fetch->http, err);
    if (status == STATUS_OK)
        status = http_get(fetch->http, &request, err);
    if (status == STATUS_CONFLICT) { /* the server does not support ranges */
        request.from = 0;
        if (ftruncate(fd, 0) != 0)
            return err_set(err, STATUS_IO, errno, "%s: cannot empty it: %s", item->name,
                           strerror(errno));
        status = http_get(fetch->http, &request, err);
    }
    if (status == STATUS_IO) {
        int code = err != NULL ? err->code : 0;
        return err_set(err, STATUS_IO, code,
                       "%.100s/.%s.part: cannot write: %s: make room and run it again to go on",
                       fetch->options->dir, item->name, strerror(code));
    }
    return status;
}

/* One try: *is_whole tells whether the hash is right; if it is wrong, `part` is deleted. */
static enum status try_part(struct fetch *fetch, const struct fetch_item *item, const char *part,
                            uint64_t *from, bool *is_whole, char *found, struct err *err)
{
    int fd = open(part, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0666);
    enum status status;

    if (fd < 0)
        return err_set(err, STATUS_IO, errno, "%.180s: cannot make it: %s", part, strerror(errno));
    status = fileio_size(fd, part, from, err);
    if (status == STATUS_OK && *from > 0) /* complete, if a run ended before the rename */
        status = check_hash(part, item, is_whole, found, err);
    if (status == STATUS_OK && !*is_whole) {
        status = load(fetch, item, fd, *from, err);
        if (status == STATUS_OK)
            status = check_hash(part, item, is_whole, found, err);
    }
    if (status == STATUS_OK && *is_whole)
        return fileio_finish(fd, part, err);
    (void)close(fd);
    if (status == STATUS_OK || status == STATUS_TOO_BIG)
        (void)unlink(part);
    return status;
}

static enum status download(struct fetch *fetch, const struct fetch_item *item, const char *path,
                            struct err *err)
{
    char part[PATH_MAX], found[FETCH_HASH_BYTES] = "";
    bool is_whole = false;
    uint64_t from = 0;
    enum status status = join(part, fetch->options->dir, ".", item->name, ".part", err);

    if (status == STATUS_OK)
        status = try_part(fetch, item, part, &from, &is_whole, found, err);
    if ((status == STATUS_OK && !is_whole && from > 0) ||
        (status == STATUS_TOO_BIG && from > 0)) /* perhaps the earlier bytes were wrong */
        status = try_part(fetch, item, part, &from, &is_whole, found, err);
    if (status != STATUS_OK)
        return status;
    if (!is_whole)
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "%s from %.80s has hash %s, expected %s: another file, or damaged on the "
                       "way; it was removed",
                       item->name, fetch->mirror, found, item->hash);
    return fileio_rename(part, path, fetch->options->dir, err);
}

static enum status fetch_file(struct fetch *fetch, const struct fetch_item *item, struct err *err)
{
    const char *kind = strlen(item->hash) == MD5_DIGITS ? "MD5" : "SHA-256";
    char path[PATH_MAX];
    bool is_there = false;
    enum status status = join(path, fetch->options->dir, "", item->name, "", err);

    if (status == STATUS_OK)
        status = look_at(path, item, &is_there, err);
    if (status == STATUS_OK && !is_there)
        status = download(fetch, item, path, err);
    if (status == STATUS_OK) {
        (void)printf("%s: %s, its %s is right\n", path, is_there ? "there already" : "downloaded",
                     kind);
        (void)fflush(stdout);
    }
    return status;
}

/* -- all files -- */

static enum status fetch_items(struct fetch *fetch, const struct fetch_item *items, size_t count,
                               struct err *err)
{
    enum status status = STATUS_OK;

    for (size_t i = 0; status == STATUS_OK && i < count; i++)
        status = fetch_file(fetch, &items[i], err);
    return status;
}

static enum status fetch_set(struct fetch *fetch, const struct fetch_set *set, struct err *err)
{
    const char *dir = fetch->options->dir;
    char path[PATH_MAX];
    enum status status = fetch_items(fetch, set->items, set->item_count, err);

    if (status != STATUS_OK || set->folder == NULL)
        return status;
    if (!unpack_is_done(dir, set->folder, set->files)) {
        status = join(path, dir, "", set->items[0].name, "", err);
        if (status == STATUS_OK)
            status = unpack_files(path, dir, set->folder, set->files, err);
    }
    if (status == STATUS_OK)
        (void)printf("%s/%s: unpacked\n", dir, set->folder);
    return status;
}

static enum status fetch_list(struct fetch *fetch, struct err *err)
{
    const char *path = fetch->options->what;
    struct fetch_item *items = NULL;
    char *text = NULL;
    uint64_t byte_count;
    size_t count = 0;
    enum status status = fileio_read_file(path, SUMS_BYTES_MAX, &text, &byte_count, err);

    if (status == STATUS_NOT_FOUND)
        return err_set(err, STATUS_NOT_FOUND, 0,
                       "--fetch %.100s: expected mnist, cifar10, or a file of hashes as md5sum or "
                       "sha256sum print them",
                       path);
    if (status == STATUS_OK)
        status = fetch_parse_sums(text, path, &items, &count, err);
    free(text);
    if (status == STATUS_OK)
        status = fetch_items(fetch, items, count, err);
    free(items);
    return status;
}

/* On file systems without locks two processes could write to one part. The hash check would find
 * this. */
static enum status lock_folder(const char *dir, int *fd, struct err *err)
{
    if (mkdir(dir, 0777) != 0 && errno != EEXIST)
        return err_set(err, STATUS_IO, errno, "%.180s: cannot make the folder: %s", dir,
                       strerror(errno));
    *fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*fd < 0)
        return err_set(err, STATUS_IO, errno, "%.180s: cannot open the folder: %s", dir,
                       strerror(errno));
    if (flock(*fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK)
        return STATUS_OK;
    (void)printf("%s: another process downloads into it: waiting\n", dir);
    (void)fflush(stdout);
    while (flock(*fd, LOCK_EX) != 0 && errno == EINTR)
        ;
    return STATUS_OK;
}

static enum status choose_mirror(struct fetch *fetch, const struct fetch_set *set, char *mirror,
                                 size_t mirror_bytes, struct err *err)
{
    const char *chosen = fetch->options->mirror;
    size_t length;

    if (chosen == NULL)
        chosen = getenv("DDP_MIRROR");
    if ((chosen == NULL || chosen[0] == '\0') && set != NULL)
        chosen = set->mirror;
    if (chosen == NULL || chosen[0] == '\0')
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "--fetch %.80s: give --mirror URL, where its files are",
                       fetch->options->what);
    if (strncmp(chosen, "https://", 8) != 0 && strncmp(chosen, "http://", 7) != 0)
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "--mirror %.100s: expected https://... or http://...", chosen);
    length = strlen(chosen);
    while (length > 0 && chosen[length - 1] == '/')
        length--;
    if (length >= mirror_bytes)
        return err_set(err, STATUS_TOO_BIG, 0, "--mirror %.100s...: too long", chosen);
    memcpy(mirror, chosen, length);
    mirror[length] = '\0';
    fetch->mirror = mirror;
    return STATUS_OK;
}

enum status fetch_run(const struct fetch_options *options, struct err *err)
{
    struct fetch fetch = {.options = options};
    const struct fetch_set *set = NULL;
    char mirror[1024];
    int lock = -1;
    enum status status;

    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++)
        if (strcmp(options->what, sets[i].name) == 0)
            set = &sets[i];
    status = choose_mirror(&fetch, set, mirror, sizeof mirror, err);
    if (status == STATUS_OK)
        status = lock_folder(options->dir, &lock, err);
    if (status == STATUS_OK)
        status = set != NULL ? fetch_set(&fetch, set, err) : fetch_list(&fetch, err);
    http_close(&fetch.http);
    if (lock >= 0)
        (void)close(lock);
    return status;
}
