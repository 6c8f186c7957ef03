#include "launcherd/shim/input.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define END_CHARACTER 4 /* Ctrl-D, which a terminal takes as the end */

static bool is_open(const struct input *input)
{
    return input->fd >= 0 && input->has_handles;
}

static void answer(struct input *input, const char *problem)
{
    const struct msg_input_state state = {.request_id = input->request_id,
                                          .taken = input->taken,
                                          .is_closed = input->was_opened ? !is_open(input)
                                                                         : !input->is_wanted,
                                          .problem = problem};

    input->is_asked = false;
    if (input->has_handles) {
        (void)uv_poll_stop(&input->poll);
        (void)uv_timer_stop(&input->timer);
    }
    input->answer(input->owner, &state);
}

static void shut(struct input *input)
{
    if (!input->has_handles)
        return;
    input->has_handles = false;
    uv_close((uv_handle_t *)&input->poll, NULL);
    uv_close((uv_handle_t *)&input->timer, NULL);
    (void)close(input->fd);
    input->fd = -1;
}

/* Tells the rank that no more bytes follow. False: the terminal cannot take that now. Within a line
 * the first end character only hands that line to the reader, and the second one is the end. */
static bool end(struct input *input)
{
    const char characters[] = {END_CHARACTER, END_CHARACTER};

    if (input->is_terminal) {
        const ssize_t wanted = input->is_in_line ? 2 : 1;
        const ssize_t written = write(input->fd, characters, (size_t)wanted);

        if (written == 1)
            input->is_in_line = false;
        if (written < wanted && (written > 0 || errno == EAGAIN || errno == EINTR))
            return false;
    }
    shut(input);
    return true;
}

static void on_writable(uv_poll_t *poll, int status, int events);

static void on_timer(uv_timer_t *timer)
{
    struct input *input = timer->data;

    if (input->is_asked)
        answer(input, "");
}

/* Writes what the pipe takes now. If bytes are left, waits until it takes more. */
static void write_on(struct input *input)
{
    while (is_open(input) && input->taken < input->offset + input->count) {
        const uint32_t skip = (uint32_t)(input->taken - input->offset);
        ssize_t written = write(input->fd, input->bytes + skip, input->count - skip);

        if (written > 0) {
            const uint8_t last = input->bytes[skip + (uint32_t)written - 1];

            input->taken += (uint64_t)written;
            input->is_in_line = last != '\n' && last != '\r' && last != END_CHARACTER;
        } else if (written < 0 && errno == EAGAIN) {
            break;
        } else if (written == 0 || errno != EINTR) {
            shut(input); /* EPIPE: the rank reads no more */
        }
    }
    if (!is_open(input) ||
        (input->taken == input->offset + input->count && (!input->is_end || end(input)))) {
        answer(input, "");
        return;
    }
    (void)uv_poll_start(&input->poll, UV_WRITABLE, on_writable);
    if (!uv_is_active((uv_handle_t *)&input->timer))
        (void)uv_timer_start(&input->timer, on_timer, INPUT_ANSWER_MS, 0);
}

static void on_writable(uv_poll_t *poll, int status, int events)
{
    struct input *input = poll->data;

    (void)status;
    (void)events;
    if (input->is_asked)
        write_on(input);
}

enum status input_open(struct input *input, uv_loop_t *loop, int fd, bool is_terminal,
                       struct err *err)
{
    int rc = uv_poll_init(loop, &input->poll, fd);

    assert(input->answer != NULL && !input->was_opened);
    if (rc != 0) {
        (void)close(fd);
        return err_set(err, STATUS_SYSTEM, rc, "cannot watch a pipe: %s", uv_strerror(rc));
    }
    (void)uv_timer_init(loop, &input->timer);
    input->poll.data = input->timer.data = input;
    input->fd = fd;
    input->is_terminal = is_terminal;
    input->was_opened = input->has_handles = true;
    return STATUS_OK;
}

void input_give(struct input *input, const struct msg_input *request)
{
    const struct winsize size = {.ws_row = (unsigned short)request->rows,
                                 .ws_col = (unsigned short)request->columns};

    if (input->is_asked)
        answer(input, "a later request came");
    input->request_id = request->request_id;
    if (!input->was_opened || !is_open(input)) {
        answer(input, input->was_opened || input->is_wanted
                          ? ""
                          : "this rank has no stdin; run --stdin gives it one");
        return;
    }
    if (input->is_terminal && request->rows > 0 && request->columns > 0)
        (void)ioctl(input->fd, TIOCSWINSZ, &size);
    if (request->offset > input->taken) {
        answer(input, "bytes before these are missing");
        return;
    }
    input->is_asked = true;
    input->offset = request->offset;
    input->count = request->bytes.count;
    input->is_end = request->is_end;
    if (request->bytes.count > 0)
        memcpy(input->bytes, request->bytes.items, request->bytes.count);
    if (input->offset + input->count < input->taken) { /* all of it was written before */
        input->offset = input->taken;
        input->count = 0;
    }
    write_on(input);
}

void input_close(struct input *input)
{
    shut(input);
    if (input->is_asked)
        answer(input, "");
}
