/* The file of a cache. See file.h. */
#include "worker/data/cache/file.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "worker/data/fileio.h"
#include "worker/data/hash.h"

enum {
    HEADER_BYTES = 4096,
    FORMAT_VERSION = 1,
    ASPECT_MAX = 4,
    LANES = 4,
    OPENS_MAX = 100,
    SIDE_MAX = 1 << 20
};

#define HEADER_MAGIC 0x3165686361637064ULL /* "dpcache1" */

struct header {
    uint64_t magic;
    uint64_t version;
    uint64_t source, count, side; /* the key */
    uint64_t rebuilt_for;         /* the job that asked for a rebuild; 0: none */
    uint64_t check;               /* of all above */
};

struct entry {
    uint64_t offset;
    uint32_t width, height, label, zero;
    uint64_t pixel_check;
    uint64_t check; /* of all above, with the key and the picture's number; 0: no entry */
};

/* -- checksums -- */

/* Four interleaved sums, which run at the speed of memory. */
static uint64_t check_pixels(const uint8_t *bytes, size_t byte_count)
{
    uint64_t lanes[LANES] = {HASH_BEGIN, HASH_BEGIN + 1, HASH_BEGIN + 2, HASH_BEGIN + 3};
    const size_t step = sizeof lanes, whole = byte_count / step * step;

    for (size_t i = 0; i < whole; i += step) {
        uint64_t words[LANES];

        memcpy(words, bytes + i, sizeof words);
        for (size_t lane = 0; lane < LANES; lane++)
            lanes[lane] = hash_u64(lanes[lane], words[lane]);
    }
    lanes[0] = hash_bytes(lanes[0], bytes + whole, byte_count - whole);
    return hash_bytes(HASH_BEGIN, lanes, sizeof lanes);
}

static uint64_t check_header(const struct header *header)
{
    return hash_bytes(HASH_BEGIN, header, offsetof(struct header, check));
}

static uint64_t check_entry(const struct cache_file *file, uint64_t index,
                            const struct entry *entry)
{
    uint64_t hash = hash_u64(hash_u64(HASH_BEGIN, file->key_hash), index);

    hash = hash_bytes(hash, entry, offsetof(struct entry, check));
    return hash == 0 ? 1 : hash;
}

/* -- creating -- */

static struct header header_of(const struct cache_key *key, uint64_t rebuilt_for)
{
    struct header header = {.magic = HEADER_MAGIC,
                            .version = FORMAT_VERSION,
                            .source = key->source,
                            .count = key->count,
                            .side = key->side,
                            .rebuilt_for = rebuilt_for};

    header.check = check_header(&header);
    return header;
}

static uint64_t data_begin(const struct cache_key *key)
{
    return HEADER_BYTES + key->count * sizeof(struct entry);
}

static enum status check_room(int fd, const char *path, uint64_t need_bytes, struct err *err)
{
    struct statvfs disk;
    uint64_t room;

    if (fstatvfs(fd, &disk) != 0 || disk.f_blocks == 0)
        return STATUS_OK; /* not known: later writes report a full disk */
    room = (uint64_t)disk.f_bavail * disk.f_frsize;
    if (room >= need_bytes)
        return STATUS_OK;
    return err_set(err, STATUS_TOO_BIG, ENOSPC,
                   "%.100s: the cache needs about %.2f GiB, its disk has %.2f GiB free", path,
                   (double)need_bytes / 0x1p30, (double)room / 0x1p30);
}

/* Writes the header last: a process that finds a file without a header treats it as empty. */
static enum status make(int fd, const char *path, const struct cache_key *key, uint64_t need_bytes,
                        uint64_t rebuilt_for, struct err *err)
{
    const struct header header = header_of(key, rebuilt_for);
    enum status status = check_room(fd, path, need_bytes + data_begin(key), err);
    int code;

    if (status != STATUS_OK)
        return status;
    code = posix_fallocate(fd, 0, (off_t)data_begin(key));
    if (code == 0 && pwrite(fd, &header, sizeof header, 0) != (ssize_t)sizeof header)
        code = errno != 0 ? errno : ENOSPC;
    if (code != 0) {
        (void)!ftruncate(fd, 0); /* if this fails, the header check refuses the file */
        return err_set(err, STATUS_IO, code, "%.160s: cannot make the cache: %s", path,
                       strerror(code));
    }
    return STATUS_OK;
}

