#include "launcherd/node/state_id.h"

#include <cjson/cJSON.h>
#include <dirent.h>
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
#include "common/io/read_all.h"
#include "common/io/write_all.h"
#include "launcherd/process/part_record.h"
#include "launcherd/process/rundir.h"

#define FILE_NAME "state-id.json"
#define RECORD_NAME                                                                                \
    PART_RECORD_DIR "/id.json" /* the same in the record of parts, process/part_record.h */

enum { FILE_BYTES_MAX = 1024, ID_BYTES = 16, FOLDERS_DEEP = 16 };

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

/* Whether the file was made where it is. The numbers of devices may be others after a restart of the machine. */
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

static enum status fail(struct err *err, const char *what, const char *state_dir, const char *name)
{
    return err_set(err, STATUS_IO, errno, "cannot %s %.150s/%s: %s", what, state_dir, name,
                   strerror(errno));
}

/* What is there may be of others: it is not replaced, so there can be no id. */
static enum status open_file(const char *state_dir, const char *name, int *fd, struct err *err)
{
    char path[PATH_MAX];
    struct err why;
    enum status status;

    rundir_join(path, state_dir, name);
    status = own_file_open(path, strchr(name, '/') != NULL ? 1 : 0, O_RDONLY, 0, fd, &why);
    if (status == STATUS_OK || status == STATUS_NOT_FOUND)
        return status;
    return err_set(err, status, why.code,
                   "the id of the state directory is left as it is: %.150s; move it away for a new "
                   "id",
                   why.text);
}

/* Where we are. */
struct place {
    const char *state_dir, *boot_id, *machine_id;
};

/* Reads the file of that name. *is_old is set if it is known, and of another boot. */
static enum status read_file(const struct place *place, const char *name,
                             char id[IDENTITY_BYTES_MAX], enum state_id_found *found, bool *is_old,
                             struct err *err)
{
    struct written written;
    char bytes[FILE_BYTES_MAX];
    struct stat stat;
    ssize_t got;
    bool is_read;
    int fd;
    enum status status = open_file(place->state_dir, name, &fd, err);

    *found = STATE_ID_NEW;
    if (status != STATUS_OK)
        return status == STATUS_NOT_FOUND ? STATUS_OK : status;
    got = read_all(fd, bytes, sizeof bytes);
    is_read = got >= 0 && fstat(fd, &stat) == 0;
    if (!is_read)
        (void)fail(err, "read", place->state_dir, name);
    close(fd);
    if (!is_read)
        return STATUS_IO;
    if (!decode(bytes, (size_t)got, &written))
        *found = STATE_ID_DAMAGED;
    else if (!is_original(&written, &stat, place->boot_id, place->machine_id))
        *found = STATE_ID_COPY;
    else
        *found = STATE_ID_KNOWN;
    if (*found != STATE_ID_KNOWN)
        return STATUS_OK;
    *is_old = *is_old || strcmp(written.boot_id, place->boot_id) != 0;
    (void)snprintf(id, IDENTITY_BYTES_MAX, "%s", written.id);
    return STATUS_OK;
}

/* Writes what cJSON would: all values are numbers or ids without characters to escape. */
static bool write_fields(int fd, const char *id, const struct place *place)
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
                      id, inode, device, place->boot_id, place->machine_id);
    return write_all(fd, text, (size_t)length);
}

static enum status random_id(const char *state_dir, char id[IDENTITY_BYTES_MAX], struct err *err)
{
    uint8_t bytes[ID_BYTES];

    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        return fail(err, "find random bytes for", state_dir, FILE_NAME);
    for (uint32_t i = 0; i < ID_BYTES; i++)
        (void)snprintf(id + 2 * (size_t)i, 3, "%02x", bytes[i]);
    return STATUS_OK;
}

