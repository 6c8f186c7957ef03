/* The folder of checkpoints: fence, commit, opening. See checkpoint.h. */
#include "worker/checkpoint/internal.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "worker/data/fileio.h"

enum { PATH_BYTES = CHECKPOINT_PATH_BYTES };

/* -- commit -- */

/* Call with the lock held, so that no newer owner commits between the check and the renames. */
static enum status commit(struct checkpoint_dir *dir, const struct checkpoint_paths *paths,
                          struct err *err)
{
    enum status status = fence_check(&dir->fence, err);

    assert(dir->fence.owner[0] != '\0');
    if (status == STATUS_OK)
        status = checkpoint_make_way(dir, paths->tensors, err);
    if (status == STATUS_OK)
        status = checkpoint_make_way(dir, paths->state, err);
    if (status == STATUS_OK)
        status = fileio_rename(paths->tensors_temp, paths->tensors, dir->path, err);
    if (status == STATUS_OK)
        status = fileio_rename(paths->state_temp, paths->state, dir->path, err);
    return status;
}

/* The step of the best checkpoint, or -1. False: which it is cannot be read. */
static bool find_best(const char *path, int64_t *step)
{
    struct checkpoint_best best;
    const enum status status = checkpoint_best_read(path, &best, NULL);

    *step = status == STATUS_OK ? (int64_t)best.step : -1;
    return status == STATUS_OK || status == STATUS_NOT_FOUND;
}

/* Removes all checkpoints except the newest `keep` and the best; none if the best is not known, because
 * its mark cannot be read. What is not known to be ours stays, and does not count. True: there were
 * more. The .json goes first, so that no .json is ever without its tensors. */
static bool remove_old(const struct checkpoint_dir *dir, uint32_t keep)
{
    int64_t best;
    uint32_t *steps;
    size_t count, newer = 0;
    bool is_removed = false;

    assert(keep >= 1);
    if (!find_best(dir->path, &best) ||
        checkpoint_list_steps(dir->path, ".json", &steps, &count, NULL) != STATUS_OK)
        return false;
    for (size_t i = 0; i < count; i++) {
        struct checkpoint_paths paths;

        if (!checkpoint_step_is_ours(dir->path, steps[i]) || newer++ < keep || steps[i] == best)
            continue;
        checkpoint_make_paths(&paths, dir->path, steps[i]);
        (void)unlink(paths.state);
        (void)unlink(paths.tensors);
        is_removed = true;
    }
    free(steps);
    return is_removed;
}

bool checkpoint_make_room(struct checkpoint_dir *dir)
{
    bool is_removed = false;

    if (fence_lock(&dir->fence, NULL) != STATUS_OK)
        return false;
    if (fence_check(&dir->fence, NULL) == STATUS_OK)
        is_removed = remove_old(dir, dir->keep > 1 ? dir->keep - 1 : 1);
    fence_unlock(&dir->fence);
    return is_removed;
}

void checkpoint_remove_temps(const struct checkpoint_paths *paths)
{
    (void)unlink(paths->tensors_temp); /* this process made it: its number is in the name */
    (void)unlink(paths->state_temp);
}

enum status checkpoint_clear_temps(struct checkpoint_dir *dir, const struct checkpoint_paths *paths,
                                   struct err *err)
{
    const enum status status = checkpoint_make_way_for_temp(dir, paths->tensors_temp, err);

    return status == STATUS_OK ? checkpoint_make_way_for_temp(dir, paths->state_temp, err) : status;
}

enum status checkpoint_commit(struct checkpoint_dir *dir, const struct checkpoint_paths *paths,
                              uint32_t step, struct err *err)
{
    enum status status = fence_lock(&dir->fence, err);

    if (status == STATUS_OK) {
        status = commit(dir, paths, err);
        if (status == STATUS_OK) {
            checkpoint_latest_mark(dir, step);
            (void)remove_old(dir, dir->keep);
        }
        fence_unlock(&dir->fence);
    }
    if (status != STATUS_OK)
        checkpoint_remove_temps(paths);
    return status;
}