/* -- opening -- */

enum state { EMPTY, RIGHT, OF_OTHER_DATA, TORN, NO_CACHE };

/* An interrupted creation has left zeros, or holes, of the size of the table. Something of others may begin with
 * zeros, too. */
static bool is_all_zero(int fd)
{
    uint64_t words[1024];
    ssize_t n;

    for (off_t at = 0; (n = pread(fd, words, sizeof words, at)) > 0; at += n) {
        memset((char *)words + n, 0, sizeof words - (size_t)n);
        for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
            if (words[i] != 0)
                return false;
    }
    return n == 0;
}

static enum state state_of(int fd, const struct cache_key *key, struct header *header)
{
    struct stat now;
    const struct header right = header_of(key, 0);
    uint64_t all_zero = 0;

    if (fstat(fd, &now) != 0 || !S_ISREG(now.st_mode))
        return NO_CACHE;
    if (now.st_size == 0)
        return EMPTY;
    if (pread(fd, header, sizeof *header, 0) != (ssize_t)sizeof *header)
        return NO_CACHE;
    for (size_t i = 0; i < sizeof *header / sizeof all_zero; i++)
        all_zero |= ((const uint64_t *)header)[i];
    if (all_zero == 0)
        return is_all_zero(fd) ? TORN : NO_CACHE;
    if (header->magic != HEADER_MAGIC)
        return NO_CACHE;
    if (header->check != check_header(header))
        return TORN;
    if (header->version != right.version || header->source != right.source ||
        header->count != right.count || header->side != right.side)
        return OF_OTHER_DATA;
    return (uint64_t)now.st_size < data_begin(key) ? TORN : RIGHT;
}

static enum status refuse(const char *path, enum state state, const struct header *header,
                          const struct cache_key *key, struct err *err)
{
    if (state == NO_CACHE)
        return err_set(err, STATUS_CONFLICT, 0,
                       "--cache %.120s: the file is no cache: it stays as it is, give another name",
                       path);
    if (state == TORN)
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "--cache %.120s: the cache is damaged: --cache-rebuild makes it anew", path);
    return err_set(err, STATUS_CONFLICT, 0,
                   "--cache %.70s: a cache of other data (%llu pictures at %llu pixels, key %llx; "
                   "these are %llu at %u, %llx): give another name, or --cache-rebuild",
                   path, (unsigned long long)header->count, (unsigned long long)header->side,
                   (unsigned long long)header->source, (unsigned long long)key->count, key->side,
                   (unsigned long long)key->source);
}

/* Replaces the old file with a new, empty one: processes that have the old file open keep it. */
static enum status begin_anew(const char *path, int *fd, struct err *err)
{
    char temp[PATH_MAX];
    int n = snprintf(temp, sizeof temp, "%s.%ld.new", path, (long)getpid());
    struct stat left;
    int made;

    if (n < 0 || (size_t)n >= sizeof temp)
        return err_set(err, STATUS_TOO_BIG, 0, "--cache %.100s...: the path is too long", path);
    /* One of an earlier process with this number is empty: it gets its name before its content. */
    if (lstat(temp, &left) == 0 && S_ISREG(left.st_mode) && left.st_size == 0)
        (void)unlink(temp);
    made = open(temp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (made < 0 || flock(made, LOCK_EX) != 0 || rename(temp, path) != 0) {
        int code = errno;

        if (made >= 0) {
            (void)close(made);
            (void)unlink(temp);
        }
        return err_set(err, STATUS_IO, code, "%.160s: cannot make the cache: %s", path,
                       strerror(code));
    }
    (void)close(*fd);
    *fd = made;
    return STATUS_OK;
}

/* Opens and locks the file at `path`. Another process may replace the file before this one has the
 * lock, so it checks and tries again. */
static enum status open_locked(const char *path, int *fd, struct err *err)
{
    for (int i = 0; i < OPENS_MAX; i++) {
        struct stat opened, named;

        *fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666);
        if (*fd < 0 && (errno == EACCES || errno == EROFS)) /* a file of another user: read only */
            *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        if (*fd < 0)
            return err_set(err, STATUS_IO, errno, "%.160s: cannot make the cache: %s", path,
                           strerror(errno));
        while (flock(*fd, LOCK_EX) != 0 && errno == EINTR)
            ;
        if (fstat(*fd, &opened) == 0 && stat(path, &named) == 0 && opened.st_ino == named.st_ino &&
            opened.st_dev == named.st_dev)
            return STATUS_OK;
        (void)close(*fd);
    }
    return err_set(err, STATUS_IO, 0, "%.160s: the cache is replaced again and again", path);
}

