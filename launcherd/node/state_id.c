#include "launcherd/node/state_id.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/io/own_path.h"
#include "common/io/write_all.h"
#include "launcherd/process/rundir.h"

#define FILE_NAME "state-id.json"
#define FILE_NAME_NEW FILE_NAME ".new"

enum { FILE_BYTES_MAX = 1024, ID_BYTES = 16 };

/* What the file says. */
struct written {
    char id[IDENTITY_BYTES_MAX], inode[24], device[24], boot_id[64], machine_id[IDENTITY_BYTES_MAX];
};

static bool take(const cJSON *object, const char *name, char *out, size_t out_bytes)
{
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, name));

    if (text == NULL || strlen(text) >= out_bytes)
        return false;
    (void)snprintf(out, out_bytes, "%s", text);
    return true;
}

static bool is_hex(const char *text)
{
    return text[0] != '\0' && strspn(text, "0123456789abcdef") == strlen(text);
}

static bool decode(const char *bytes, size_t byte_count, struct written *out)
{
    cJSON *object = cJSON_ParseWithLength(bytes, byte_count);
    const bool is_good = take(object, "state_id", out->id, sizeof out->id) && is_hex(out->id) &&
                         take(object, "inode", out->inode, sizeof out->inode) &&
                         take(object, "device", out->device, sizeof out->device) &&
                         take(object, "boot_id", out->boot_id, sizeof out->boot_id) &&
                         take(object, "machine_id", out->machine_id, sizeof out->machine_id);

    cJSON_Delete(object);
    return is_good;
}

static void number(char out[24], uint64_t value)
{
    (void)snprintf(out, 24, "%" PRIu64, value);
}

/* Whether the file was made where it is. */
static bool is_original(const struct written *written, const struct stat *stat, const char *boot_id,
                        const char *machine_id)
{
    char inode[24], device[24];

    number(inode, stat->st_ino);
    number(device, stat->st_dev);
    if (strcmp(written->inode, inode) != 0)
        return false;
    if (strcmp(written->boot_id, boot_id) == 0)
        return strcmp(written->device, device) == 0;
    return written->machine_id[0] == '\0' || machine_id[0] == '\0' ||
           strcmp(written->machine_id, machine_id) == 0;
}

static enum status fail(struct err *err, const char *what, const char *state_dir)
{
    return err_set(err, STATUS_IO, errno, "cannot %s %.150s/" FILE_NAME ": %s", what, state_dir,
                   strerror(errno));
}

/* What is there may be of others: it is not replaced, so there can be no id. */
static enum status open_file(const char *state_dir, int *fd, struct err *err)
{
    char path[PATH_MAX];
    struct err why;
    enum status status;

    rundir_join(path, state_dir, FILE_NAME);
    status = own_file_open(path, 0, O_RDONLY, 0, fd, &why);
    if (status == STATUS_OK || status == STATUS_NOT_FOUND)
        return status;
    return err_set(err, status, why.code,
                   "the id of the state directory is left as it is: %.150s; move it away for a new "
                   "id",
                   why.text);
}

/* Reads the file that is there. */
static enum status read_file(const char *state_dir, const char *boot_id, const char *machine_id,
                             char id[IDENTITY_BYTES_MAX], enum state_id_found *found,
                             struct err *err)
{
    struct written written;
    char bytes[FILE_BYTES_MAX];
    struct stat stat;
    ssize_t got;
    bool is_read;
    int fd;
    enum status status = open_file(state_dir, &fd, err);

    *found = STATE_ID_NEW;
    if (status != STATUS_OK)
        return status == STATUS_NOT_FOUND ? STATUS_OK : status;
    got = read(fd, bytes, sizeof bytes);
    is_read = got >= 0 && fstat(fd, &stat) == 0;
    if (!is_read)
        (void)fail(err, "read", state_dir);
    close(fd);
    if (!is_read)
        return STATUS_IO;
    if (!decode(bytes, (size_t)got, &written))
        *found = STATE_ID_DAMAGED;
    else if (!is_original(&written, &stat, boot_id, machine_id))
        *found = STATE_ID_COPY;
    else
        *found = STATE_ID_KNOWN;
    if (*found == STATE_ID_KNOWN)
        (void)snprintf(id, IDENTITY_BYTES_MAX, "%s", written.id);
    return STATUS_OK;
}

