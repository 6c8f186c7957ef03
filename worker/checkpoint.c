#include "worker/checkpoint.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "worker/data/fileio.h"

enum {
    PATH_BYTES = 1024,
    DIGITS = 8,
    STATE_BYTES_MAX = 1 << 16,
    EARLIER_MAX = 1000,
    OWNER_BYTES = 128
};

#define LOCK_NAME ".lock"
static const char name_prefix[] = "step-", temp_ending[] = ".tmp";

struct checkpoint_dir {
    char path[PATH_BYTES - 64]; /* room for a name behind it */
    char owner[OWNER_BYTES];    /* as the lock file has it while the folder is ours */
    uint32_t keep;
    int lock_fd;
};

/* -- names -- */

static void file_path(char *out, const char *dir, uint32_t step, const char *ending)
{
    (void)snprintf(out, PATH_BYTES, "%s/%s%08u%s", dir, name_prefix, step, ending);
}

/* "step-00000012.json" with ending ".json" is 12; anything else is no name of ours. */
static bool parse_name(const char *name, const char *ending, uint32_t *step)
{
    const char *digits = name + strlen(name_prefix);

    if (strncmp(name, name_prefix, strlen(name_prefix)) != 0 ||
        strspn(digits, "0123456789") != DIGITS || strcmp(digits + DIGITS, ending) != 0)
        return false;
    *step = (uint32_t)strtoul(digits, NULL, 10);
    return true;
}

static int newest_first(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x > y ? -1 : x < y;
}

/* Steps that have a file with `ending`, newest first, owned by the caller. */
static enum status list_steps(const char *path, const char *ending, uint32_t **steps, size_t *count,
                              struct err *err)
{
    DIR *dir = opendir(path);
    const struct dirent *entry;
    size_t room = 0;
    uint32_t step;

    *steps = NULL;
    *count = 0;
    if (dir == NULL)
        return err_set(err, errno == ENOENT ? STATUS_NOT_FOUND : STATUS_IO, errno,
                       "%s: cannot open the folder: %s", path, strerror(errno));
    while ((entry = readdir(dir)) != NULL) {
        if (!parse_name(entry->d_name, ending, &step))
            continue;
        if (*count == room) {
            uint32_t *more = realloc(*steps, (room = room * 2 + 16) * sizeof *more);
            if (more == NULL) {
                free(*steps);
                *steps = NULL;
                (void)closedir(dir);
                return err_set(err, STATUS_MEMORY, 0, "%s: no memory to list it", path);
            }
            *steps = more;
        }
        (*steps)[(*count)++] = step;
    }
    (void)closedir(dir);
    if (*count > 0)
        qsort(*steps, *count, sizeof **steps, newest_first);
    return STATUS_OK;
}

/* -- the fence -- */

static enum status lock(struct checkpoint_dir *dir, struct err *err)
{
    while (flock(dir->lock_fd, LOCK_EX) != 0)
        if (errno != EINTR)
            return err_set(err, STATUS_IO, errno, "%s/" LOCK_NAME ": cannot lock: %s", dir->path,
                           strerror(errno));
    return STATUS_OK;
}

static void unlock(struct checkpoint_dir *dir)
{
    (void)flock(dir->lock_fd, LOCK_UN);
}

static enum status read_state(const char *path, struct checkpoint_state *state, uint64_t *bytes,
                              char *sha256, struct err *err)
{
    char *text;
    uint64_t text_bytes;
    enum status status = fileio_read_file(path, STATE_BYTES_MAX, &text, &text_bytes, err);

    if (status != STATUS_OK)
        return status;
    status = checkpoint_state_parse(state, bytes, sha256, path, text, text_bytes, err);
    free(text);
    return status;
}

/* With the lock held. */
static enum status check_fence(const struct checkpoint_dir *dir, struct err *err)
{
    char text[OWNER_BYTES];
    ssize_t n = pread(dir->lock_fd, text, sizeof text - 1, 0);

    text[n > 0 ? n : 0] = '\0';
    text[strcspn(text, "\n")] = '\0';
    if (strcmp(text, dir->owner) == 0)
        return STATUS_OK;
    return err_set(err, STATUS_CONFLICT, 0,
                   "%s: taken over by %s; this is %s, which may not write there any more",
                   dir->path, text[0] != '\0' ? text : "somebody unknown", dir->owner);
}

static enum status take(struct checkpoint_dir *dir, const struct checkpoint_options *options,
                        struct err *err)
{
    uint64_t random_id;
    size_t n;

