/* Whose a file in the folder of checkpoints is. The folder is the user's, and so may be a file with a name that we
 * use. A file is removed or replaced only if it is known to be ours; what is in the way and is not is moved to
 * DIR/earlier-<n>, and a log line names it. Known to be ours is
 *
 * - a plain file that begins as ours do. A few bytes tell, so one that was cut short is known, too. A file of tensors
 *   from a version that had no mark of its own is known by its .json, which has its size;
 * - a symbolic link at best.safetensors or latest.safetensors, to a step-<8 digits>.safetensors beside it;
 * - a temporary file with this process's number in its name, or with that of another owner if it holds less than
 *   such a beginning.
 *
 * A check and the rename or removal after it are two calls. Between them the user may put another file there. */
#include "worker/checkpoint/internal.h"

#include <assert.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/log.h"

enum { PATH_BYTES = CHECKPOINT_PATH_BYTES, EARLIER_MAX = 1000, TOKEN_OLD_S = 3600 };
enum { HEAD_BYTES = 256, LENGTH_BYTES = 8, ID_DIGITS = CHECKPOINT_ID_BYTES - 1 };

enum kind { KIND_NONE, KIND_TENSORS, KIND_STATE, KIND_MARK, KIND_LINK };
enum whose { WHOSE_NOBODYS, WHOSE_OURS, WHOSE_OTHERS, WHOSE_UNKNOWN /* it cannot be read */ };

#define TENSORS_BEGIN "{\"__metadata__\":{\"format\":\"pt\",\"writer\":\"" CHECKPOINT_WRITER "\""

static const char *const begins[] = {
    [KIND_NONE] = "",
    [KIND_TENSORS] = TENSORS_BEGIN,
    [KIND_STATE] = "{\"schema\":\"ddp.checkpoint.v1\"",
    [KIND_MARK] = "{\"schema\":\"ddp.mark.v1\"",
    [KIND_LINK] = TENSORS_BEGIN, /* a copy in place of the link */
};

struct named {
    enum kind kind;
    uint32_t step; /* of tensors and a state */
    bool is_temp;
    bool has_id; /* a temporary file with the number of an owner in its name */
};

/* -- names -- */

static const char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash != NULL ? slash + 1 : path;
}

/* Cuts `ending` off, if the name has it. */
static bool cut(char *name, const char *ending)
{
    const size_t length = strlen(name), cut_off = strlen(ending);

    if (length < cut_off || strcmp(name + length - cut_off, ending) != 0)
        return false;
    name[length - cut_off] = '\0';
    return true;
}

static bool cut_id(char *name)
{
    char *dot = strrchr(name, '.');

    if (dot == NULL || strlen(dot + 1) != ID_DIGITS ||
        strspn(dot + 1, "0123456789abcdef") != ID_DIGITS)
        return false;
    *dot = '\0';
    return true;
}

static struct named parse(const char *name)
{
    struct named named = {.kind = KIND_NONE};
    char base[96];

    if (snprintf(base, sizeof base, "%s", name) >= (int)sizeof base)
        return named;
    named.is_temp = cut(base, ".tmp");
    named.has_id = named.is_temp && cut_id(base);
    if (checkpoint_parse_name(base, ".safetensors", &named.step))
        named.kind = KIND_TENSORS;
    else if (checkpoint_parse_name(base, ".json", &named.step))
        named.kind = KIND_STATE;
    else if (strcmp(base, "best.json") == 0 || strcmp(base, "latest.json") == 0)
        named.kind = KIND_MARK;
    else if (strcmp(base, "best.safetensors") == 0 || strcmp(base, "latest.safetensors") == 0)
        named.kind = KIND_LINK;
    return named;
}

/* -- whose -- */

/* Whether a file of that kind which begins with `head` [n] is ours. `may_be_cut`: the file may also end within what
 * is compared. */
static bool begins_as_ours(enum kind kind, const char *head, size_t n, bool may_be_cut)
{
    const bool is_tensors = kind == KIND_TENSORS || kind == KIND_LINK;
    const char *expected = begins[kind];
    const bool is_whole = n < HEAD_BYTES;

    for (size_t i = is_tensors ? LENGTH_BYTES : 0; i < n && *expected != '\0'; i++) {
        if (!is_tensors && isspace((unsigned char)head[i]))
            continue; /* a .json may have been formatted anew */
        if (head[i] != *expected++)
            return false;
    }
    return *expected == '\0' || (may_be_cut && is_whole);
}

