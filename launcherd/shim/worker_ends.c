#include "launcherd/shim/worker_ends.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/launch.h"
#include "launcherd/shim/terminal.h"

static void on_input_answer(void *owner, const struct msg_input_state *state)
{
    struct shim_worker *worker = owner;
    const struct shim_workers_options *options = &worker->workers->options;

    options->on_input(options->owner, state);
}

void worker_ends_init(struct shim_worker *worker)
{
    const struct msg_start *start = worker->workers->options.start;
    const char *value = launch_value(&start->launch, LAUNCH_STDIN);
    uint32_t rank;

    worker->input.owner = worker;
    worker->input.answer = on_input_answer;
    worker->input.is_wanted =
        value != NULL && launch_rank(value, &rank) && rank == start->rank_base + worker->local;
}

/* Opens the rank's terminal. Its master is read for the output; a copy of the master is written for
 * the input. */
static enum status open_terminal(struct shim_worker *worker, uint32_t rows, uint32_t columns,
                                 struct worker_ends *ends, struct err *err)
{
    const struct shim_workers *workers = worker->workers;
    const struct shim_workers_options *options = &workers->options;
    int master, input_fd;
    enum status status =
        terminal_open(rows, columns, workers->as_self ? (uid_t)-1 : workers->account.uid, &master,
                      &ends->stdout_fd, err);

    if (status != STATUS_OK)
        return status;
    ends->has_terminal = true;
    ends->stderr_fd = fcntl(ends->stdout_fd, F_DUPFD_CLOEXEC, 0);
    input_fd = worker->input.is_wanted ? fcntl(master, F_DUPFD_CLOEXEC, 0) : -1;
    if (worker->input.is_wanted)
        ends->stdin_fd = fcntl(ends->stdout_fd, F_DUPFD_CLOEXEC, 0);
    if (ends->stderr_fd < 0 || (worker->input.is_wanted && (input_fd < 0 || ends->stdin_fd < 0)))
        status = err_set(err, STATUS_SYSTEM, errno, "cannot use a terminal: %s", strerror(errno));
    if (status != STATUS_OK) {
        (void)close(master);
        if (input_fd >= 0)
            (void)close(input_fd);
        return status;
    }
    status =
        output_open_terminal(&worker->output, options->loop, &worker->workers->writer, master, err);
    if (input_fd >= 0 && status == STATUS_OK)
        return input_open(&worker->input, options->loop, input_fd, true, err);
    if (input_fd >= 0)
        (void)close(input_fd);
    return status;
}

static enum status open_pipe(struct shim_worker *worker, struct worker_ends *ends, struct err *err)
{
    int fds[2];

    if (pipe2(fds, O_CLOEXEC) != 0)
        return err_set(err, STATUS_SYSTEM, errno, "cannot make a pipe: %s", strerror(errno));
    ends->stdin_fd = fds[0];
    return input_open(&worker->input, worker->workers->options.loop, fds[1], false, err);
}

static enum status open_streams(struct shim_worker *worker, struct worker_ends *ends,
                                struct err *err)
{
    const struct shim_workers_options *options = &worker->workers->options;
    const char *size = launch_value(&options->start->launch, LAUNCH_TTY);
    uint32_t rows = 0, columns = 0;
    int fds[2];
    enum status status;

    if (size != NULL && launch_size(size, &rows, &columns))
        return open_terminal(worker, rows, columns, ends, err);
    status = (launch_value(&options->start->launch, LAUNCH_STREAMS) != NULL ? output_open_one
                                                                            : output_open)(
        &worker->output, options->loop, &worker->workers->writer, fds, err);
    ends->stdout_fd = fds[0];
    ends->stderr_fd = fds[1];
    return status == STATUS_OK && worker->input.is_wanted ? open_pipe(worker, ends, err) : status;
}

static enum status open_conn(struct shim_worker *worker, const struct conn_handlers *handlers,
                             int *conn_fd, struct err *err)
{
    int pair[2];
    enum status status;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        return err_set(err, STATUS_SYSTEM, errno, "cannot make a socket pair: %s", strerror(errno));
    *conn_fd = pair[1];
    status = conn_open_fd(&worker->conn, worker->workers->options.loop, pair[0], FRAME_BYTES_MAX,
                          handlers, err);
    if (status != STATUS_OK) {
        close(pair[0]);
        return status;
    }
    worker->conn.protocols.peer = 1; /* a worker sends no version: later fields are optional */
    worker->conn.owner = worker;
    worker->conn_open = true;
    return STATUS_OK;
}

enum status worker_ends_open(struct shim_worker *worker, const struct conn_handlers *handlers,
                             struct worker_ends *ends, struct err *err)
{
    *ends = (struct worker_ends){-1, -1, -1, -1, false};
    enum status status = open_streams(worker, ends, err);
    return status == STATUS_OK ? open_conn(worker, handlers, &ends->conn_fd, err) : status;
}

void worker_ends_close(struct worker_ends *ends)
{
    const int fds[] = {ends->stdin_fd, ends->stdout_fd, ends->stderr_fd, ends->conn_fd};

    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++)
        if (fds[i] >= 0)
            close(fds[i]);
}

void worker_ends_input(struct shim_workers *workers, const struct msg_input *request)
{
    const struct msg_start *start = workers->options.start;
    const struct msg_input_state nobody = {.request_id = request->request_id,
                                           .is_closed = true,
                                           .problem = "this rank is not on this node"};

    if (request->generation == start->generation && request->rank >= start->rank_base &&
        request->rank - start->rank_base < start->local_count && !workers->closed)
        input_give(&workers->items[request->rank - start->rank_base].input, request);
    else
        workers->options.on_input(workers->options.owner, &nobody);
}
