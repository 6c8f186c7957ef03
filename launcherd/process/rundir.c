#include "launcherd/process/rundir.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "common/buf.h"
#include "common/frame.h"
#include "common/io/own_path.h"
#include "common/io/own_tree.h"
#include "common/io/read_all.h"
#include "common/io/write_all.h"
#include "common/log.h"
#include "common/stage.h"
#include "launcherd/process/part_record.h"

void rundir_join(char out[PATH_MAX], const char *dir, const char *name)
{
    assert(name[0] != '\0' && strlen(name) < 256);
    (void)snprintf(out, PATH_MAX, "%.*s/%s", PATH_MAX - 300, dir, name);
}

void rundir_path(char out[PATH_MAX], const char *state_dir, const char *cluster, uint64_t job_id,
                 uint32_t generation)
{
    (void)snprintf(out, PATH_MAX, "%.*s/run/%s-%llu-g%u", PATH_MAX - 300, state_dir, cluster,
                   (unsigned long long)job_id, generation);
}

void rundir_warm_path(char out[PATH_MAX], const char *state_dir, const char *cluster,
                      uint64_t job_id)
{
    (void)snprintf(out, PATH_MAX, "%.*s/warm/%s-%llu", PATH_MAX - 300, state_dir, cluster,
                   (unsigned long long)job_id);
}

void rundir_log_dir(char out[PATH_MAX], const struct rundir_logs *logs, const char *cluster,
                    uint64_t job_id, int64_t submitted_ms)
{
    char submitted[24] = "";

    if (submitted_ms != 0)
        (void)snprintf(submitted, sizeof submitted, "-%lld", (long long)submitted_ms);
    (void)snprintf(out, PATH_MAX, "%.*s/%s-%llu%s%s%.*s", PATH_MAX - 300, logs->dir, cluster,
                   (unsigned long long)job_id, submitted, logs->owner[0] != '\0' ? "." : "",
                   RUNDIR_OWNER_CHARS, logs->owner);
}

void rundir_rank_log(char out[PATH_MAX], const char *log_dir, uint32_t generation, uint32_t rank)
{
    (void)snprintf(out, PATH_MAX, "%.*s/g%u-rank%u.log", PATH_MAX - 300, log_dir, generation, rank);
}

void rundir_rank_dir(char out[PATH_MAX], const char *log_dir, uint32_t generation)
{
    (void)snprintf(out, PATH_MAX, "%.*s/g%u-errors", PATH_MAX - 300, log_dir, generation);
}

void rundir_rank_metrics(char out[PATH_MAX], const char *rank_dir, uint32_t rank)
{
    (void)snprintf(out, PATH_MAX, "%.*s/rank%u.metrics.jsonl", PATH_MAX - 200, rank_dir, rank);
}

void rundir_rank_error(char out[PATH_MAX], const char *rank_dir, uint32_t rank)
{
    (void)snprintf(out, PATH_MAX, "%.*s/rank%u.json", PATH_MAX - 200, rank_dir, rank);
}

/* -- the state directory -- */

static struct {
    char path[PATH_MAX]; /* empty: not known */
    dev_t device;
    ino_t inode;
} opened;

void rundir_state_opened(const char *state_dir, int fd)
{
    struct stat stat;

    if (fstat(fd, &stat) != 0)
        return;
    (void)snprintf(opened.path, sizeof opened.path, "%s", state_dir);
    opened.device = stat.st_dev;
    opened.inode = stat.st_ino;
}

enum status rundir_state_check(const char *path, struct err *err)
{
    const size_t length = strlen(opened.path);
    struct stat stat;
    enum status status;
    bool is_same;
    int fd;

    if (length == 0 || strncmp(path, opened.path, length) != 0 ||
        (path[length] != '/' && path[length] != '\0'))
        return STATUS_OK;
    status = own_folder_open(opened.path, 0, &fd, err);
    if (status != STATUS_OK && status != STATUS_NOT_FOUND)
        return status;
    is_same = status == STATUS_OK && fstat(fd, &stat) == 0 && stat.st_dev == opened.device &&
              stat.st_ino == opened.inode;
    if (status == STATUS_OK)
        close(fd);
    if (is_same)
        return STATUS_OK;
    return err_set(err, STATUS_CONFLICT, 0,
                   "the state directory %.90s is no longer the one that launcherd opened: put it "
                   "back, or restart launcherd with its new path",
                   opened.path);
}

/* -- the folders -- */

