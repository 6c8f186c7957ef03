/* Copies of checkpoints. See copy.h. */
#include "worker/checkpoint/copy.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "worker/checkpoint/internal.h"
#include "worker/data/fileio.h"

/* -- sending -- */

enum status checkpoint_source_open(struct checkpoint_source *source, const char *path,
                                   uint32_t step, struct err *err)
{
    struct checkpoint_paths paths;
    uint64_t state_bytes;
    enum status status;

    checkpoint_make_paths(&paths, path, step);
    status = fileio_read_file(paths.state, CHECKPOINT_STATE_BYTES_MAX, &source->state, &state_bytes,
                              err);
    if (status != STATUS_OK)
        return status;
    source->state_bytes = (uint32_t)state_bytes;
    source->fd = open(paths.tensors, O_RDONLY | O_CLOEXEC);
    if (source->fd < 0)
        status = err_set(err, errno == ENOENT ? STATUS_NOT_FOUND : STATUS_IO, errno,
                         "%s: cannot open: %s", paths.tensors, strerror(errno));
    else
        status = fileio_size(source->fd, paths.tensors, &source->tensor_bytes, err);
    if (status != STATUS_OK)
        checkpoint_source_close(source);
    return status;
}

enum status checkpoint_source_read(const struct checkpoint_source *source, uint64_t offset,
                                   void *bytes, size_t byte_count, struct err *err)
{
    return fileio_read_at(source->fd, "the checkpoint to send", bytes, byte_count, offset, err);
}

void checkpoint_source_close(struct checkpoint_source *source)
{
    free(source->state);
    if (source->fd >= 0)
        (void)close(source->fd);
    *source = (struct checkpoint_source){.fd = -1};
}

/* -- receiving -- */

struct checkpoint_copy {
    struct checkpoint_dir *dir;
    struct checkpoint_paths paths;
    uint32_t step;
    struct fileio_out out;
    struct err error; /* the first one */
};

enum status checkpoint_copy_begin(struct checkpoint_copy **out, struct checkpoint_dir *dir,
                                  uint32_t step, struct err *err)
{
    struct checkpoint_copy *copy = calloc(1, sizeof *copy);
    enum status status;

    assert(step <= CHECKPOINT_STEP_MAX);
    if (copy == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory for the copy of a checkpoint");
    copy->dir = dir;
    copy->step = step;
    checkpoint_make_temp_paths(&copy->paths, dir, step);
    status = checkpoint_clear_temps(dir, &copy->paths, err);
    if (status == STATUS_OK)
        status = fileio_out_open(&copy->out, copy->paths.tensors_temp, err);
    if (status != STATUS_OK) {
        free(copy);
        return status;
    }
    *out = copy;
    return STATUS_OK;
}

void checkpoint_copy_add(struct checkpoint_copy *copy, const void *bytes, size_t byte_count)
{
    if (copy->error.status == STATUS_OK)
        (void)fileio_out_write(&copy->out, bytes, byte_count, &copy->error);
}

/* The tensors are written, with this size and SHA-256; checks them against the state and writes that. */
static enum status finish(const struct checkpoint_copy *copy, uint64_t found_bytes,
                          const char *found, const char *state, size_t state_bytes, struct err *err)
{
    struct checkpoint_state parsed;
    uint64_t bytes;
    char sha256[65];
    enum status status = checkpoint_state_parse(&parsed, &bytes, sha256, "the checkpoint received",
                                                state, state_bytes, err);

    if (status == STATUS_OK && parsed.step != copy->step)
        status = err_set(err, STATUS_BAD_INPUT, 0,
                         "the checkpoint received is of step %u, expected step %u", parsed.step,
                         copy->step);
    if (status == STATUS_OK)
        status = checkpoint_compare_tensors(copy->paths.tensors_temp, bytes, sha256, found_bytes,
                                            found, err);
    if (status == STATUS_OK)
        status = fileio_write_file(copy->paths.state_temp, state, state_bytes, err);
    return status;
}

enum status checkpoint_copy_end(struct checkpoint_copy **out, const char *state, size_t state_bytes,
                                struct err *err)
{
    struct checkpoint_copy *copy = *out;
    const uint64_t found_bytes = copy->out.byte_count;
    char found[65];
    enum status status = fileio_out_finish(&copy->out, copy->paths.tensors_temp, found, err);

    if (copy->error.status != STATUS_OK)
        status = err_set(err, copy->error.status, copy->error.code, "%s", copy->error.text);
    if (status == STATUS_OK)
        status = finish(copy, found_bytes, found, state, state_bytes, err);
    if (status == STATUS_OK)
        status = checkpoint_commit(copy->dir, &copy->paths, copy->step, err);
    else
        checkpoint_remove_temps(&copy->paths);
    free(copy);
    *out = NULL;
    return status;
}

void checkpoint_copy_drop(struct checkpoint_copy **copy)
{
    fileio_out_drop(&(*copy)->out);
    checkpoint_remove_temps(&(*copy)->paths);
    free(*copy);
    *copy = NULL;
}

/* -- who shares a folder -- */

enum { TOKEN_DIR_BYTES_MAX = CHECKPOINT_PATH_BYTES - 64 };

static void token_path(char out[CHECKPOINT_PATH_BYTES], const char *path, uint64_t meeting,
                       uint32_t rank)
{
    (void)snprintf(out, CHECKPOINT_PATH_BYTES, "%.*s/" CHECKPOINT_TOKEN_PREFIX "%016llx-%u",
                   TOKEN_DIR_BYTES_MAX, path, (unsigned long long)meeting, rank);
}

enum status checkpoint_token_leave(const char *path, uint64_t meeting, uint32_t rank,
                                   struct err *err)
{
    char token[CHECKPOINT_PATH_BYTES];
    int fd;
    enum status status;

    if (path[0] == '\0' || strlen(path) > TOKEN_DIR_BYTES_MAX)
        return err_set(err, STATUS_TOO_BIG, 0, "--checkpoint-dir: the path is empty or too long");
    status = checkpoint_make_dirs(path, err);
    if (status != STATUS_OK)
        return status;
    token_path(token, path, meeting, rank);
    fd = open(token, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0)
        return err_set(err, STATUS_IO, errno, "--checkpoint-dir %s: cannot write there: %s", path,
                       strerror(errno));
    (void)close(fd);
    return STATUS_OK;
}

bool checkpoint_token_found(const char *path, uint64_t meeting, uint32_t rank)
{
    char token[CHECKPOINT_PATH_BYTES];

    token_path(token, path, meeting, rank);
    return access(token, F_OK) == 0;
}

void checkpoint_token_remove(const char *path, uint64_t meeting, uint32_t rank)
{
    char token[CHECKPOINT_PATH_BYTES];

    token_path(token, path, meeting, rank);
    (void)unlink(token);
}
