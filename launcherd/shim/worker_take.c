#include "launcherd/shim/worker_take.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "launcherd/shim/warm_workers.h"

struct worker_take {
    struct shim_worker *worker;
    int fd;
    uv_poll_t poll;
    struct worker_ends ends;
};

static void on_closed(uv_handle_t *handle)
{
    struct worker_take *take = handle->data;

    (void)close(take->fd);
    free(take);
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
    struct worker_take *take = poll->data;

    (void)status;
    (void)events;
    worker_take_look(take->worker);
}

static int copy_of(int fd)
{
    return fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0);
}

/* False: no descriptors are left. */
static bool copy_ends(struct worker_ends *to, const struct worker_ends *from)
{
    *to =
        (struct worker_ends){copy_of(from->stdin_fd), copy_of(from->stdout_fd),
                             copy_of(from->stderr_fd), copy_of(from->conn_fd), from->has_terminal};
    return (to->stdin_fd >= 0) == (from->stdin_fd >= 0) && to->stdout_fd >= 0 &&
           to->stderr_fd >= 0 && to->conn_fd >= 0;
}

bool worker_take_begin(struct shim_worker *worker, int fd, const struct worker_ends *ends)
{
    struct worker_take *take = calloc(1, sizeof *take);

    if (take == NULL || !copy_ends(&take->ends, ends) ||
        uv_poll_init(worker->workers->options.loop, &take->poll, fd) != 0) {
        if (take != NULL)
            worker_ends_close(&take->ends);
        free(take);
        (void)close(fd);
        return false;
    }
    take->worker = worker;
    take->fd = fd;
    take->poll.data = take;
    worker->take = take;
    (void)uv_poll_start(&take->poll, UV_READABLE, on_readable);
    return true;
}

void worker_take_look(struct shim_worker *worker)
{
    const struct shim_workers_options *options = &worker->workers->options;
    struct worker_take *take = worker->take;
    char byte = 0;
    ssize_t got;

    if (take == NULL)
        return;
    got = recv(take->fd, &byte, 1, MSG_DONTWAIT);
    if (got == 1 && byte == WARM_HAS_TAKEN) {
        worker_take_close(worker);
        options->step(options->owner,
                      (struct shim_event){.type = SHIM_EVENT_TAKEN, .local = worker->local});
    } else if (got >= 0 || (errno != EAGAIN && errno != EINTR)) {
        (void)uv_poll_stop(&take->poll); /* the core waits for SIGCHLD or its timer */
    }
}

bool worker_take_ends(struct shim_worker *worker, struct worker_ends *ends)
{
    const struct worker_ends none = {-1, -1, -1, -1, false};

    if (worker->take == NULL)
        return false;
    *ends = worker->take->ends;
    worker->take->ends = none;
    worker_take_close(worker);
    return true;
}

void worker_take_close(struct shim_worker *worker)
{
    struct worker_take *take = worker->take;

    if (take == NULL)
        return;
    worker->take = NULL;
    worker_ends_close(&take->ends);
    uv_close((uv_handle_t *)&take->poll, on_closed);
}