    if (getrandom(&random_id, sizeof random_id, 0) != sizeof random_id)
        return err_set(err, STATUS_SYSTEM, errno, "no random number: %s", strerror(errno));
    (void)snprintf(dir->owner, sizeof dir->owner, "generation %u of job %.60s (%016llx)",
                   options->generation, options->job_id[0] != '\0' ? options->job_id : "none",
                   (unsigned long long)random_id);
    n = strlen(dir->owner);
    if (ftruncate(dir->lock_fd, 0) != 0 || pwrite(dir->lock_fd, dir->owner, n, 0) != (ssize_t)n ||
        fsync(dir->lock_fd) != 0)
        return err_set(err, STATUS_IO, errno, "%s/" LOCK_NAME ": cannot write: %s", dir->path,
                       strerror(errno));
    return STATUS_OK;
}

/* -- opening -- */

static void remove_file(const char *dir, const char *name)
{
    char path[PATH_BYTES];

    if (snprintf(path, sizeof path, "%s/%s", dir, name) < (int)sizeof path)
        (void)unlink(path);
}

/* Temporary files, and tensors whose state never came. */
static void remove_leftovers(const char *path)
{
    DIR *dir = opendir(path);
    const struct dirent *entry;
    uint32_t step;

    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        char state_path[PATH_BYTES];
        if (parse_name(entry->d_name, ".json.tmp", &step) ||
            parse_name(entry->d_name, ".safetensors.tmp", &step)) {
            remove_file(path, entry->d_name);
        } else if (parse_name(entry->d_name, ".safetensors", &step)) {
            file_path(state_path, path, step, ".json");
            if (access(state_path, F_OK) != 0 && errno == ENOENT)
                remove_file(path, entry->d_name);
        }
    }
    if (dir != NULL)
        (void)closedir(dir);
}

static enum status move_step(const char *from, const char *to, uint32_t step, struct err *err)
{
    static const char *const endings[] = {".json", ".safetensors"}; /* the commit goes first */
    char old_path[PATH_BYTES], new_path[PATH_BYTES];

    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
        file_path(old_path, from, step, endings[i]);
        file_path(new_path, to, step, endings[i]);
        if (rename(old_path, new_path) != 0 && errno != ENOENT)
            return err_set(err, STATUS_IO, errno, "cannot move %s to %s: %s", old_path, to,
                           strerror(errno));
    }
    return STATUS_OK;
}

static enum status make_earlier_dir(const char *path, char *earlier, struct err *err)
{
    for (int i = 1; i <= EARLIER_MAX; i++) {
        (void)snprintf(earlier, PATH_BYTES - 64, "%.900s/earlier-%d", path, i);
        if (mkdir(earlier, 0777) == 0)
            return STATUS_OK;
        if (errno != EEXIST)
            break;
    }
    return err_set(err, STATUS_IO, errno, "%s: cannot make a folder for the earlier run: %s", path,
                   strerror(errno));
}

/* Otherwise a later generation would resume from another run's later step. */
static enum status set_aside(const char *path, int64_t first_step, struct err *notice,
                             struct err *err)
{
    char earlier[PATH_BYTES - 64];
    uint32_t *steps;
    size_t count, later = 0;
    enum status status = list_steps(path, ".json", &steps, &count, err);

    while (status == STATUS_OK && later < count && steps[later] > first_step)
        later++; /* newest first */
    if (later > 0)
        status = make_earlier_dir(path, earlier, err);
    for (size_t i = 0; status == STATUS_OK && i < later; i++)
        status = move_step(path, earlier, steps[i], err);
    if (status == STATUS_OK && later > 0)
        (void)err_set(notice, STATUS_OK, 0,
                      "%s has checkpoints of another run, up to step %u: moved to %s", path,
                      steps[0], earlier);
    free(steps);
    return status;
}

/* mkdir -p */
static enum status make_dirs(const char *path, struct err *err)
{
    char part[PATH_BYTES];

    (void)snprintf(part, sizeof part, "%s", path);
    for (char *slash = part + 1;; slash++) {
        char kept = *slash;
        if (kept != '/' && kept != '\0')
            continue;
        *slash = '\0';
        if (mkdir(part, 0777) != 0 && errno != EEXIST)
            return err_set(err, STATUS_IO, errno, "--checkpoint-dir %s: cannot make it: %s", path,
                           strerror(errno));
        *slash = kept;
        if (kept == '\0')
            return STATUS_OK;
    }
}

static enum status open_lock(struct checkpoint_dir *dir, struct err *err)
{
    char path[PATH_BYTES];
    enum status status = make_dirs(dir->path, err);

    if (status != STATUS_OK)
        return status;
    (void)snprintf(path, sizeof path, "%s/" LOCK_NAME, dir->path);
    dir->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
    if (dir->lock_fd < 0)
        return err_set(err, STATUS_IO, errno, "--checkpoint-dir %s: cannot write there: %s",
                       dir->path, strerror(errno));
    return lock(dir, err);
}