/* own_folder_make, if the state directory is where it was. */
static enum status make_folder(const char *path, uint32_t ours, mode_t mode, int *fd,
                               struct err *err)
{
    const enum status status = rundir_state_check(path, err);

    return status == STATUS_OK ? own_folder_make(path, ours, mode, fd, err) : status;
}

/* Opens a run directory, or one of warm processes: it and its parent are ours. */
static enum status open_dir(const char *dir, int *fd, struct err *err)
{
    return own_folder_open(dir, 2, fd, err);
}

enum status rundir_make(const char *path, mode_t mode, struct err *err)
{
    int fd = -1;
    enum status status = make_folder(path, 1, mode, &fd, err);

    if (status == STATUS_OK)
        close(fd);
    return status;
}

enum status rundir_make_dir(const char *path, struct err *err)
{
    int fd = -1;
    enum status status = make_folder(path, 2, 0700, &fd, err);

    if (status == STATUS_OK)
        close(fd);
    return status;
}

enum status rundir_make_for(const char *path, const uid_t *uid, const gid_t *gid, struct err *err)
{
    const char *slash = strrchr(path, '/'), *name = slash + 1;
    const int flags = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    char parent[PATH_MAX];
    struct stat stat;
    enum status status;
    int parent_fd, fd;

    assert(slash != NULL && (uid == NULL) == (gid == NULL));
    (void)snprintf(parent, sizeof parent, "%.*s", (int)(name - path), path);
    status = make_folder(parent, 1, 0700, &parent_fd, err);
    if (status != STATUS_OK)
        return status;
    fd = mkdirat(parent_fd, name, 0700) == 0 || errno == EEXIST ? openat(parent_fd, name, flags)
                                                                : -1;
    if (fd < 0 || fstat(fd, &stat) != 0)
        status = err_set(err, STATUS_IO, errno, "cannot make the folder %.180s: %s", path,
                         strerror(errno));
    else if (stat.st_uid != geteuid() && (uid == NULL || stat.st_uid != *uid))
        status = err_set(err, STATUS_REFUSED, 0, "the folder %.160s belongs to another user, %u",
                         path, (unsigned)stat.st_uid);
    else if (uid != NULL && fchownat(fd, "", *uid, *gid, AT_EMPTY_PATH) != 0)
        status = err_set(err, STATUS_IO, errno, "cannot give %.150s to its user: %s", path,
                         strerror(errno));
    if (fd >= 0)
        close(fd);
    close(parent_fd);
    return status;
}

/* -- their names -- */

/* "-1" to "-18446744073709551615" at the end of name[length], with `mark` in place of the "-". The
 * length of what is before it; 0: it does not end so, or nothing is before it. */
static size_t without_number(const char *name, size_t length, const char *mark)
{
    const size_t mark_length = strlen(mark);
    size_t digits = 0;

    while (digits < length && name[length - 1 - digits] >= '0' && name[length - 1 - digits] <= '9')
        digits++;
    if (digits == 0 || digits > 20 || name[length - digits] == '0' ||
        length <= digits + mark_length ||
        strncmp(name + length - digits - mark_length, mark, mark_length) != 0)
        return 0;
    return length - digits - mark_length;
}

static bool is_cluster(const char *name, size_t length)
{
    return length > 0 &&
           strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") >=
               length;
}

bool rundir_is_name(const char *name)
{
    return is_cluster(name, without_number(name, without_number(name, strlen(name), "-g"), "-"));
}

bool rundir_parse_name(const char *name, char cluster[33], uint64_t *job_id, uint32_t *generation)
{
    const size_t job_end = without_number(name, strlen(name), "-g");
    const size_t cluster_end = without_number(name, job_end, "-");
    uint64_t number;

    if (!is_cluster(name, cluster_end) || cluster_end > 32)
        return false;
    number = strtoull(name + job_end + 2, NULL, 10);
    *job_id = strtoull(name + cluster_end + 1, NULL, 10);
    *generation = (uint32_t)number;
    (void)snprintf(cluster, 33, "%.*s", (int)cluster_end, name);
    return *job_id > 0 && *job_id <= JOB_ID_MAX && number > 0 && number <= GENERATION_MAX;
}

bool rundir_is_warm_name(const char *name)
{
    return is_cluster(name, without_number(name, strlen(name), "-"));
}

/* -- removal -- */