/* The first bytes of a file; -1: it cannot be read. */
static ssize_t read_head(const char *path, int flags, char head[HEAD_BYTES])
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | flags);
    ssize_t n;

    if (fd < 0)
        return -1;
    n = read(fd, head, HEAD_BYTES);
    (void)close(fd);
    return n;
}

/* Files of versions that did not write the name of the writer. */
static bool is_as_the_state_says(const char *path, off_t size)
{
    struct checkpoint_state state;
    char state_path[PATH_BYTES], json_path[PATH_BYTES + sizeof ".json"], sha256[65];
    uint64_t bytes;

    (void)snprintf(state_path, sizeof state_path, "%s", path);
    if (!cut(state_path, ".safetensors"))
        return false;
    (void)snprintf(json_path, sizeof json_path, "%s.json", state_path);
    return checkpoint_read_state(json_path, &state, &bytes, sha256, NULL) == STATUS_OK &&
           bytes == (uint64_t)size;
}

static bool is_our_link(const struct named *named, const char *path)
{
    char target[64];
    const ssize_t n = readlink(path, target, sizeof target - 1);
    uint32_t step;

    target[n > 0 ? n : 0] = '\0';
    return named->kind == KIND_LINK && checkpoint_parse_name(target, ".safetensors", &step);
}

static enum whose whose(const char *path)
{
    const struct named named = parse(name_of(path));
    char head[HEAD_BYTES];
    struct stat found;
    ssize_t n;

    if (lstat(path, &found) != 0)
        return errno == ENOENT ? WHOSE_NOBODYS : WHOSE_UNKNOWN;
    if (S_ISLNK(found.st_mode))
        return is_our_link(&named, path) ? WHOSE_OURS : WHOSE_OTHERS;
    if (named.kind == KIND_NONE || !S_ISREG(found.st_mode))
        return WHOSE_OTHERS;
    n = read_head(path, O_NOFOLLOW, head);
    if (n < 0)
        return WHOSE_UNKNOWN;
    if (begins_as_ours(named.kind, head, (size_t)n, named.has_id))
        return WHOSE_OURS;
    return named.kind == KIND_TENSORS && !named.is_temp && is_as_the_state_says(path, found.st_size)
               ? WHOSE_OURS
               : WHOSE_OTHERS;
}

bool checkpoint_step_is_ours(const char *dir, uint32_t step)
{
    struct checkpoint_paths paths;
    enum whose tensors;

    checkpoint_make_paths(&paths, dir, step);
    tensors = whose(paths.tensors);
    return whose(paths.state) == WHOSE_OURS && (tensors == WHOSE_OURS || tensors == WHOSE_NOBODYS);
}

void checkpoint_remove_ours(const char *path)
{
    if (whose(path) == WHOSE_OURS)
        (void)unlink(path);
}

/* -- moving aside -- */

enum status checkpoint_make_earlier(struct checkpoint_dir *dir, struct err *err)
{
    for (int i = 1; i <= EARLIER_MAX; i++) {
        (void)snprintf(dir->earlier, sizeof dir->earlier, "%s/earlier-%d", dir->path, i);
        if (mkdir(dir->earlier, 0777) == 0)
            return STATUS_OK;
        if (errno != EEXIST)
            break;
    }
    dir->earlier[0] = '\0';
    return err_set(err, STATUS_IO, errno, "%s: cannot make a folder for the earlier run: %s",
                   dir->path, strerror(errno));
}

/* Moves what is at `path`, of whatever kind, to a name in DIR/earlier-<n> that is free. */
static enum status move_aside(struct checkpoint_dir *dir, const char *path, struct err *err)
{
    const char *name = name_of(path);
    char to[PATH_BYTES];
    struct stat found;
    enum status status = STATUS_OK;

    (void)snprintf(to, sizeof to, "%s/%s", dir->earlier, name);
    if (dir->earlier[0] == '\0' || lstat(to, &found) == 0)
        status = checkpoint_make_earlier(dir, err);
    if (status != STATUS_OK)
        return status;
    (void)snprintf(to, sizeof to, "%s/%s", dir->earlier, name);
    if (rename(path, to) != 0)
        return errno == ENOENT
                   ? STATUS_OK
                   : err_set(err, STATUS_IO, errno,
                             "%s is in the way, is not known to be ours, and cannot be moved to "
                             "%s: %s",
                             path, dir->earlier, strerror(errno));
    log_line(LOG_WARNING, LOG_ABOUT_NONE,
             "%s is in the way and is not known to be ours: moved to %s", path, dir->earlier);
    return STATUS_OK;
}

