#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/io/mono.h"
#include "libddp/internal.h"
#include "libddp/place.h"

enum { JOIN_SLICE_MS = 200 };

static _Atomic pid_t opened_by; /* 0: no handle was opened yet */

enum status ddp_open_at(struct ddp **out, const struct ddp_place *place, int shim_fd,
                        struct err *err)
{
    struct ddp *ddp = calloc(1, sizeof *ddp);
    enum status status;

    *out = NULL;
    if (ddp == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory for the link to the shim");
    ddp->place = *place;
    ddp->committed_step = ddp->told_step = place->checkpoint_step;
    ddp->committed_us = mono_us();
    ddp->pid = getpid();
    ddp->tells_later = place_shim_protocol() >= 2;
    ddp->store.fd = ddp->fence.lock_fd = ddp->fence.life_fd = -1;
    ddp->c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    (void)pthread_mutex_init(&ddp->lock, NULL);
    (void)pthread_mutex_init(&ddp->store_lock, NULL);
    (void)pthread_mutex_init(&ddp->fence_lock, NULL);
    status = link_open(&ddp->link, shim_fd, err);
    if (status == STATUS_OK && ddp->c_locale == (locale_t)0)
        status = err_set(err, STATUS_MEMORY, errno, "no memory for the C locale");
    *out = ddp;
    if (status != STATUS_OK)
        ddp_leave(out);
    return status;
}

enum ddp_status ddp_open(struct ddp **ddp, struct ddp_error *error)
{
    const pid_t opener = atomic_load(&opened_by), own = getpid();
    struct ddp_place place;
    struct err err = {.text = ""};
    int shim_fd = -1;
    enum status status;

    *ddp = NULL;
    if (opener != 0 && opener != own)
        return result_forked(error);
    if (opener == own)
        status = err_set(&err, STATUS_BAD_INPUT, 0, "ddp_open was called before in this process");
    else
        status = place_read(&place, &shim_fd, &err);
    if (status == STATUS_OK)
        status = ddp_open_at(ddp, &place, shim_fd, &err);
    if (status == STATUS_OK)
        atomic_store(&opened_by, own);
    return result(status, &err, error);
}

void ddp_leave(struct ddp **out)
{
    struct ddp *ddp = *out;

    *out = NULL;
    if (ddp == NULL)
        return;
    if (!is_forked(ddp)) {
        (void)tell_now(ddp, NULL);
        fence_close(&ddp->fence);
    } else if (ddp->fence.lock_fd >= 0) { /* the lock file of our life belongs to the parent */
        (void)close(ddp->fence.lock_fd);
        (void)close(ddp->fence.life_fd);
    }
    link_close(&ddp->link);
    store_close(&ddp->store);
    if (ddp->c_locale != (locale_t)0)
        freelocale(ddp->c_locale);
    (void)pthread_mutex_destroy(&ddp->lock);
    (void)pthread_mutex_destroy(&ddp->store_lock);
    (void)pthread_mutex_destroy(&ddp->fence_lock);
    free(ddp);
}

const struct ddp_place *ddp_get_place(const struct ddp *ddp)
{
    return &ddp->place;
}

/* -- joining ----------------------------------------------------------------------------------- */

static enum status send_join(struct ddp *ddp, const void *blob, size_t blob_bytes, struct err *err)
{
    struct buf frame = {0};
    enum status status = STATUS_OK;

    (void)pthread_mutex_lock(&ddp->lock);
    if (ddp->has_joined)
        status = err_set(err, STATUS_BAD_INPUT, 0, "ddp_join was called before");
    else if (!ddp->is_joining) {
        wire_add_join(&frame, ddp->place.rank, ddp->place.generation, blob, blob_bytes);
        status = send_frame(ddp, &frame, err);
        ddp->is_joining = status == STATUS_OK;
    }
    (void)pthread_mutex_unlock(&ddp->lock);
    return status;
}

static enum status wait_for_world(struct ddp *ddp, const struct store_limit *limit, struct err *err)
{
    for (;;) {
        enum status status;
        bool is_waiting, is_sending;

        (void)pthread_mutex_lock(&ddp->lock);
        status = pump(ddp, err);
        is_waiting = !ddp->has_world;
        is_sending = ddp->link.out.byte_count > 0;
        (void)pthread_mutex_unlock(&ddp->lock);
        if (!is_waiting)
            return STATUS_OK;
        if (status != STATUS_OK)
            return status;
        if (stop_is_caught())
            return err_set(err, STATUS_CLOSED, 0, "stopped by a signal while it waited for others");
        if (mono_us() >= limit->until_us)
            return err_set(err, STATUS_TIMEOUT, 0, "not all of %u ranks have joined in time",
                           ddp->place.world);
        wait_link(ddp, is_sending ? POLLIN | POLLOUT : POLLIN, JOIN_SLICE_MS);
    }
}

static enum status join_shim(struct ddp *ddp, void *blob, size_t *blob_bytes, size_t room,
                             const struct store_limit *limit, struct err *err)
{
    enum status status = send_join(ddp, blob, *blob_bytes, err);

    if (status == STATUS_OK)
        status = wait_for_world(ddp, limit, err);
    if (status != STATUS_OK)
        return status;
    (void)pthread_mutex_lock(&ddp->lock);
    ddp->has_joined = true;
    (void)pthread_mutex_unlock(&ddp->lock);
    *blob_bytes = ddp->blob_bytes;
    if (ddp->blob_bytes > room)
        return err_set(err, STATUS_TOO_BIG, 0, "the blob of rank 0 has %u bytes, room is for %zu",
                       ddp->blob_bytes, room);
    if (ddp->blob_bytes > 0)
        memcpy(blob, ddp->blob, ddp->blob_bytes);
    return STATUS_OK;
}

static enum status join(struct ddp *ddp, void *blob, size_t *blob_bytes, size_t room,
                        const struct store_limit *limit, struct err *err)
{
    enum status status = STATUS_OK;

    if (*blob_bytes > DDP_BLOB_BYTES_MAX)
        return err_set(err, STATUS_TOO_BIG, 0, "a blob of %zu bytes, at most %u are allowed",
                       *blob_bytes, DDP_BLOB_BYTES_MAX);
    if (ddp->link.fd >= 0)
        return join_shim(ddp, blob, blob_bytes, room, limit, err);
    if (ddp->place.world == 1)
        return STATUS_OK;
    (void)pthread_mutex_lock(&ddp->store_lock);
    status = share(ddp, blob, blob_bytes, room, limit, err);
    (void)pthread_mutex_unlock(&ddp->store_lock);
    return status;
}

enum ddp_status ddp_join(struct ddp *ddp, void *blob, size_t *blob_bytes, size_t blob_bytes_max,
                         double limit_s, struct ddp_error *error)
{
    struct store_limit limit;
    struct err err = {.text = ""};
    enum status status;

    if (is_forked(ddp))
        return result_forked(error);
    status = store_limit_from(&limit, limit_s, stop_is_caught, &err);
    if (status == STATUS_OK)
        status = join(ddp, blob, blob_bytes, blob_bytes_max, &limit, &err);
    return result(status, &err, error);
}