/* Counts what is in the folder, and gives the name of one entry. -1: it cannot be read. */
static int count_entries(int fd, char one[NAME_MAX + 1])
{
    const struct dirent *entry;
    DIR *dir = own_folder_list(fd);
    int count = 0;

    one[0] = '\0';
    if (dir == NULL)
        return -1;
    while ((entry = readdir(dir)) != NULL) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        (void)snprintf(one, NAME_MAX + 1, "%s", entry->d_name);
        count++;
    }
    closedir(dir);
    return count;
}

/* Removes the files that we make there, by name: all those of the comment in rundir.h. errno of what
 * stops that, such as a disk that takes no writes; 0: nothing. */
static int remove_files(int fd)
{
    static const char *const names[] = {"start.msg",     "start.msg.new", "shim.json",
                                        "shim.json.new", "end.msg",       "end.msg.new",
                                        "shim.sock",     "store.sock",    "stage.tar"};
    int code = 0;

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (unlinkat(fd, names[i], 0) != 0 && errno != ENOENT && errno != EISDIR)
            code = errno;
    return code;
}

/* `stopped`: of remove_files; `code`: of the folder's own removal. */
static void tell_left(const char *path, int fd, int stopped, int code)
{
    char one[NAME_MAX + 1];
    const int count = stopped != 0 ? 0 : count_entries(fd, one);

    if (count > 0)
        log_line(LOG_WARNING, LOG_ABOUT_NONE,
                 "%s has %d files that launcherd did not make, such as \"%s\": they and the "
                 "folder are left alone",
                 path, count, one);
    else
        log_line(LOG_WARNING, LOG_ABOUT_NONE, "the folder %s cannot be removed: %s", path,
                 strerror(stopped != 0 ? stopped : code));
}

void rundir_remove(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash + 1;
    char parent[PATH_MAX];
    int parent_fd = -1, fd = -1, stopped;
    bool is_warm;
    struct err err;
    enum status status;

    assert(slash != NULL);
    (void)snprintf(parent, sizeof parent, "%.*s", (int)(slash - path), path);
    is_warm = strcmp(strrchr(parent, '/') + 1, "warm") == 0;
    if (is_warm ? !rundir_is_warm_name(name) : !rundir_is_name(name)) {
        log_line(LOG_WARNING, LOG_ABOUT_NONE, "%s has no name of ours: it is left alone", path);
        return;
    }
    /* First: else the next launcherd would make the directory anew. With what stays it finds the directory, too. */
    if (!part_record_drop(path))
        return;
    status = own_folder_open(parent, 1, &parent_fd, &err);
    if (status == STATUS_OK)
        status = own_folder_open_at(parent_fd, name, &fd, &err);
    if (status != STATUS_OK && status != STATUS_NOT_FOUND)
        log_line(LOG_WARNING, LOG_ABOUT_NONE, "%s is left alone: %s", path, err.text);
    if (status == STATUS_OK) {
        stopped = remove_files(fd);
        if (unlinkat(parent_fd, name, AT_REMOVEDIR) != 0)
            tell_left(path, fd, stopped, errno);
        close(fd);
    }
    if (parent_fd >= 0)
        close(parent_fd);
}

enum status rundir_check(const char *path, struct err *err)
{
    int fd;
    enum status status = open_dir(path, &fd, err);

    if (status == STATUS_OK)
        close(fd);
    return status;
}

void rundir_remove_all(int parent_fd, const char *name)
{
    own_tree_remove(parent_fd, name);
}

/* -- links -- */

enum status rundir_link_stage(const char *dir, const char *state_dir, const char *cwd,
                              struct err *err)
{
    char hash[STAGE_HASH_CHARS + 1], from[PATH_MAX], name[STAGE_HASH_CHARS + 8];
    int from_fd, to_fd = -1;
    enum status status;

    if (!stage_of_cwd(cwd, hash))
        return STATUS_OK;
    (void)snprintf(from, sizeof from, "%.4000s/stage", state_dir);
    (void)snprintf(name, sizeof name, "%s.tar", hash);
    status = own_folder_open(from, 1, &from_fd, err);
    if (status != STATUS_OK)
        return status;
    status = open_dir(dir, &to_fd, err);
    if (status == STATUS_OK && linkat(from_fd, name, to_fd, "stage.tar", 0) != 0)
        status = err_set(err, STATUS_IO, errno, "cannot use the staged directory %.16s...: %s",
                         hash, strerror(errno));
    close(from_fd);
    if (to_fd >= 0)
        close(to_fd);
    return status;
}

