#include "rendezvous/store/backup_file.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/io/own_path.h"
#include "common/openssl_library.h"

static const char magic[] = "ddp-backup 1\n";

#define MAGIC_BYTES (sizeof magic - 1)
#define SUM_BYTES 32

static enum status io_failed(const struct backup_file *file, const char *doing, struct err *err)
{
    return err_set(err, STATUS_IO, errno, "cannot %s %s: %s", doing, file->path, strerror(errno));
}

static enum status begin_hash(struct backup_file *file, struct err *err)
{
    file->openssl = openssl_library(err);
    if (file->openssl == NULL)
        return STATUS_LIBRARY;
    file->hash = file->openssl->evp_md_ctx_new();
    if (file->hash == NULL ||
        file->openssl->evp_digest_init_ex(file->hash, file->openssl->evp_sha256(), NULL) != 1)
        return err_set(err, STATUS_LIBRARY, 0, "libcrypto: no SHA-256");
    return STATUS_OK;
}

/* -- writing -- */

static enum status put_bytes(struct backup_file *file, const void *bytes, size_t byte_count,
                             struct err *err)
{
    (void)file->openssl->evp_digest_update(file->hash, bytes, byte_count);
    return fwrite(bytes, 1, byte_count, file->file) == byte_count ? STATUS_OK
                                                                  : io_failed(file, "write", err);
}

enum status backup_file_make(struct backup_file *file, const char *path, struct err *err)
{
    enum status status;
    struct err why;
    int fd;

    *file = (struct backup_file){.path = path};
    status = begin_hash(file, err);
    if (status != STATUS_OK)
        return status;
    status = own_file_open(path, 0, O_WRONLY | O_CREAT | O_EXCL, 0600, &fd, &why);
    if (status != STATUS_OK && why.code == EEXIST)
        return err_set(err, STATUS_CONFLICT, EEXIST,
                       "%s is there already and is not overwritten: name another file", path);
    if (status != STATUS_OK)
        return err_set(err, status == STATUS_NOT_FOUND ? STATUS_IO : status, why.code,
                       "cannot make a backup: %.220s", why.text);
    file->file = fdopen(fd, "wb");
    if (file->file == NULL) {
        (void)close(fd);
        return io_failed(file, "make", err);
    }
    file->tag = 'W';
    return put_bytes(file, magic, MAGIC_BYTES, err);
}

enum status backup_file_put(struct backup_file *file, char tag, const void *bytes,
                            size_t byte_count, struct err *err)
{
    uint64_t number = byte_count;
    uint8_t head[9] = {(uint8_t)tag};
    enum status status;

    for (size_t i = 0; i < 8; i++)
        head[1 + i] = (uint8_t)(number >> (8 * i));
    status = put_bytes(file, head, sizeof head, err);
    return status == STATUS_OK ? put_bytes(file, bytes, byte_count, err) : status;
}

static enum status sync_folder(const struct backup_file *file, struct err *err)
{
    char path[4096];
    DIR *dir;
    int fd, rc;

    (void)snprintf(path, sizeof path, "%s", file->path);
    if (own_folder_open(dirname(path), 0, &fd, err) != STATUS_OK)
        return err->status;
    dir = own_folder_list(fd); /* `fd` itself cannot be synced */
    (void)close(fd);
    rc = dir == NULL ? -1 : fsync(dirfd(dir));
    if (dir != NULL)
        (void)closedir(dir);
    return rc == 0 ? STATUS_OK : io_failed(file, "sync the folder of", err);
}

static void remove_it(const struct backup_file *file)
{
    struct err none;

    (void)own_file_remove(file->path, 0, &none);
}

enum status backup_file_finish(struct backup_file *file, struct err *err)
{
    uint8_t sum[EVP_MAX_MD_SIZE];
    int rc;

    (void)file->openssl->evp_digest_final_ex(file->hash, sum, NULL);
    if (fwrite(sum, 1, SUM_BYTES, file->file) != SUM_BYTES || fflush(file->file) != 0 ||
        fsync(fileno(file->file)) != 0)
        return io_failed(file, "write", err);
    rc = fclose(file->file);
    file->file = NULL;
    file->tag = '\0';
    if (rc != 0) {
        (void)io_failed(file, "write", err);
        remove_it(file);
        return STATUS_IO;
    }
    return sync_folder(file, err);
}

/* -- reading -- */

static enum status damaged(const struct backup_file *file, const char *why, struct err *err)
{
    return err_set(err, STATUS_BAD_INPUT, 0, "%s is not a whole backup: %s", file->path, why);
}

#define USED '2'
#define MOVED " moved="

/* Finds the byte that says whether it is of a moved state, '1', and used, '2'. It counts as '1' in the checksum. `bytes`
 * is what follows the magic, and is changed. */
static void find_moved(struct backup_file *file, uint8_t *bytes, size_t byte_count)
{
    const uint8_t *end = byte_count > 9 + 80 ? bytes + 9 + 80 : bytes + byte_count;
    uint8_t *at = bytes;

    while (at + sizeof MOVED <= end && memcmp(at, MOVED, sizeof MOVED - 1) != 0)
        at++;
    if (at + sizeof MOVED > end || bytes[0] != 'H')
        return;
    at += sizeof MOVED - 1;
    if (*at != USED && *at != '1')
        return;
    file->moved_at = (long)MAGIC_BYTES + (at - bytes);
    *at = '1';
}

