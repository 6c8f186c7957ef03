/* Files. See fileio.h. */
#include "worker/data/fileio.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cjson/cJSON.h>
#include <openssl/evp.h>

enum {
    CHUNK_BYTES = 1 << 16,
    PIECE_BYTES = 1 << 18,
    WRITEBACK_BYTES = 8 << 20,
    CALL_BYTES_MAX = 1 << 30
};

enum status fileio_write(int fd, const void *bytes, uint64_t byte_count, struct err *err)
{
    const char *at = bytes;

    while (byte_count > 0) {
        size_t ask = byte_count < CALL_BYTES_MAX ? (size_t)byte_count : CALL_BYTES_MAX;
        ssize_t n = write(fd, at, ask);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return err_set(err, STATUS_IO, errno, "cannot write: %s", strerror(errno));
        at += n;
        byte_count -= (uint64_t)n;
    }
    return STATUS_OK;
}

enum status fileio_read_at(int fd, const char *what, void *bytes, uint64_t byte_count,
                           uint64_t offset, struct err *err)
{
    char *at = bytes;

    while (byte_count > 0) {
        size_t ask = byte_count < CALL_BYTES_MAX ? (size_t)byte_count : CALL_BYTES_MAX;
        ssize_t n = pread(fd, at, ask, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_set(err, STATUS_IO, errno, "%s: cannot read: %s", what, strerror(errno));
        if (n == 0)
            return err_set(err, STATUS_BAD_INPUT, 0, "%s: it ends %llu bytes too early", what,
                           (unsigned long long)byte_count);
        at += n;
        offset += (uint64_t)n;
        byte_count -= (uint64_t)n;
    }
    return STATUS_OK;
}

enum status fileio_size(int fd, const char *what, uint64_t *byte_count, struct err *err)
{
    struct stat now;

    if (fstat(fd, &now) != 0)
        return err_set(err, STATUS_IO, errno, "%s: cannot stat: %s", what, strerror(errno));
    if (!S_ISREG(now.st_mode))
        return err_set(err, STATUS_BAD_INPUT, 0, "%s: not a regular file", what);
    *byte_count = (uint64_t)now.st_size;
    return STATUS_OK;
}

static enum status open_to_read(const char *path, int *fd, uint64_t *byte_count, struct err *err)
{
    enum status status;

    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*fd < 0)
        return err_set(err, errno == ENOENT ? STATUS_NOT_FOUND : STATUS_IO, errno,
                       "%s: cannot open: %s", path, strerror(errno));
    status = fileio_size(*fd, path, byte_count, err);
    if (status != STATUS_OK)
        (void)close(*fd);
    return status;
}

enum status fileio_read_file(const char *path, uint64_t byte_limit, char **bytes,
                             uint64_t *byte_count, struct err *err)
{
    int fd;
    enum status status = open_to_read(path, &fd, byte_count, err);

    *bytes = NULL;
    if (status != STATUS_OK)
        return status;
    if (*byte_count > byte_limit)
        status = err_set(err, STATUS_TOO_BIG, 0, "%s: expected at most %llu bytes, found %llu",
                         path, (unsigned long long)byte_limit, (unsigned long long)*byte_count);
    else if ((*bytes = malloc(*byte_count + 1)) == NULL)
        status = err_set(err, STATUS_MEMORY, 0, "%s: no memory for it", path);
    else
        status = fileio_read_at(fd, path, *bytes, *byte_count, 0, err);
    (void)close(fd);
    if (status == STATUS_OK && *bytes != NULL) {
        (*bytes)[*byte_count] = '\0';
        return STATUS_OK;
    }
    free(*bytes);
    *bytes = NULL;
    return status;
}

/* -- hashes -- */

static enum status digest_new(EVP_MD_CTX **digest, const EVP_MD *kind, struct err *err)
{
    *digest = EVP_MD_CTX_new();
    if (*digest != NULL && EVP_DigestInit_ex(*digest, kind, NULL) == 1)
        return STATUS_OK;
    EVP_MD_CTX_free(*digest);
    *digest = NULL;
    return err_set(err, STATUS_LIBRARY, 0, "a hash cannot be started");
}

static enum status digest_add(EVP_MD_CTX *digest, const void *bytes, size_t byte_count,
                              struct err *err)
{
    return EVP_DigestUpdate(digest, bytes, byte_count) == 1
               ? STATUS_OK
               : err_set(err, STATUS_LIBRARY, 0, "a hash cannot be computed");
}