bool rundir_move_shim(const char *from, const char *to)
{
    int from_fd, to_fd = -1;
    struct err err;
    bool is_moved = false;

    if (open_dir(from, &from_fd, &err) != STATUS_OK)
        return false;
    if (open_dir(to, &to_fd, &err) == STATUS_OK) {
        is_moved = renameat(from_fd, "shim.json", to_fd, "shim.json") == 0;
        close(to_fd);
    }
    close(from_fd);
    return is_moved;
}

/* -- files -- */

/* Writes NAME in the folder `fd`, which is `dir`. */
static enum status write_in(int fd, const char *dir, const char *name, const void *bytes,
                            size_t byte_count, struct err *err)
{
    const int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    char temporary[NAME_MAX + 1];
    int file, code;
    bool done;

    (void)snprintf(temporary, sizeof temporary, "%.200s.new", name);
    (void)unlinkat(fd, temporary, 0); /* left by a process that was killed */
    file = openat(fd, temporary, flags, 0600);
    done = file >= 0 && write_all(file, bytes, byte_count);
    code = errno;
    if (file >= 0)
        close(file);
    if (done && renameat(fd, temporary, fd, name) == 0)
        return STATUS_OK;
    code = done ? errno : code;
    if (file >= 0)
        (void)unlinkat(fd, temporary, 0);
    return err_set(err, STATUS_IO, code, "cannot write %.150s/%.40s: %s", dir, name,
                   strerror(code));
}

/* Not synced: a crash of the machine may lose the rename, but it also ends the processes that the
 * file describes. */
enum status rundir_write(const char *dir, const char *name, const void *bytes, size_t byte_count,
                         struct err *err)
{
    int fd;
    enum status status = open_dir(dir, &fd, err);

    assert(byte_count == 0 || bytes != NULL);
    if (status != STATUS_OK)
        return status;
    status = write_in(fd, dir, name, bytes, byte_count, err);
    close(fd);
    return status;
}

enum status rundir_write_state(const char *state_dir, const char *name, const void *bytes,
                               size_t byte_count, struct err *err)
{
    int fd;
    enum status status = rundir_state_check(state_dir, err);

    if (status == STATUS_OK)
        status = own_folder_open(state_dir, 0, &fd, err);
    if (status != STATUS_OK)
        return status;
    status = write_in(fd, state_dir, name, bytes, byte_count, err);
    close(fd);
    return status;
}

enum status rundir_write_msg(const char *dir, const char *name, struct msg *msg, struct err *err)
{
    struct buf buf = {0};
    enum status status = msg_encode(msg, &buf, err);
    if (status == STATUS_OK)
        status = rundir_write(dir, name, buf.bytes, buf.byte_count, err);
    buf_free(&buf);
    return status;
}

static enum status read_file(const char *path, uint32_t ours, struct arena *arena, char **bytes,
                             size_t *byte_count, struct err *err)
{
    struct stat stat;
    int fd;
    enum status status = own_file_open(path, ours, O_RDONLY, 0, &fd, err);

    if (status != STATUS_OK)
        return status;
    if (fstat(fd, &stat) != 0 || stat.st_size < 0 ||
        stat.st_size > (off_t)(FRAME_LARGE_BYTES_MAX + FRAME_HEAD_BYTES)) {
        status = err_set(err, STATUS_TOO_BIG, 0, "%.180s is larger than any message", path);
    } else {
        *byte_count = (size_t)stat.st_size;
        *bytes = arena_alloc(arena, *byte_count + 1);
        ssize_t got = *bytes == NULL ? -1 : read_all(fd, *bytes, *byte_count);
        if (*bytes == NULL)
            status = err_set(err, STATUS_MEMORY, 0, "no memory to read %.180s", path);
        else if (got < 0)
            status =
                err_set(err, STATUS_IO, errno, "cannot read %.180s: %s", path, strerror(errno));
        else if (got != stat.st_size)
            status = err_set(err, STATUS_IO, 0, "%.180s became shorter while it was read", path);
    }
    close(fd);
    return status;
}

enum status rundir_read(const char *dir, const char *name, struct arena *arena, char **bytes,
                        size_t *byte_count, struct err *err)
{
    char path[PATH_MAX];

    rundir_join(path, dir, name);
    return read_file(path, 2, arena, bytes, byte_count, err);
}

enum status rundir_read_state(const char *state_dir, const char *name, struct arena *arena,
                              char **bytes, size_t *byte_count, struct err *err)
{
    char path[PATH_MAX];

    rundir_join(path, state_dir, name);
    return read_file(path, 0, arena, bytes, byte_count, err);
}

