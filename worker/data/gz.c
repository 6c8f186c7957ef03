#include "worker/data/gz.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <zlib.h>

enum { PATH_BYTES = 1024, INPUT_BYTES = 1 << 16, GZIP_WINDOW = 15 + 16 };

struct gz {
    char path[PATH_BYTES];
    int fd;
    uint64_t file_bytes, taken; /* read from the file */
    bool is_compressed;
    bool is_inside;   /* in the middle of a member */
    bool has_inflate; /* stream is initialised */
    bool is_at_end;   /* of the file */
    z_stream stream;
    uint8_t input[INPUT_BYTES];
};

/* Reads more input if none is left. */
static enum status fill(struct gz *gz, struct err *err)
{
    ssize_t n;

    if (gz->stream.avail_in > 0 || gz->is_at_end)
        return STATUS_OK;
    do
        n = read(gz->fd, gz->input, sizeof gz->input);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return err_set(err, STATUS_IO, errno, "%s: cannot read: %s", gz->path, strerror(errno));
    gz->is_at_end = n == 0;
    gz->taken += (uint64_t)n;
    gz->stream.next_in = gz->input;
    gz->stream.avail_in = (uInt)n;
    return STATUS_OK;
}

static enum status begin(struct gz *gz, struct err *err)
{
    struct stat found;
    enum status status;

    if (fstat(gz->fd, &found) != 0 || !S_ISREG(found.st_mode))
        return err_set(err, STATUS_BAD_INPUT, 0, "%s: not a regular file", gz->path);
    gz->file_bytes = (uint64_t)found.st_size;
    status = fill(gz, err);
    if (status != STATUS_OK)
        return status;
    gz->is_compressed =
        gz->stream.avail_in >= 2 && gz->input[0] == 0x1f && gz->input[1] == 0x8b; /* RFC 1952 */
    if (gz->is_compressed && inflateInit2(&gz->stream, GZIP_WINDOW) != Z_OK)
        return err_set(err, STATUS_MEMORY, 0, "%s: no memory to decompress it", gz->path);
    gz->has_inflate = gz->is_inside = gz->is_compressed;
    return STATUS_OK;
}

enum status gz_open(struct gz **out, const char *path, struct err *err)
{
    struct gz *gz = calloc(1, sizeof *gz);
    enum status status;

    *out = gz;
    if (gz == NULL)
        return err_set(err, STATUS_MEMORY, 0, "%s: no memory to read it", path);
    (void)snprintf(gz->path, sizeof gz->path, "%s", path);
    gz->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe could block for ever */
    if (gz->fd < 0)
        status = err_set(err, errno == ENOENT ? STATUS_NOT_FOUND : STATUS_IO, errno,
                         "%s: cannot open: %s", path, strerror(errno));
    else
        status = begin(gz, err);
    if (status != STATUS_OK)
        gz_close(out);
    return status;
}

void gz_close(struct gz **gz)
{
    if (*gz == NULL)
        return;
    if ((*gz)->has_inflate)
        (void)inflateEnd(&(*gz)->stream);
    if ((*gz)->fd >= 0)
        (void)close((*gz)->fd);
    free(*gz);
    *gz = NULL;
}

bool gz_is_compressed(const struct gz *gz)
{
    return gz->is_compressed;
}

uint64_t gz_file_bytes(const struct gz *gz)
{
    return gz->file_bytes;
}

static enum status read_plain(struct gz *gz, uint8_t *bytes, uint64_t byte_count, uint64_t *got,
                              struct err *err)
{
    enum status status = fill(gz, err);

    while (status == STATUS_OK && *got < byte_count && !gz->is_at_end) {
        uint64_t left = byte_count - *got;
        const uInt n = left < gz->stream.avail_in ? (uInt)left : gz->stream.avail_in;

        memcpy(bytes + *got, gz->stream.next_in, n);
        gz->stream.next_in += n;
        gz->stream.avail_in -= n;
        *got += n;
        status = fill(gz, err);
    }
    return status;
}

/* Between two members: the next one begins, or only zeros follow until the end. */
static enum status next_member(struct gz *gz, struct err *err)
{
    enum status status = fill(gz, err);

    while (status == STATUS_OK && !gz->is_at_end && *gz->stream.next_in == 0) {
        gz->stream.next_in++;
        gz->stream.avail_in--;
        status = fill(gz, err);
    }
    if (status != STATUS_OK || gz->is_at_end)
        return status;
    if (*gz->stream.next_in != 0x1f)
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "%s: damaged: after the compressed data, at byte %llu, other bytes follow",
                       gz->path, (unsigned long long)(gz->taken - gz->stream.avail_in));
    (void)inflateReset(&gz->stream);
    gz->is_inside = true;
    return STATUS_OK;
}

static enum status inflate_more(struct gz *gz, struct err *err)
{
    const int code = inflate(&gz->stream, Z_NO_FLUSH);

    if (code == Z_STREAM_END)
        gz->is_inside = false; /* zlib has checked its CRC and its length */
    if (code == Z_STREAM_END || code == Z_OK || (code == Z_BUF_ERROR && !gz->is_at_end))
        return STATUS_OK;
    if (code == Z_MEM_ERROR)
        return err_set(err, STATUS_MEMORY, code, "%s: no memory to decompress it", gz->path);
    if (code == Z_BUF_ERROR)
        return err_set(err, STATUS_BAD_INPUT, code,
                       "%s: cut off: the compressed data goes on after its %llu bytes: copy it "
                       "again",
                       gz->path, (unsigned long long)gz->file_bytes);
    return err_set(err, STATUS_BAD_INPUT, code, "%s: damaged before byte %llu (%s): copy it again",
                   gz->path, (unsigned long long)(gz->taken - gz->stream.avail_in),
                   gz->stream.msg != NULL ? gz->stream.msg : "not gzip");
}

enum status gz_read(struct gz *gz, void *bytes, uint64_t byte_count, uint64_t *got, struct err *err)
{
    enum status status = STATUS_OK;

    *got = 0;
    if (!gz->is_compressed)
        return read_plain(gz, bytes, byte_count, got, err);
    while (status == STATUS_OK && *got < byte_count) {
        const uint64_t left = byte_count - *got;
        const uInt room = left < INT32_MAX ? (uInt)left : INT32_MAX;

        status = gz->is_inside ? fill(gz, err) : next_member(gz, err);
        if (status != STATUS_OK || !gz->is_inside)
            break;
        gz->stream.next_out = (uint8_t *)bytes + *got;
        gz->stream.avail_out = room;
        status = inflate_more(gz, err);
        *got += room - gz->stream.avail_out;
    }
    return status;
}