static enum status open_right(struct cache_file *file, uint64_t need_bytes, uint64_t rebuild_for,
                              bool rebuild, struct err *err)
{
    struct header header = {.magic = 0};
    enum state state = state_of(file->fd, &file->key, &header);
    enum status status = STATUS_OK;
    bool is_ours = state == RIGHT && rebuild_for != 0 && header.rebuilt_for == rebuild_for;

    if (state != EMPTY && state != NO_CACHE && rebuild && !is_ours) {
        status = begin_anew(file->path, &file->fd, err);
        state = EMPTY;
    }
    if (status == STATUS_OK && state == EMPTY)
        return make(file->fd, file->path, &file->key, need_bytes, rebuild ? rebuild_for : 0, err);
    return status != STATUS_OK || state == RIGHT
               ? status
               : refuse(file->path, state, &header, &file->key, err);
}

/* Maps the file at the largest size that it can reach: pages beyond its end become readable as the
 * file grows. */
static enum status map(struct cache_file *file, struct err *err)
{
    const uint64_t largest = (uint64_t)file->key.side * file->key.side * 3 * ASPECT_MAX;
    void *mapped;

    file->mapped_bytes = file->data_at + (file->key.count + 1) * largest;
    mapped = mmap(NULL, file->mapped_bytes, PROT_READ, MAP_SHARED | MAP_NORESERVE, file->fd, 0);
    if (mapped == MAP_FAILED)
        return err_set(err, STATUS_IO, errno, "%.160s: cannot map the cache: %s", file->path,
                       strerror(errno));
    file->mapped = mapped;
    return STATUS_OK;
}

enum status cache_file_open(struct cache_file *file, const char *path, const struct cache_key *key,
                            uint64_t need_bytes, uint64_t rebuild_for, bool rebuild,
                            struct err *err)
{
    enum status status;