static enum status take_over(struct checkpoint_dir *dir, const struct checkpoint_options *options,
                             struct err *notice, struct err *err)
{
    enum status status = open_lock(dir, err);

    if (status != STATUS_OK)
        return status;
    status = take(dir, options, err);
    if (status == STATUS_OK)
        status = set_aside(dir->path, options->step, notice, err);
    if (status == STATUS_OK)
        remove_leftovers(dir->path);
    unlock(dir);
    return status;
}

enum status checkpoint_dir_open(struct checkpoint_dir **out,
                                const struct checkpoint_options *options, struct err *notice,
                                struct err *err)
{
    struct checkpoint_dir *dir;
    enum status status;

    assert(options->keep >= 1);
    notice->text[0] = '\0';
    if (strlen(options->path) == 0 || strlen(options->path) >= sizeof dir->path - 32)
        return err_set(err, STATUS_TOO_BIG, 0, "--checkpoint-dir: the path is empty or too long");
    dir = calloc(1, sizeof *dir);
    if (dir == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory for the checkpoint folder");
    (void)snprintf(dir->path, sizeof dir->path, "%s", options->path);
    dir->keep = options->keep;
    dir->lock_fd = -1;
    *out = dir;
    status = take_over(dir, options, notice, err);
    if (status != STATUS_OK)
        checkpoint_dir_close(out);
    return status;
}

void checkpoint_dir_close(struct checkpoint_dir **dir)
{
    if (*dir == NULL)
        return;
    if ((*dir)->lock_fd >= 0)
        (void)close((*dir)->lock_fd);
    free(*dir);
    *dir = NULL;
}

/* -- saving -- */

/* Paths of one checkpoint being made. */
struct paths {
    char tensors[PATH_BYTES], tensors_temp[PATH_BYTES];
    char state[PATH_BYTES], state_temp[PATH_BYTES];
};

static void make_paths(struct paths *paths, const char *dir, uint32_t step)
{
    char ending[32];

    file_path(paths->tensors, dir, step, ".safetensors");
    file_path(paths->state, dir, step, ".json");
    (void)snprintf(ending, sizeof ending, ".safetensors%s", temp_ending);
    file_path(paths->tensors_temp, dir, step, ending);
    (void)snprintf(ending, sizeof ending, ".json%s", temp_ending);
    file_path(paths->state_temp, dir, step, ending);
}

static enum status write_tensors(const char *path, const struct safetensors_tensor *tensors,
                                 size_t tensor_count, struct err *err)
{
    static const struct safetensors_note notes[] = {
        {"format", "pt"}}; /* torch's own layout of weights */
    int fd;
    enum status status;

    (void)unlink(path);
    status = fileio_create(path, &fd, err);
    if (status != STATUS_OK)
        return status;
    status = safetensors_write(fd, tensors, tensor_count, notes, 1, err);
    if (status == STATUS_OK)
        return fileio_finish(fd, path, err);
    (void)close(fd);
    return status;
}

static enum status write_state(const char *path, const struct checkpoint_state *state,
                               uint64_t tensor_bytes, const char *sha256, struct err *err)
{
    char *text = checkpoint_state_print(state, tensor_bytes, sha256);
    int fd;
    enum status status;

    if (text == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory for the state of a checkpoint");
    (void)unlink(path);
    status = fileio_create(path, &fd, err);
    if (status == STATUS_OK) {
        status = fileio_write(fd, text, strlen(text), err);
        if (status == STATUS_OK)
            status = fileio_finish(fd, path, err);
        else
            (void)close(fd);
    }
    free(text);
    return status;
}

static enum status write_temps(const struct paths *paths, const struct checkpoint_state *state,
                               const struct safetensors_tensor *tensors, size_t tensor_count,
                               struct err *err)
{
    char sha256[65];
    uint64_t bytes;
    enum status status = write_tensors(paths->tensors_temp, tensors, tensor_count, err);

    if (status == STATUS_OK)
        status = fileio_sha256(paths->tensors_temp, sha256, &bytes, err);
    if (status == STATUS_OK)
        status = write_state(paths->state_temp, state, bytes, sha256, err);
    return status;
}

/* With the lock held: nobody newer commits between the look and the renames. */
static enum status commit(struct checkpoint_dir *dir, const struct paths *paths, struct err *err)
{
    enum status status = check_fence(dir, err);

    if (status == STATUS_OK)
        status = fileio_rename(paths->tensors_temp, paths->tensors, dir->path, err);
    if (status == STATUS_OK)
        status = fileio_rename(paths->state_temp, paths->state, dir->path, err);
    return status;
}

/* The state goes first, so that no state is ever without its tensors. */
static void remove_old(const struct checkpoint_dir *dir)
{
    uint32_t *steps;
    size_t count;

    if (list_steps(dir->path, ".json", &steps, &count, NULL) != STATUS_OK)
        return;
    for (size_t i = dir->keep; i < count; i++) {
        struct paths paths;
        make_paths(&paths, dir->path, steps[i]);
        (void)unlink(paths.state);
        (void)unlink(paths.tensors);
    }
    free(steps);
}

enum status checkpoint_save(struct checkpoint_dir *dir, const struct checkpoint_state *state,
                            const struct safetensors_tensor *tensors, size_t tensor_count,
                            struct err *err)
{
    struct paths paths;
    enum status status;

    assert(state->step <= CHECKPOINT_STEP_MAX);
    make_paths(&paths, dir->path, state->step);
    status = write_temps(&paths, state, tensors, tensor_count, err);
    if (status == STATUS_OK)
        status = lock(dir, err);
    if (status == STATUS_OK) {
        status = commit(dir, &paths, err);
        if (status == STATUS_OK)
            remove_old(dir);
        unlock(dir);
    }
    if (status != STATUS_OK) {
        (void)unlink(paths.tensors_temp);
        (void)unlink(paths.state_temp);
    }
    return status;
}

/* -- going on -- */

/* `path` with its ending replaced. */
static enum status sibling(char *out, const char *path, const char *ending, struct err *err)
{
    const char *dot = strrchr(path, '.');

    if (dot == NULL || (strcmp(dot, ".json") != 0 && strcmp(dot, ".safetensors") != 0) ||
        strlen(path) + 16 > PATH_BYTES)
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "%s: not a checkpoint: expected step-<8 digits>.json or .safetensors", path);
    (void)snprintf(out, PATH_BYTES, "%.*s%s", (int)(dot - path), path, ending);
    return STATUS_OK;
}

static enum status check_tensors(const char *path, uint64_t bytes, const char *sha256,
                                 struct err *err)
{
    char found[65];
    uint64_t found_bytes;
    enum status status = fileio_sha256(path, found, &found_bytes, err);