/* Frees the digest. hex: [65] */
static enum status digest_end(EVP_MD_CTX *digest, char *hex, struct err *err)
{
    unsigned char sum[EVP_MAX_MD_SIZE];
    unsigned int sum_bytes = 0;
    const bool ended = EVP_DigestFinal_ex(digest, sum, &sum_bytes) == 1;

    EVP_MD_CTX_free(digest);
    if (!ended)
        return err_set(err, STATUS_LIBRARY, 0, "a hash cannot be computed");
    for (unsigned int i = 0; i < sum_bytes; i++)
        (void)snprintf(hex + 2 * (size_t)i, 3, "%02x", sum[i]);
    return STATUS_OK;
}

static enum status digest_file(int fd, const char *path, uint64_t byte_count, EVP_MD_CTX *digest,
                               struct err *err)
{
    uint64_t offset = 0;
    char *chunk = malloc(CHUNK_BYTES);
    enum status status = STATUS_OK;

    if (chunk == NULL)
        status = err_set(err, STATUS_MEMORY, 0, "%s: no memory to hash it", path);
    while (status == STATUS_OK && offset < byte_count) {
        uint64_t left = byte_count - offset, ask = left < CHUNK_BYTES ? left : CHUNK_BYTES;
        status = fileio_read_at(fd, path, chunk, ask, offset, err);
        if (status == STATUS_OK)
            status = digest_add(digest, chunk, ask, err);
        offset += ask;
    }
    free(chunk);
    return status;
}

static enum status digest_path(const char *path, const EVP_MD *kind, char *hex,
                               uint64_t *byte_count, struct err *err)
{
    EVP_MD_CTX *digest;
    int fd;
    enum status status = open_to_read(path, &fd, byte_count, err);

    if (status != STATUS_OK)
        return status;
    status = digest_new(&digest, kind, err);
    if (status == STATUS_OK) {
        status = digest_file(fd, path, *byte_count, digest, err);
        if (status == STATUS_OK)
            status = digest_end(digest, hex, err);
        else
            EVP_MD_CTX_free(digest);
    }
    (void)close(fd);
    return status;
}

enum status fileio_sha256(const char *path, char *hex, uint64_t *byte_count, struct err *err)
{
    return digest_path(path, EVP_sha256(), hex, byte_count, err);
}

enum status fileio_md5(const char *path, char *hex, uint64_t *byte_count, struct err *err)
{
    return digest_path(path, EVP_md5(), hex, byte_count, err);
}

enum status fileio_sha256_bytes(const void *bytes, size_t byte_count, char *hex, struct err *err)
{
    EVP_MD_CTX *digest;
    enum status status = digest_new(&digest, EVP_sha256(), err);

    if (status != STATUS_OK)
        return status;
    status = digest_add(digest, bytes, byte_count, err);
    if (status == STATUS_OK)
        return digest_end(digest, hex, err);
    EVP_MD_CTX_free(digest);
    return status;
}

/* -- writing -- */

enum status fileio_out_open(struct fileio_out *out, const char *path, struct err *err)
{
    enum status status;

    *out = (struct fileio_out){.fd = -1};
    status = fileio_create(path, &out->fd, err);
    if (status == STATUS_OK)
        status = digest_new(&out->digest, EVP_sha256(), err);
    if (status != STATUS_OK)
        fileio_out_drop(out);
    return status;
}

/* Tells the kernel to start writing to disk, a share at a time. Otherwise all of a large file would
 * wait for the fsync. */
static void begin_writeback(const struct fileio_out *out, uint64_t added)
{
    const uint64_t from = out->byte_count / WRITEBACK_BYTES * WRITEBACK_BYTES;
    const uint64_t to = (out->byte_count + added) / WRITEBACK_BYTES * WRITEBACK_BYTES;

    if (to > from)
        (void)sync_file_range(out->fd, (off_t)from, (off_t)(to - from), SYNC_FILE_RANGE_WRITE);
}

/* Each piece is hashed and written while it is in the CPU's cache. */
enum status fileio_out_write(struct fileio_out *out, const void *bytes, uint64_t byte_count,
                             struct err *err)
{
    const char *at = bytes;
    enum status status = STATUS_OK;

    while (status == STATUS_OK && byte_count > 0) {
        const size_t n = byte_count < PIECE_BYTES ? (size_t)byte_count : PIECE_BYTES;

        if (out->digest != NULL)
            status = digest_add(out->digest, at, n, err);
        if (status == STATUS_OK)
            status = fileio_write(out->fd, at, n, err);
        if (status == STATUS_OK)
            begin_writeback(out, n);
        at += n;
        byte_count -= n;
        out->byte_count += n;
    }
    return status;
}

