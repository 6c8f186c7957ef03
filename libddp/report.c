/* Sending to the shim and receiving from it. */
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "common/io/mono.h"
#include "libddp/internal.h"

enum { TELL_US = 1000000, WAIT_MS = 1000 };

static void take(void *owner, const struct wire_message *message)
{
    struct ddp *ddp = owner;

    if (message->kind == WIRE_STOP) {
        atomic_store(&ddp->kill_at_us, message->kill_at_us);
        atomic_store(&ddp->is_stopping, true);
    } else if (message->kind == WIRE_WORLD && message->generation == ddp->place.generation &&
               !ddp->has_world) {
        memcpy(ddp->blob, message->blob, message->blob_bytes);
        ddp->blob_bytes = message->blob_bytes;
        ddp->has_world = true;
    }
}

enum status pump(struct ddp *ddp, struct err *err)
{
    enum status status = link_flush(&ddp->link, err);

    if (status == STATUS_OK)
        status = link_read(&ddp->link, take, ddp, err);
    if (ddp->link.is_closed)
        atomic_store(&ddp->is_link_closed, true);
    return status;
}

enum status send_frame(struct ddp *ddp, struct buf *frame, struct err *err)
{
    enum status status = STATUS_OK;

    if (!frame->failed)
        buf_add(&ddp->link.out, frame->bytes, frame->byte_count);
    if (frame->failed || ddp->link.out.failed) {
        ddp->link.out.failed = false; /* the frame was not added; the queue has only whole frames */
        status = err_set(err, STATUS_MEMORY, 0, "no memory for a message to the shim");
    }
    buf_free(frame);
    return status == STATUS_OK ? link_flush(&ddp->link, err) : status;
}

void wait_link(const struct ddp *ddp, short events, int ms)
{
    struct pollfd wanted = {.fd = ddp->link.fd, .events = events};

    (void)poll(&wanted, 1, ms);
}

static bool is_told(const struct ddp *ddp)
{
    return !ddp->is_unsent && ddp->told_step == ddp->committed_step;
}

/* With the lock held: sends what is queued first, then one report at a time. */
static enum status tell(struct ddp *ddp, struct err *err)
{
    enum status status = pump(ddp, err);
    struct buf frame = {0};

    if (status == STATUS_CLOSED || ddp->link.out.byte_count > 0 || is_told(ddp))
        return status;
    wire_add_progress(&frame, &ddp->place, &ddp->progress, ddp->tells_later ? &ddp->times : NULL,
                      ddp->committed_step, ddp->c_locale);
    ddp->is_unsent = false;
    ddp->told_step = ddp->committed_step;
    const enum status sent = send_frame(ddp, &frame, err);
    return sent != STATUS_OK ? sent : status;
}

static bool has_job(const struct ddp *ddp)
{
    return ddp->link.fd >= 0 && ddp->place.job_id != 0;
}

enum status tell_now(struct ddp *ddp, struct err *err)
{
    const uint64_t until_us = mono_us() + TELL_US;
    enum status status = STATUS_OK;
    bool is_done = !has_job(ddp);

    while (!is_done) {
        (void)pthread_mutex_lock(&ddp->lock);
        status = tell(ddp, err);
        is_done = status == STATUS_CLOSED || status == STATUS_MEMORY ||
                  (is_told(ddp) && ddp->link.out.byte_count == 0) || mono_us() >= until_us;
        (void)pthread_mutex_unlock(&ddp->lock);
        if (!is_done)
            wait_link(ddp, POLLOUT, 100);
    }
    return status == STATUS_CLOSED || status == STATUS_MEMORY ? status : STATUS_OK;
}

/* With the lock held. True: send it at once. */
static bool take_progress(struct ddp *ddp, const struct ddp_progress *progress)
{
    const bool is_last = progress->steps > 0 && progress->step >= progress->steps;
    const bool is_new_phase = progress->phase != ddp->progress.phase;
    struct wire_times *times = &ddp->times;

    ddp->progress = *progress;
    (void)snprintf(ddp->doing, sizeof ddp->doing, "%s",
                   progress->doing != NULL ? progress->doing : "");
    ddp->progress.doing = ddp->doing;
    ddp->is_unsent = true;
    if (progress->timed_steps > 0) {
        times->steps += progress->timed_steps;
        times->step_us += wire_us(progress->step_s);
        times->data_us += wire_us(progress->data_s);
        times->compute_us += wire_us(progress->compute_s);
        times->update_us += wire_us(progress->update_s);
        times->wait_us += wire_us(progress->wait_s);
    }
    return progress->is_urgent || is_last || is_new_phase ||
           ddp->told_step != ddp->committed_step || ddp->reported_us == 0;
}

enum ddp_status ddp_report(struct ddp *ddp, const struct ddp_progress *progress,
                           struct ddp_error *error)
{
    struct err err = {.text = ""};
    enum status status = STATUS_OK;
    uint64_t now_us;

    if (is_forked(ddp))
        return result_forked(error);
    if (!has_job(ddp) || pthread_mutex_trylock(&ddp->lock) != 0)
        return DDP_OK;
    now_us = mono_us();
    if (take_progress(ddp, progress) || now_us - ddp->reported_us >= TELL_US) {
        ddp->reported_us = now_us;
        status = tell(ddp, &err);
    }
    (void)pthread_mutex_unlock(&ddp->lock);
    return result(status, &err, error);
}

enum ddp_status ddp_committed(struct ddp *ddp, uint64_t step, struct ddp_error *error)
{
    struct err err = {.text = ""};
    enum status status = STATUS_OK;

    if (is_forked(ddp))
        return result_forked(error);
    (void)pthread_mutex_lock(&ddp->lock);
    ddp->committed_us = mono_us();
    if (step > ddp->committed_step) {
        ddp->committed_step = step;
        ddp->progress.step = ddp->progress.step > step ? ddp->progress.step : step;
        if (has_job(ddp))
            status = tell(ddp, &err);
    }
    (void)pthread_mutex_unlock(&ddp->lock);
    return result(status, &err, error);
}

enum ddp_status ddp_fail(struct ddp *ddp, const char *text, struct ddp_error *error)
{
    struct err err = {.text = ""};
    struct buf frame = {0};
    enum status status = STATUS_OK;
    bool is_sent = true;

    if (is_forked(ddp))
        return result_forked(error);
    if (ddp->link.fd < 0)
        return DDP_OK;
    wire_add_error(&frame, text);
    (void)pthread_mutex_lock(&ddp->lock);
    status = send_frame(ddp, &frame, &err);
    is_sent = ddp->link.out.byte_count == 0;
    (void)pthread_mutex_unlock(&ddp->lock);
    if (status == STATUS_OK && !is_sent) {
        wait_link(ddp, POLLOUT, WAIT_MS);
        (void)pthread_mutex_lock(&ddp->lock);
        status = link_flush(&ddp->link, &err);
        (void)pthread_mutex_unlock(&ddp->lock);
    }
    return result(status, &err, error);
}