/* Compares the checksum with that of the bytes before it. */
static enum status check_sum(struct backup_file *file, struct err *err)
{
    uint8_t bytes[65536], sum[EVP_MAX_MD_SIZE], stored[SUM_BYTES];
    struct stat info;
    uint64_t left;
    size_t n;

    if (fstat(fileno(file->file), &info) < 0)
        return io_failed(file, "read", err);
    if (!S_ISREG(info.st_mode) || info.st_size < (off_t)(MAGIC_BYTES + SUM_BYTES) ||
        fread(bytes, 1, MAGIC_BYTES, file->file) != MAGIC_BYTES ||
        memcmp(bytes, magic, MAGIC_BYTES) != 0)
        return damaged(file, "it does not begin like one", err);
    (void)file->openssl->evp_digest_update(file->hash, bytes, MAGIC_BYTES);
    for (left = (uint64_t)info.st_size - MAGIC_BYTES - SUM_BYTES; left > 0; left -= n) {
        n = fread(bytes, 1, left < sizeof bytes ? (size_t)left : sizeof bytes, file->file);
        if (n == 0)
            return io_failed(file, "read", err);
        if (left == (uint64_t)info.st_size - MAGIC_BYTES - SUM_BYTES)
            find_moved(file, bytes, n);
        (void)file->openssl->evp_digest_update(file->hash, bytes, n);
    }
    (void)file->openssl->evp_digest_final_ex(file->hash, sum, NULL);
    if (fread(stored, 1, SUM_BYTES, file->file) != SUM_BYTES)
        return io_failed(file, "read", err);
    if (memcmp(sum, stored, SUM_BYTES) != 0)
        return damaged(file, "its checksum does not fit", err);
    if (fseek(file->file, (long)MAGIC_BYTES, SEEK_SET) != 0)
        return io_failed(file, "read", err);
    return STATUS_OK;
}

enum status backup_file_open(struct backup_file *file, const char *path, bool is_restore,
                             struct err *err)
{
    enum status status;

    *file = (struct backup_file){.path = path};
    status = begin_hash(file, err);
    if (status != STATUS_OK)
        return status;
    file->file = is_restore ? fopen(path, "r+be") : NULL;
    file->write_code = file->file == NULL ? errno : 0;
    if (file->file == NULL)
        file->file = fopen(path, "rbe");
    if (file->file == NULL)
        return err_set(err, errno == ENOENT ? STATUS_NOT_FOUND : STATUS_IO, errno,
                       "cannot read %s: %s", path, strerror(errno));
    return check_sum(file, err);
}

bool backup_file_use(struct backup_file *file, char *why, size_t why_bytes)
{
    const int fd = fileno(file->file);
    char byte = 0;
    bool is_marked = false;

    errno = file->write_code;
    if (file->write_code == 0 && flock(fd, LOCK_EX | LOCK_NB) == 0) {
        is_marked = pread(fd, &byte, 1, file->moved_at) == 1 && byte == '1' &&
                    pwrite(fd, &(char){USED}, 1, file->moved_at) == 1 && fsync(fd) == 0;
    }
    if (!is_marked && byte == USED)
        (void)snprintf(why, why_bytes, "it was restored once already");
    else if (!is_marked)
        (void)snprintf(why, why_bytes, "it cannot be marked as restored: %s", strerror(errno));
    return is_marked;
}

enum status backup_file_next(struct backup_file *file, struct err *err)
{
    uint8_t head[9];
    uint64_t byte_count = 0;

    if (file->tag == 'E') {
        file->tag = '\0';
        return STATUS_OK;
    }
    if (fread(head, 1, sizeof head, file->file) != sizeof head)
        return damaged(file, "it ends too early", err);
    for (size_t i = 0; i < 8; i++)
        byte_count |= (uint64_t)head[1 + i] << (8 * i);
    if (byte_count > BACKUP_PART_BYTES_MAX)
        return damaged(file, "a part of it is too large", err);
    file->part.byte_count = 0;
    while (file->part.byte_count < byte_count) {
        uint8_t bytes[65536];
        size_t left = (size_t)byte_count - file->part.byte_count;
        size_t n = fread(bytes, 1, left < sizeof bytes ? left : sizeof bytes, file->file);

        if (n == 0)
            return damaged(file, "it ends too early", err);
        buf_add(&file->part, bytes, n);
    }
    buf_add(&file->part, "", 1);
    if (file->part.failed)
        return err_set(err, STATUS_MEMORY, 0, "no memory to read %s", file->path);
    file->part.byte_count--;
    file->tag = (char)head[0];
    return STATUS_OK;
}

void backup_file_close(struct backup_file *file)
{
    if (file->file != NULL)
        (void)fclose(file->file);
    if (file->file != NULL && file->tag == 'W')
        remove_it(file);
    file->file = NULL;
    if (file->hash != NULL)
        file->openssl->evp_md_ctx_free(file->hash);
    file->hash = NULL;
    buf_free(&file->part);
}
