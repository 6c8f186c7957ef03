/* Saving and opening checkpoints. See checkpoint.h. */
#include "worker/checkpoint/internal.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "worker/data/fileio.h"

enum { PATH_BYTES = CHECKPOINT_PATH_BYTES };

/* -- saving -- */

/* Errors: STATUS_BAD_INPUT (a value may not be in a checkpoint). */
static enum status check_tensors(const struct safetensors_tensor *tensors, size_t tensor_count,
                                 struct err *err)
{
    enum status status = STATUS_OK;

    for (size_t i = 0; status == STATUS_OK && i < tensor_count; i++)
        if (tensors[i].type == SAFETENSORS_F32)
            status = safetensors_check_values(tensors[i].name, tensors[i].values,
                                              safetensors_bytes(&tensors[i]) / sizeof(float), err);
    return status;
}

static enum status write_tensors(const char *path, const struct safetensors_tensor *tensors,
                                 size_t tensor_count, char sha256[65], uint64_t *bytes,
                                 struct err *err)
{
    /* Weights in torch's layout. The beginning of the file shows that it is ours: own.c. */
    static const struct safetensors_metadata metadata[] = {{"format", "pt"},
                                                           {"writer", CHECKPOINT_WRITER}};
    struct fileio_out out;
    enum status status = fileio_out_open(&out, path, err);

    if (status != STATUS_OK)
        return status;
    status = safetensors_write_out(&out, tensors, tensor_count, metadata, 2, err);
    *bytes = out.byte_count;
    if (status == STATUS_OK)
        return fileio_out_finish(&out, path, sha256, err);
    fileio_out_drop(&out);
    return status;
}

static enum status write_state(const char *path, const struct checkpoint_state *state,
                               uint64_t tensor_bytes, const char *sha256, struct err *err)
{
    char *text = checkpoint_state_print(state, tensor_bytes, sha256);
    enum status status;

    if (text == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory for the state of a checkpoint");
    status = fileio_write_file(path, text, strlen(text), err);
    free(text);
    return status;
}

static enum status write_temps(const struct checkpoint_paths *paths,
                               const struct checkpoint_state *state,
                               const struct safetensors_tensor *tensors, size_t tensor_count,
                               struct err *err)
{
    char sha256[65];
    uint64_t bytes;
    enum status status =
        write_tensors(paths->tensors_temp, tensors, tensor_count, sha256, &bytes, err);

    if (status == STATUS_OK)
        status = write_state(paths->state_temp, state, bytes, sha256, err);
    return status;
}

enum status checkpoint_save(struct checkpoint_dir *dir, const struct checkpoint_state *state,
                            const struct safetensors_tensor *tensors, size_t tensor_count,
                            struct err *err)
{
    struct checkpoint_paths paths;
    struct err why;
    enum status status;

    assert(state->step <= CHECKPOINT_STEP_MAX && dir->fence.lock_fd >= 0 &&
           dir->fence.owner[0] != '\0');
    status = check_tensors(tensors, tensor_count, err);
    if (status != STATUS_OK)
        return status;
    checkpoint_make_temp_paths(&paths, dir, state->step);
    status = checkpoint_clear_temps(dir, &paths, &why);
    if (status == STATUS_OK)
        status = write_temps(&paths, state, tensors, tensor_count, &why);
    if (status == STATUS_IO && (why.code == ENOSPC || why.code == EDQUOT)) {
        checkpoint_remove_temps(&paths);
        if (checkpoint_make_room(dir))
            status = write_temps(&paths, state, tensors, tensor_count, &why);
    }
    if (status == STATUS_OK)
        return checkpoint_commit(dir, &paths, state->step, err);
    checkpoint_remove_temps(&paths);
    return err_set(err, status, why.code, "%s", why.text);
}

/* -- resuming -- */

/* `path` with another ending: the other file of the same checkpoint. */
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

enum status checkpoint_compare_tensors(const char *path, uint64_t bytes, const char *sha256,
                                       uint64_t found_bytes, const char *found, struct err *err)
{
    if (found_bytes != bytes)
        return err_set(err, STATUS_BAD_INPUT, 0, "%s: torn: expected %llu bytes, found %llu", path,
                       (unsigned long long)bytes, (unsigned long long)found_bytes);
    if (strcmp(found, sha256) != 0)
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "%s: damaged: expected SHA-256 %.16s..., found %.16s...", path, sha256,
                       found);
    return STATUS_OK;
}