enum status fileio_out_finish(struct fileio_out *out, const char *path, char *hex, struct err *err)
{
    enum status status = fileio_finish(out->fd, path, err);

    out->fd = -1;
    if (status == STATUS_OK) {
        status = digest_end(out->digest, hex, err);
        out->digest = NULL;
    }
    fileio_out_drop(out);
    return status;
}

void fileio_out_drop(struct fileio_out *out)
{
    if (out->fd >= 0)
        (void)close(out->fd);
    EVP_MD_CTX_free(out->digest);
    *out = (struct fileio_out){.fd = -1};
}

enum status fileio_create(const char *path, int *fd, struct err *err)
{
    *fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (*fd < 0)
        return err_set(err, STATUS_IO, errno, "%s: cannot make it: %s", path, strerror(errno));
    return STATUS_OK;
}

enum status fileio_finish(int fd, const char *path, struct err *err)
{
    int sync_errno = fsync(fd) == 0 ? 0 : errno;

    if (close(fd) != 0 && sync_errno == 0)
        sync_errno = errno;
    if (sync_errno != 0)
        return err_set(err, STATUS_IO, sync_errno, "%s: cannot reach the disk: %s", path,
                       strerror(sync_errno));
    return STATUS_OK;
}

enum status fileio_write_file(const char *path, const void *bytes, size_t byte_count,
                              struct err *err)
{
    int fd;
    enum status status;

    status = fileio_create(path, &fd, err);
    if (status != STATUS_OK)
        return status;
    status = fileio_write(fd, bytes, byte_count, err);
    if (status == STATUS_OK)
        return fileio_finish(fd, path, err);
    (void)close(fd);
    return status;
}

static enum status sync_dir(const char *dir, struct err *err)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int code = 0;

    if (fd < 0 || fsync(fd) != 0)
        code = errno;
    if (fd >= 0)
        (void)close(fd);
    if (code != 0)
        return err_set(err, STATUS_IO, code, "%s: cannot sync the folder: %s", dir, strerror(code));
    return STATUS_OK;
}

enum status fileio_rename(const char *from, const char *to, const char *dir, struct err *err)
{
    if (rename(from, to) != 0)
        return err_set(err, STATUS_IO, errno, "cannot rename %s to %s: %s", from, to,
                       strerror(errno));
    return sync_dir(dir, err);
}

/* Whether the text has a NUL, raw or as an escape: cJSON returns C strings, which would end
 * there. */
static bool has_nul(const char *bytes, size_t byte_count)
{
    if (memchr(bytes, '\0', byte_count) != NULL)
        return true;
    for (size_t i = 0; i + 1 < byte_count; i++) {
        if (bytes[i] != '\\')
            continue;
        if (i + 6 <= byte_count && memcmp(bytes + i + 1, "u0000", 5) == 0)
            return true;
        i++; /* the escaped character */
    }
    return false;
}

static int by_key(const void *a, const void *b)
{
    const char *const *x = a, *const *y = b;
    return strcmp(*x, *y);
}

static bool keys_are_unique(const cJSON *object)
{
    size_t n = 0, count = (size_t)cJSON_GetArraySize(object);
    const char **keys = calloc(count + 1, sizeof *keys);
    const cJSON *item;
    bool unique = keys != NULL;

    if (keys == NULL)
        return false;
    cJSON_ArrayForEach(item, object) keys[n++] = item->string;
    qsort(keys, n, sizeof *keys, by_key);
    for (size_t i = 1; i < n; i++)
        unique = unique && strcmp(keys[i - 1], keys[i]) != 0;
    free(keys);
    return unique;
}

/* The depth is limited by cJSON: CJSON_NESTING_LIMIT. */
static bool tree_is_unique(const cJSON *item) /* NOLINT(misc-no-recursion) */
{
    const cJSON *child;

    if (cJSON_IsObject(item) && !keys_are_unique(item))
        return false;
    cJSON_ArrayForEach(child, item) if (!tree_is_unique(child)) return false;
    return true;
}

cJSON *fileio_parse_json(const char *bytes, size_t byte_count)
{
    const char *end = NULL;
    cJSON *json;

    if (byte_count == 0 || has_nul(bytes, byte_count))
        return NULL;
    json = cJSON_ParseWithLengthOpts(bytes, byte_count, &end, false);
    while (json != NULL && end < bytes + byte_count && strchr(" \t\r\n", *end) != NULL)
        end++;
    if (json != NULL && (end != bytes + byte_count || !tree_is_unique(json))) {
        cJSON_Delete(json);
        return NULL;
    }
    return json;
}