enum status checkpoint_make_way(struct checkpoint_dir *dir, const char *path, struct err *err)
{
    const enum whose is = whose(path);

    return is == WHOSE_OTHERS || is == WHOSE_UNKNOWN ? move_aside(dir, path, err) : STATUS_OK;
}

enum status checkpoint_make_way_for_temp(struct checkpoint_dir *dir, const char *path,
                                         struct err *err)
{
    checkpoint_remove_ours(path);
    return checkpoint_make_way(dir, path, err);
}

/* -- what a killed process has left -- */

static bool is_token_name(const char *name)
{
    const size_t prefix = strlen(CHECKPOINT_TOKEN_PREFIX);
    const char *at = name + prefix;

    if (strncmp(name, CHECKPOINT_TOKEN_PREFIX, prefix) != 0 ||
        strspn(at, "0123456789abcdef") != ID_DIGITS || at[ID_DIGITS] != '-')
        return false;
    at += ID_DIGITS + 1;
    return *at != '\0' && strspn(at, "0123456789") == strlen(at);
}

/* A token (copy.h) left by a killed rank: an empty file. Tokens of a meeting in progress are only
 * seconds old. */
static bool is_old_token(const char *path)
{
    struct stat found;

    return is_token_name(name_of(path)) && lstat(path, &found) == 0 && S_ISREG(found.st_mode) &&
           found.st_size == 0 && time(NULL) - found.st_mtime > TOKEN_OLD_S;
}

/* Whether it can be read, also by a link, and is no state of ours: neither its beginning nor the whole. */
static bool is_no_state(const char *path)
{
    struct checkpoint_state state;
    char head[HEAD_BYTES], sha256[65];
    const ssize_t n = read_head(path, 0, head);
    uint64_t bytes;
    enum status status;

    if (n < 0 || begins_as_ours(KIND_STATE, head, (size_t)n, false))
        return false;
    status = checkpoint_read_state(path, &state, &bytes, sha256, NULL);
    return status == STATUS_BAD_INPUT || status == STATUS_TOO_BIG;
}

static enum status remove_or_move(struct checkpoint_dir *dir, const char *path, struct err *err)
{
    checkpoint_remove_ours(path);
    return whose(path) == WHOSE_OTHERS ? move_aside(dir, path, err) : STATUS_OK;
}

/* A file that no checkpoint of ours has: a temporary one, tensors without a .json, and a .json that is
 * none, with the tensors beside it. */
static enum status sweep_file(struct checkpoint_dir *dir, const char *name, struct err *err)
{
    const struct named named = parse(name);
    struct checkpoint_paths paths;
    char path[PATH_BYTES];
    enum status status;

    if (snprintf(path, sizeof path, "%s/%s", dir->path, name) >= (int)sizeof path)
        return STATUS_OK;
    if (is_old_token(path))
        (void)unlink(path);
    if (named.kind != KIND_NONE && named.is_temp)
        return remove_or_move(dir, path, err);
    if (named.kind != KIND_TENSORS && named.kind != KIND_STATE)
        return STATUS_OK;
    checkpoint_make_paths(&paths, dir->path, named.step);
    if (named.kind == KIND_TENSORS)
        return whose(paths.state) == WHOSE_NOBODYS ? remove_or_move(dir, path, err) : STATUS_OK;
    if (!is_no_state(path))
        return STATUS_OK;
    status = move_aside(dir, path, err);
    return status == STATUS_OK && whose(paths.tensors) != WHOSE_NOBODYS
               ? move_aside(dir, paths.tensors, err)
               : status;
}

enum status checkpoint_sweep(struct checkpoint_dir *dir, struct err *err)
{
    DIR *listed = opendir(dir->path);
    const struct dirent *entry;
    enum status status = STATUS_OK;

    while (listed != NULL && status == STATUS_OK && (entry = readdir(listed)) != NULL)
        status = sweep_file(dir, entry->d_name, err);
    if (listed != NULL)
        (void)closedir(listed);
    return status;
}