/* Writes what cJSON would: all values are numbers or ids without characters to escape. */
static bool write_fields(int fd, const char *id, const char *boot_id, const char *machine_id)
{
    char text[FILE_BYTES_MAX], inode[24], device[24];
    struct stat stat;
    int length;

    if (fstat(fd, &stat) != 0)
        return false;
    number(inode, stat.st_ino);
    number(device, stat.st_dev);
    length = snprintf(text, sizeof text,
                      "{\"version\":1,\"state_id\":\"%s\",\"inode\":\"%s\",\"device\":\"%s\","
                      "\"boot_id\":\"%s\",\"machine_id\":\"%s\"}\n",
                      id, inode, device, boot_id, machine_id);
    return write_all(fd, text, (size_t)length);
}

static enum status random_id(const char *state_dir, char id[IDENTITY_BYTES_MAX], struct err *err)
{
    uint8_t bytes[ID_BYTES];

    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        return fail(err, "find random bytes for", state_dir);
    for (uint32_t i = 0; i < ID_BYTES; i++)
        (void)snprintf(id + 2 * (size_t)i, 3, "%02x", bytes[i]);
    return STATUS_OK;
}

/* Not synced: after a loss of power nothing runs, and another id does no harm. */
static enum status write_file(int dir_fd, const char *state_dir, const char *boot_id,
                              const char *machine_id, const char *id, struct err *err)
{
    int fd;
    bool is_done;

    (void)unlinkat(dir_fd, FILE_NAME_NEW, 0); /* of a start that was cut short */
    fd = openat(dir_fd, FILE_NAME_NEW, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return fail(err, "write", state_dir);
    is_done = write_fields(fd, id, boot_id, machine_id) &&
              renameat(dir_fd, FILE_NAME_NEW, dir_fd, FILE_NAME) == 0;
    if (!is_done)
        (void)fail(err, "write", state_dir);
    close(fd);
    if (!is_done)
        (void)unlinkat(dir_fd, FILE_NAME_NEW, 0);
    return is_done ? STATUS_OK : STATUS_IO;
}

/* Keeps a damaged file under another name. */
static enum status keep_damaged(const char *state_dir, struct err *err)
{
    char path[PATH_MAX];

    rundir_join(path, state_dir, FILE_NAME);
    return own_file_put_aside(path, STATE_ID_DAMAGED_END, 0, err);
}

/* Moves a folder of the original aside, and makes an empty one. */
static enum status put_aside(int dir_fd, const char *state_dir, const char *name, const char *id,
                             char aside[64], struct err *err)
{
    char path[PATH_MAX], to[64];

    if (unlinkat(dir_fd, name, AT_REMOVEDIR) != 0 && errno != ENOENT) {
        (void)snprintf(to, sizeof to, "%s-of-copy-%.8s", name, id);
        if (renameat(dir_fd, name, dir_fd, to) != 0)
            return err_set(err, STATUS_IO, errno,
                           "%.120s was not made where it is now, and %s in it cannot be moved "
                           "aside: %s",
                           state_dir, name, strerror(errno));
        (void)snprintf(aside, 64, "%s", to);
    }
    if (strcmp(name, "run") != 0)
        return STATUS_OK; /* made when it is needed */
    rundir_join(path, state_dir, name);
    return rundir_make(path, 0700, err);
}

enum status state_id_load(const char *state_dir, const char *boot_id, const char *machine_id,
                          char id[IDENTITY_BYTES_MAX], enum state_id_found *found, char aside[64],
                          struct err *err)
{
    const int dir_fd = open(state_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    enum status status;

    *found = STATE_ID_NEW;
    id[0] = aside[0] = '\0';
    if (dir_fd < 0)
        return fail(err, "read", state_dir);
    status = read_file(state_dir, boot_id, machine_id, id, found, err);
    if (status == STATUS_OK && *found != STATE_ID_KNOWN)
        status = random_id(state_dir, id, err);
    if (status == STATUS_OK && *found == STATE_ID_DAMAGED)
        status = keep_damaged(state_dir, err);
    if (status == STATUS_OK && *found == STATE_ID_COPY)
        status = put_aside(dir_fd, state_dir, "warm", id, aside, err);
    if (status == STATUS_OK && *found == STATE_ID_COPY)
        status = put_aside(dir_fd, state_dir, "run", id, aside, err);
    if (status == STATUS_OK && *found != STATE_ID_KNOWN)
        status = write_file(dir_fd, state_dir, boot_id, machine_id, id, err);
    close(dir_fd);
    return status;
}