    if (status != STATUS_OK)
        return status;
    if (found_bytes != bytes)
        return err_set(err, STATUS_BAD_INPUT, 0, "%s: torn: expected %llu bytes, found %llu", path,
                       (unsigned long long)bytes, (unsigned long long)found_bytes);
    if (strcmp(found, sha256) != 0)
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "%s: damaged: expected SHA-256 %.16s..., found %.16s...", path, sha256,
                       found);
    return STATUS_OK;
}

enum status checkpoint_open(struct checkpoint *checkpoint, const char *path, struct err *err)
{
    char state_path[PATH_BYTES], tensors_path[PATH_BYTES], sha256[65];
    uint64_t bytes;
    enum status status = sibling(state_path, path, ".json", err);

    if (status == STATUS_OK)
        status = sibling(tensors_path, path, ".safetensors", err);
    if (status == STATUS_OK)
        status = read_state(state_path, &checkpoint->state, &bytes, sha256, err);
    if (status == STATUS_OK)
        status = check_tensors(tensors_path, bytes, sha256, err);
    if (status == STATUS_OK)
        status = safetensors_open(&checkpoint->tensors, tensors_path, err);
    return status;
}

void checkpoint_close(struct checkpoint *checkpoint)
{
    safetensors_close(&checkpoint->tensors);
}

enum status checkpoint_open_newest(struct checkpoint *checkpoint, const char *path,
                                   const struct checkpoint_state *like, checkpoint_skipped skipped,
                                   void *user, struct err *err)
{
    struct err why = {0}, conflict = {0};
    uint32_t *steps;
    size_t count;
    enum status status = list_steps(path, ".json", &steps, &count, err);

    if (status != STATUS_OK)
        return status;
    status = STATUS_NOT_FOUND;
    for (size_t i = 0; i < count && status != STATUS_OK; i++) {
        char state_path[PATH_BYTES];
        file_path(state_path, path, steps[i], ".json");
        status = checkpoint_open(checkpoint, state_path, &why);
        if (status == STATUS_OK && like != NULL &&
            checkpoint_check(&checkpoint->state, like, &why) != STATUS_OK) {
            checkpoint_close(checkpoint);
            if (conflict.status == STATUS_OK)
                (void)err_set(&conflict, STATUS_CONFLICT, 0, "%s: %s", state_path, why.text);
            status = STATUS_CONFLICT;
            why = conflict;
        }
        if (status != STATUS_OK)
            skipped(user, &why);
    }
    free(steps);
    if (status == STATUS_OK)
        return STATUS_OK;
    if (conflict.status != STATUS_OK)
        return err_set(err, STATUS_CONFLICT, 0, "%s", conflict.text);
    return err_set(err, STATUS_NOT_FOUND, 0, "%s has no whole checkpoint", path);
}