enum status checkpoint_check_tensors(const char *path, uint64_t bytes, const char *sha256,
                                     struct err *err)
{
    char found[65];
    uint64_t found_bytes;
    enum status status = fileio_sha256(path, found, &found_bytes, err);

    return status == STATUS_OK
               ? checkpoint_compare_tensors(path, bytes, sha256, found_bytes, found, err)
               : status;
}

enum status checkpoint_open(struct checkpoint *checkpoint, const char *path, struct err *err)
{
    char named[PATH_BYTES], state_path[PATH_BYTES], tensors_path[PATH_BYTES], sha256[65];
    uint64_t bytes;
    enum status status = checkpoint_resolve(named, path, err);

    if (status == STATUS_OK)
        status = sibling(state_path, named, ".json", err);
    if (status == STATUS_OK)
        status = sibling(tensors_path, named, ".safetensors", err);
    if (status == STATUS_OK)
        status = checkpoint_read_state(state_path, &checkpoint->state, &bytes, sha256, err);
    if (status == STATUS_OK)
        status = checkpoint_check_tensors(tensors_path, bytes, sha256, err);
    if (status == STATUS_OK)
        status = safetensors_open(&checkpoint->tensors, tensors_path, err);
    return status;
}

enum status checkpoint_open_step(struct checkpoint *checkpoint, const char *path, uint32_t step,
                                 struct err *err)
{
    char state_path[CHECKPOINT_PATH_BYTES];

    checkpoint_state_path(state_path, path, step);
    return checkpoint_open(checkpoint, state_path, err);
}

void checkpoint_close(struct checkpoint *checkpoint)
{
    safetensors_close(&checkpoint->tensors);
}

/* Opens the checkpoint of `step` if it may be resumed from. Errors: those of checkpoint_open,
 * STATUS_CONFLICT (it is of another run or step), STATUS_NOT_FOUND (it is of another job). */
static enum status open_fitting(struct checkpoint *checkpoint, const char *dir, uint32_t step,
                                const struct checkpoint_choice *choice, struct err *err)
{
    char path[CHECKPOINT_PATH_BYTES], sha256[65];
    uint64_t bytes;
    struct err why;
    enum status status;

    checkpoint_state_path(path, dir, step);
    status = checkpoint_read_state(path, &checkpoint->state, &bytes, sha256, err);
    if (status != STATUS_OK)
        return status;
    if (checkpoint->state.step != step)
        return err_set(err, STATUS_CONFLICT, 0,
                       "%s: the state in it is of step %u: the file was renamed or changed", path,
                       checkpoint->state.step);
    if (choice->job_id != NULL && strcmp(checkpoint->state.job_id, choice->job_id) != 0)
        return err_set(err, STATUS_NOT_FOUND, 0, "%s: it is of job %s, this is job %s", path,
                       checkpoint->state.job_id, choice->job_id);
    if (choice->like != NULL &&
        checkpoint_check(&checkpoint->state, choice->like, &why) != STATUS_OK)
        return err_set(err, STATUS_CONFLICT, 0, "%s: %s", path, why.text);
    return checkpoint_open(checkpoint, path, err);
}

enum status checkpoint_open_newest(struct checkpoint *checkpoint, const char *path,
                                   const struct checkpoint_choice *choice, struct err *err)
{
    struct err why = {0}, conflict = {0};
    bool is_damaged = false;
    uint32_t *steps;
    size_t count;
    enum status status = checkpoint_list_steps(path, ".json", &steps, &count, err);

    if (status != STATUS_OK)
        return status;
    status = STATUS_NOT_FOUND;
    for (size_t i = 0; i < count && status != STATUS_OK; i++) {
        status = open_fitting(checkpoint, path, steps[i], choice, &why);
        if (status == STATUS_CONFLICT && conflict.status == STATUS_OK)
            conflict = why;
        is_damaged = is_damaged || status == STATUS_BAD_INPUT;
        if (status != STATUS_OK)
            choice->skipped(choice->user, &why);
    }
    free(steps);
    if (status == STATUS_OK)
        return STATUS_OK;
    if (conflict.status != STATUS_OK)
        return err_set(err, STATUS_CONFLICT, 0, "%s", conflict.text);
    return err_set(err, is_damaged ? STATUS_BAD_INPUT : STATUS_NOT_FOUND, 0,
                   "%s has no whole checkpoint", path);
}