/* Not synced: after a loss of power nothing runs, and another id does no harm. */
static enum status write_file(int dir_fd, const struct place *place, const char *name,
                              const char *id, struct err *err)
{
    char made[64];
    int fd;
    bool is_done;

    (void)snprintf(made, sizeof made, "%s.new", name);
    (void)unlinkat(dir_fd, made, 0); /* of a start that was cut short */
    fd = openat(dir_fd, made, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return fail(err, "write", place->state_dir, name);
    is_done = write_fields(fd, id, place) && renameat(dir_fd, made, dir_fd, name) == 0;
    if (!is_done)
        (void)fail(err, "write", place->state_dir, name);
    close(fd);
    if (!is_done)
        (void)unlinkat(dir_fd, made, 0);
    return is_done ? STATUS_OK : STATUS_IO;
}

/* Keeps a damaged file under another name. */
static enum status keep_damaged(const char *state_dir, struct err *err)
{
    char path[PATH_MAX];

    rundir_join(path, state_dir, FILE_NAME);
    return own_file_keep_damaged(path, 0, err);
}

static bool move(int from_fd, const char *name, int to_fd, const char *to, uint32_t depth);

static bool move_entries(int from_fd, int to_fd, uint32_t depth)
{
    DIR *list = own_folder_list(from_fd);
    const struct dirent *entry;
    bool is_moved = list != NULL;

    while (is_moved && (entry = readdir(list)) != NULL)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            is_moved = move(from_fd, entry->d_name, to_fd, entry->d_name, depth);
    if (list != NULL)
        (void)closedir(list);
    return is_moved;
}

/* The kernel renames no folder of a lower layer of overlayfs, as in a container's image: then its files are moved. */
static bool move(int from_fd, const char *name, int to_fd, const char *to, uint32_t depth)
{
    int from, into;
    bool is_moved;

    if (renameat(from_fd, name, to_fd, to) == 0)
        return true;
    if (errno != EXDEV || depth == 0 || mkdirat(to_fd, to, 0700) != 0)
        return false;
    from = openat(from_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    into = openat(to_fd, to, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    is_moved = from >= 0 && into >= 0 && move_entries(from, into, depth - 1) &&
               unlinkat(from_fd, name, AT_REMOVEDIR) == 0;
    if (from >= 0)
        (void)close(from);
    if (into >= 0)
        (void)close(into);
    return is_moved;
}

/* Moves a folder of the original aside, and makes an empty one. */
static enum status put_aside(int dir_fd, const char *state_dir, const char *name, const char *id,
                             char aside[64], struct err *err)
{
    char path[PATH_MAX], to[64];

    if (unlinkat(dir_fd, name, AT_REMOVEDIR) != 0 && errno != ENOENT) {
        (void)snprintf(to, sizeof to, "%s-of-copy-%.8s", name, id);
        if (!move(dir_fd, name, dir_fd, to, FOLDERS_DEEP))
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

/* Reads both files, which together say what the directory is. */
static enum status find(const struct place *place, char id[IDENTITY_BYTES_MAX],
                        enum state_id_found *found, bool *is_old, struct err *err)
{
    char record_id[IDENTITY_BYTES_MAX] = "";
    enum state_id_found record;
    enum status status = read_file(place, FILE_NAME, id, found, is_old, err);

    if (status == STATUS_OK)
        status = read_file(place, RECORD_NAME, record_id, &record, is_old, err);
    if (status != STATUS_OK)
        return status;
    if (*found == STATE_ID_KNOWN && (record != STATE_ID_KNOWN || strcmp(id, record_id) != 0)) {
        *found = STATE_ID_NO_RECORD;
    } else if (*found == STATE_ID_NEW || *found == STATE_ID_DAMAGED) {
        if (*found == STATE_ID_DAMAGED)
            status = keep_damaged(place->state_dir, err);
        if (record == STATE_ID_KNOWN) {
            *found = STATE_ID_RESTORED;
            (void)snprintf(id, IDENTITY_BYTES_MAX, "%s", record_id);
        } else if (record == STATE_ID_COPY) {
            *found = STATE_ID_COPY;
        }
    }
    return status;
}

static enum status put_copy_aside(int dir_fd, const char *state_dir, const char *id, char aside[64],
                                  struct err *err)
{
    char other[64];
    enum status status = put_aside(dir_fd, state_dir, "warm", id, other, err);

    if (status == STATUS_OK)
        status = put_aside(dir_fd, state_dir, PART_RECORD_DIR, id, other, err);
    return status == STATUS_OK ? put_aside(dir_fd, state_dir, "run", id, aside, err) : status;
}

/* The record's own comes first: a start that is cut short between the two finds no record. */
static enum status write_files(int dir_fd, const struct place *place, const char *id,
                               enum state_id_found found, struct err *err)
{
    char path[PATH_MAX];
    enum status status = STATUS_OK;

    if (found != STATE_ID_RESTORED) {
        rundir_join(path, place->state_dir, PART_RECORD_DIR);
        status = rundir_make(path, 0700, err);
        if (status == STATUS_OK)
            status = write_file(dir_fd, place, RECORD_NAME, id, err);
    }
    return status == STATUS_OK ? write_file(dir_fd, place, FILE_NAME, id, err) : status;
}

enum status state_id_load(const char *state_dir, const char *boot_id, const char *machine_id,
                          char id[IDENTITY_BYTES_MAX], enum state_id_found *found, char aside[64],
                          struct err *err)
{
    const struct place place = {state_dir, boot_id, machine_id};
    const int dir_fd = open(state_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool is_old = false;
    enum status status;
    struct err none;

    *found = STATE_ID_NEW;
    id[0] = aside[0] = '\0';
    if (dir_fd < 0)
        return fail(err, "read", state_dir, FILE_NAME);
    status = find(&place, id, found, &is_old, err);
    if (status == STATUS_OK && *found != STATE_ID_KNOWN && *found != STATE_ID_RESTORED)
        status = random_id(state_dir, id, err);
    if (status == STATUS_OK && *found == STATE_ID_COPY)
        status = put_copy_aside(dir_fd, state_dir, id, aside, err);
    if (status == STATUS_OK && *found != STATE_ID_KNOWN)
        status = write_files(dir_fd, &place, id, *found, err);
    else if (status == STATUS_OK &&
             is_old) /* so that a copy that is made in this boot is noticed; it may be read-only */
        (void)write_files(dir_fd, &place, id, *found, &none);
    close(dir_fd);
    return status;
}