/* -- opening -- */

static enum status move_step(const char *from, const char *to, uint32_t step, struct err *err)
{
    static const char *const endings[] = {".json", ".safetensors"}; /* first the commit */
    char old_path[PATH_BYTES], new_path[PATH_BYTES];

    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
        checkpoint_file_path(old_path, from, step, endings[i]);
        checkpoint_file_path(new_path, to, step, endings[i]);
        if (rename(old_path, new_path) != 0 && errno != ENOENT)
            return err_set(err, STATUS_IO, errno, "cannot move %s to %s: %s", old_path, to,
                           strerror(errno));
    }
    return STATUS_OK;
}

/* Whether the checkpoint is of another run: a later step, or with only_job another job. */
static bool is_foreign(const struct checkpoint_options *options, const char *path, uint32_t step)
{
    struct checkpoint_state state;
    char state_path[PATH_BYTES], sha256[65];
    uint64_t bytes;

    if (step > options->step)
        return true;
    checkpoint_state_path(state_path, path, step);
    return options->only_job &&
           checkpoint_read_state(state_path, &state, &bytes, sha256, NULL) == STATUS_OK &&
           strcmp(state.job_id, options->job_id) != 0;
}

/* Moves checkpoints of other runs away. Otherwise the next generation would resume from them. */
static enum status set_aside(struct checkpoint_dir *dir, const struct checkpoint_options *options,
                             struct err *notice, struct err *err)
{
    const char *path = dir->path;
    int64_t best, kept = -1;
    uint32_t *steps, newest = 0;
    size_t count, moved = 0;
    enum status status = checkpoint_list_steps(path, ".json", &steps, &count, err);

    (void)find_best(path, &best);
    for (size_t i = 0; status == STATUS_OK && i < count; i++) {
        if (!is_foreign(options, path, steps[i])) {
            kept = steps[i] > kept ? steps[i] : kept;
            continue;
        }
        newest = moved == 0 ? steps[i] : newest; /* they are listed newest first */
        if (moved++ == 0)
            status = checkpoint_make_earlier(dir, err);
        if (status == STATUS_OK)
            status = move_step(path, dir->earlier, steps[i], err);
        if (status == STATUS_OK && steps[i] == best)
            checkpoint_best_move(path, dir->earlier);
    }
    if (status == STATUS_OK && moved > 0)
        checkpoint_latest_mark(dir, kept);
    if (status == STATUS_OK && moved > 0)
        (void)err_set(notice, STATUS_OK, 0,
                      "%s has checkpoints of another run, up to step %u: moved to %s", path, newest,
                      dir->earlier);
    free(steps);
    return status;
}

enum status checkpoint_make_dirs(const char *path, struct err *err)
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

static enum status take_over(struct checkpoint_dir *dir, const struct checkpoint_options *options,
                             struct err *notice, struct err *err)
{
    const struct fence_claim claim = {
        .job_id = options->job_id,
        .cluster = options->cluster != NULL ? options->cluster : "",
        .generation = options->generation,
        .takes_over = options->takes_over,
        .what = "--checkpoint-dir",
        .remedy = "give another folder, or end it by taking the folder over (--take-over)",
    };
    enum status status = checkpoint_make_dirs(dir->path, err);

    if (status == STATUS_OK)
        status = fence_open(&dir->fence, dir->path, claim.what, err);
    if (status != STATUS_OK)
        return status;
    status = fence_take(&dir->fence, &claim, err);
    (void)snprintf(dir->id, sizeof dir->id, "%.16s", fence_id(&dir->fence));
    if (status == STATUS_OK)
        status = checkpoint_sweep(dir, err);
    if (status == STATUS_OK)
        status = set_aside(dir, options, notice, err);
    fence_unlock(&dir->fence);
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
    dir->fence.lock_fd = -1;
    dir->fence.life_fd = -1;
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
    fence_close(&(*dir)->fence);
    free(*dir);
    *dir = NULL;
}