enum status rundir_read_msg(const char *dir, const char *name, struct arena *arena, struct msg *msg,
                            struct err *err)
{
    char *bytes = NULL;
    const char *payload = NULL;
    size_t byte_count = 0, payload_bytes = 0;

    enum status status = rundir_read(dir, name, arena, &bytes, &byte_count, err);
    if (status != STATUS_OK)
        return status;
    status = frame_next(bytes, byte_count, FRAME_LARGE_BYTES_MAX, &payload, &payload_bytes, err);
    if (status == STATUS_BUSY)
        return err_set(err, STATUS_BAD_INPUT, 0, "%.120s/%.60s is cut short", dir, name);
    if (status != STATUS_OK)
        return status;
    return msg_decode_stored(payload, payload_bytes, arena, msg, err);
}

enum status rundir_write_shim(const char *dir, const struct rundir_shim *shim, struct err *err)
{
    char ticks[32], *text = NULL;
    enum status status;
    cJSON *object = cJSON_CreateObject();

    (void)snprintf(ticks, sizeof ticks, "%llu", (unsigned long long)shim->start_ticks);
    if (cJSON_AddNumberToObject(object, "pid", shim->pid) != NULL &&
        cJSON_AddStringToObject(object, "start_ticks", ticks) != NULL &&
        cJSON_AddStringToObject(object, "boot_id", shim->boot_id) != NULL &&
        cJSON_AddStringToObject(object, "machine_id", shim->machine_id) != NULL &&
        cJSON_AddStringToObject(object, "pid_ns", shim->pid_ns) != NULL &&
        cJSON_AddStringToObject(object, "token", shim->token) != NULL &&
        cJSON_AddStringToObject(object, "cgroup", shim->cgroup) != NULL)
        text = cJSON_PrintUnformatted(object);
    status = text == NULL ? err_set(err, STATUS_MEMORY, ENOMEM, "no memory")
                          : rundir_write(dir, "shim.json", text, strlen(text), err);
    cJSON_free(text);
    cJSON_Delete(object);
    return status;
}

static bool take_text(const cJSON *object, const char *name, char *out, size_t out_bytes)
{
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, name));
    if (text == NULL || strlen(text) >= out_bytes)
        return false;
    memcpy(out, text, strlen(text) + 1);
    return true;
}

/* Fields that an earlier launcherd does not write are empty. */
static bool take_shim(const cJSON *object, struct rundir_shim *shim)
{
    const cJSON *pid = cJSON_GetObjectItemCaseSensitive(object, "pid");
    char ticks[32];

    if (!cJSON_IsNumber(pid) || pid->valuedouble < 1 || pid->valuedouble > INT32_MAX ||
        !take_text(object, "start_ticks", ticks, sizeof ticks) ||
        !take_text(object, "boot_id", shim->boot_id, sizeof shim->boot_id) ||
        !take_text(object, "token", shim->token, sizeof shim->token))
        return false;
    if (!take_text(object, "cgroup", shim->cgroup, sizeof shim->cgroup))
        shim->cgroup[0] = '\0';
    if (!take_text(object, "pid_ns", shim->pid_ns, sizeof shim->pid_ns))
        shim->pid_ns[0] = '\0';
    if (!take_text(object, "machine_id", shim->machine_id, sizeof shim->machine_id))
        shim->machine_id[0] = '\0';
    shim->pid = (pid_t)pid->valuedouble;
    shim->start_ticks = strtoull(ticks, NULL, 10);
    return true;
}

enum status rundir_read_shim_of(const char *dir, const char *name, uint32_t ours,
                                struct rundir_shim *shim, struct err *err)
{
    char path[PATH_MAX], *bytes = NULL;
    size_t byte_count = 0;
    struct arena arena = {.byte_limit = 65536};
    enum status status;

    rundir_join(path, dir, name);
    status = read_file(path, ours, &arena, &bytes, &byte_count, err);
    if (status == STATUS_OK) {
        cJSON *object = cJSON_ParseWithLength(bytes, byte_count);

        if (!take_shim(object, shim))
            status = err_set(err, STATUS_BAD_INPUT, 0, "%.180s does not describe a shim", path);
        cJSON_Delete(object);
    }
    arena_reset(&arena);
    return status;
}

enum status rundir_read_shim(const char *dir, struct rundir_shim *shim, struct err *err)
{
    return rundir_read_shim_of(dir, "shim.json", 2, shim, err);
}