    memset(file, 0, sizeof *file);
    file->fd = file->append_fd = -1;
    file->key = *key;
    file->key_hash = hash_bytes(HASH_BEGIN, &(const uint64_t[]){key->source, key->count, key->side},
                                3 * sizeof(uint64_t));
    file->data_at = data_begin(key);
    (void)pthread_mutex_init(&file->appending, NULL);
    file->path = strdup(path);
    file->checked = calloc(key->count, sizeof *file->checked);
    if (file->path == NULL || file->checked == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory for a cache");
    status = open_locked(path, &file->fd, err);
    if (status != STATUS_OK)
        return status;
    status = open_right(file, need_bytes, rebuild_for, rebuild, err);
    if (status == STATUS_OK) {
        char self[64];

        (void)snprintf(self, sizeof self, "/proc/self/fd/%d", file->fd);
        file->append_fd = open(self, O_WRONLY | O_APPEND | O_CLOEXEC);
        if (file->append_fd < 0)
            file->append_fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
        status = map(file, err);
    }
    (void)flock(file->fd, LOCK_UN);
    file->is_building = file->append_fd >= 0;
    return status;
}

void cache_file_close(struct cache_file *file)
{
    if (file->mapped != NULL)
        (void)munmap((void *)(uintptr_t)file->mapped, file->mapped_bytes);
    if (file->fd >= 0)
        (void)close(file->fd);
    if (file->append_fd >= 0)
        (void)close(file->append_fd);
    (void)pthread_mutex_destroy(&file->appending);
    free(file->path);
    free((void *)(uintptr_t)file->checked);
    memset(file, 0, sizeof *file);
    file->fd = file->append_fd = -1;
}

bool cache_file_is_there(const char *path)
{
    struct stat now;

    return stat(path, &now) == 0 && now.st_size > 0;
}

/* -- pictures -- */

static uint64_t entry_at(uint64_t index)
{
    return HEADER_BYTES + index * sizeof(struct entry);
}

/* The entry is read, and compared with the file's size, on every call: if someone truncates the
 * file while it is mapped, the process must not crash. */
enum cache_find cache_file_find(struct cache_file *file, uint64_t index, struct picture *picture,
                                uint32_t *label)
{
    struct entry entry;
    struct stat now;
    uint64_t byte_count;

    assert(index < file->key.count);
    if (pread(file->fd, &entry, sizeof entry, (off_t)entry_at(index)) != (ssize_t)sizeof entry ||
        entry.check == 0)
        return CACHE_ABSENT;
    if (entry.check != check_entry(file, index, &entry))
        return CACHE_DAMAGED;
    if (entry.width == 0 || entry.height == 0 || entry.width > SIDE_MAX ||
        entry.height > SIDE_MAX || entry.offset < file->data_at)
        return CACHE_DAMAGED;
    byte_count = (uint64_t)entry.width * entry.height * 3;
    if (byte_count > file->mapped_bytes || entry.offset > file->mapped_bytes - byte_count ||
        fstat(file->fd, &now) != 0 || entry.offset + byte_count > (uint64_t)now.st_size) {
        file->checked[index] = 0;
        return CACHE_DAMAGED;
    }
    *picture = (struct picture){entry.width, entry.height, file->mapped + entry.offset};
    *label = entry.label;
    if (file->checked[index] != entry.check) {
        const uintptr_t page = (uintptr_t)picture->pixels & ~(uintptr_t)4095;

        (void)madvise((void *)page, (uintptr_t)picture->pixels - page + byte_count, MADV_WILLNEED);
        if (check_pixels(picture->pixels, byte_count) != entry.pixel_check)
            return CACHE_DAMAGED;
        file->checked[index] = entry.check;
    }
    return CACHE_FOUND;
}

/* One write in append mode: the kernel places it after the writes of other processes. */
static enum status append(struct cache_file *file, const struct picture *picture, size_t byte_count,
                          uint64_t *offset, struct err *err)
{
    ssize_t written;
    off_t end = 0;
    int code;

    (void)pthread_mutex_lock(&file->appending);
    do
        written = write(file->append_fd, picture->pixels, byte_count);
    while (written < 0 && errno == EINTR);
    code = written < 0 ? errno : ENOSPC;
    if (written == (ssize_t)byte_count)
        end = lseek(file->append_fd, 0, SEEK_CUR);
    (void)pthread_mutex_unlock(&file->appending);
    if (written != (ssize_t)byte_count || end < (off_t)byte_count)
        return err_set(err, STATUS_IO, code, "%.120s: cannot add to the cache: %s", file->path,
                       strerror(code));
    *offset = (uint64_t)end - byte_count;
    return STATUS_OK;
}

enum status cache_file_add(struct cache_file *file, uint64_t index, const struct picture *picture,
                           uint32_t label, struct err *err)
{
    const size_t byte_count = (size_t)picture->width * picture->height * 3;
    struct entry entry = {.width = picture->width, .height = picture->height, .label = label};
    enum status status;

    assert(index < file->key.count);
    if (!file->is_building ||
        byte_count > (uint64_t)file->key.side * file->key.side * 3 * ASPECT_MAX ||
        picture->width > SIDE_MAX || picture->height > SIDE_MAX)
        return STATUS_OK; /* a picture with so long a side is not kept, but decoded each time */
    status = append(file, picture, byte_count, &entry.offset, err);
    if (status == STATUS_OK) {
        entry.pixel_check = check_pixels(picture->pixels, byte_count);
        entry.check = check_entry(file, index, &entry);
        if (pwrite(file->fd, &entry, sizeof entry, (off_t)entry_at(index)) != (ssize_t)sizeof entry)
            status = err_set(err, STATUS_IO, errno, "%.120s: cannot add to the cache: %s",
                             file->path, strerror(errno));
    }
    if (status != STATUS_OK)
        file->is_building = false;
    return status;
}
