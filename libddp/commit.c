/* The fence of a folder of checkpoints, and the commit in it. See fence.h. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libddp/internal.h"

static enum status take(struct ddp *ddp, const char *folder, struct err *err)
{
    char job_id[24] = "";
    const struct fence_claim claim = {
        .job_id = job_id,
        .cluster = ddp->place.cluster,
        .generation = ddp->place.generation,
        .what = "checkpoint folder",
        .remedy = "or give this job another folder",
    };
    enum status status;

    if (ddp->has_fence)
        return err_set(err, STATUS_BAD_INPUT, 0, "ddp_fence was called before, for %.150s",
                       ddp->folder);
    if (folder[0] == '\0' || strlen(folder) >= sizeof ddp->folder)
        return err_set(err, STATUS_TOO_BIG, 0, "the path of the folder has %zu bytes, not 1 to %zu",
                       strlen(folder), sizeof ddp->folder - 1);
    (void)snprintf(ddp->folder, sizeof ddp->folder, "%s", folder);
    if (ddp->place.job_id != 0)
        (void)snprintf(job_id, sizeof job_id, "%" PRIu64, ddp->place.job_id);
    status = fence_open(&ddp->fence, ddp->folder, claim.what, err);
    if (status != STATUS_OK)
        return status;
    status = fence_take(&ddp->fence, &claim, err);
    fence_unlock(&ddp->fence);
    if (status != STATUS_OK)
        fence_close(&ddp->fence);
    ddp->has_fence = status == STATUS_OK;
    return status;
}

enum ddp_status ddp_fence(struct ddp *ddp, const char *folder, struct ddp_error *error)
{
    struct err err = {.text = ""};
    enum status status;

    if (is_forked(ddp))
        return result_forked(error);
    (void)pthread_mutex_lock(&ddp->fence_lock);
    status = take(ddp, folder, &err);
    (void)pthread_mutex_unlock(&ddp->fence_lock);
    return result(status, &err, error);
}

/* -- commit ------------------------------------------------------------------------------------ */

/* Whether the name is below the folder: "a/b", without "..". */
static bool is_below(const char *name)
{
    const char *at = name;

    while (*at != '\0') {
        const size_t length = strcspn(at, "/");

        if (length == 0 || (length <= 2 && strncmp(at, "..", length) == 0))
            return false;
        at += length;
        if (*at == '/' && *++at == '\0')
            return false;
    }
    return name[0] != '\0';
}

static enum status sync_one(int folder_fd, const char *folder, const char *name, struct err *err)
{
    const int fd = openat(folder_fd, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    const int rc = fd < 0 ? -1 : fsync(fd);
    const int code = errno;

    if (fd >= 0)
        (void)close(fd);
    if (rc == 0)
        return STATUS_OK;
    return err_set(err, code == ENOENT ? STATUS_NOT_FOUND : STATUS_IO, code,
                   "%.150s/%.60s: cannot sync: %s", folder, name, strerror(code));
}

static void parent_of(const char *name, char *parent, size_t parent_bytes)
{
    const char *slash = strrchr(name, '/');

    (void)snprintf(parent, parent_bytes, "%.*s", slash != NULL ? (int)(slash - name) : 1,
                   slash != NULL ? name : ".");
}

static enum status move(const char *folder, const char *from, const char *to, struct err *err)
{
    const int folder_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    char parent[FENCE_PATH_BYTES];
    enum status status;

    if (folder_fd < 0)
        return err_set(err, STATUS_IO, errno, "checkpoint folder %.150s: %s", folder,
                       strerror(errno));
    status = sync_one(folder_fd, folder, from, err);
    if (status == STATUS_OK && renameat(folder_fd, from, folder_fd, to) != 0)
        status = err_set(err, STATUS_IO, errno, "%.100s: cannot rename %.50s to %.50s: %s", folder,
                         from, to, strerror(errno));
    parent_of(to, parent, sizeof parent);
    if (status == STATUS_OK)
        status = sync_one(folder_fd, folder, parent, err);
    (void)close(folder_fd);
    return status;
}

/* Holds the fence's lock from the check to the rename, so that no newer owner can commit between
 * them. */
static enum status commit(struct ddp *ddp, const char *from, const char *to, struct err *err)
{
    enum status status;

    if (!ddp->has_fence)
        return err_set(err, STATUS_BAD_INPUT, 0, "no folder was given to ddp_fence before");
    if ((from == NULL) != (to == NULL) || (from != NULL && (!is_below(from) || !is_below(to))))
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "both names of a commit are paths below the folder, without \"..\"");
    status = fence_lock(&ddp->fence, err);
    if (status != STATUS_OK)
        return status;
    status = fence_check(&ddp->fence, err);
    if (status == STATUS_OK && from != NULL)
        status = move(ddp->folder, from, to, err);
    fence_unlock(&ddp->fence);
    return status;
}

enum ddp_status ddp_check_fence(struct ddp *ddp, struct ddp_error *error)
{
    struct err err = {.text = ""};
    enum status status;

    if (is_forked(ddp))
        return result_forked(error);
    (void)pthread_mutex_lock(&ddp->fence_lock);
    status = commit(ddp, NULL, NULL, &err);
    (void)pthread_mutex_unlock(&ddp->fence_lock);
    return result(status, &err, error);
}

enum ddp_status ddp_commit(struct ddp *ddp, uint64_t step, const char *from, const char *to,
                           struct ddp_error *error)
{
    struct err err = {.text = ""};
    enum status status;

    if (is_forked(ddp))
        return result_forked(error);
    (void)pthread_mutex_lock(&ddp->fence_lock);
    status = commit(ddp, from, to, &err);
    (void)pthread_mutex_unlock(&ddp->fence_lock);
    if (status != STATUS_OK)
        return result(status, &err, error);
    (void)ddp_committed(ddp, step, NULL);
    (void)tell_now(ddp, NULL); /* the checkpoint is committed in any case */
    return DDP_OK;
}
