#include "ddpctl/stdin_feed.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/msg_version.h"

#define ANSWER_TIMEOUT_US 15000000u
#define AGAIN_MS 100u
#define SILENT_MS 3000u
#define BREAK 0x03  /* Ctrl-C */
#define ESCAPE 0x1d /* Ctrl-] */
#define ESCAPES 3u
#define ESCAPE_US 1000000u

static void pump(struct stdin_feed *input);

/* -- the terminal ------------------------------------------------------------------------------ */

/* Sets the terminal: `is_raw` for its keys. What a rank's terminal has written is complete, and ours must add nothing to
 * it, as long as it shows that alone: our own lines have their carriage returns (screen.h). */
static bool set_terminal(struct stdin_feed *input, bool is_raw)
{
    struct termios wanted = input->before;

    if (is_raw)
        cfmakeraw(&wanted);
    wanted.c_oflag = input->before.c_oflag;
    if (!input->options.shows_lines)
        wanted.c_oflag &= ~(tcflag_t)OPOST;
    return tcsetattr(STDIN_FILENO, TCSADRAIN, &wanted) == 0;
}

static void open_terminal(struct stdin_feed *input)
{
    input->has_terminal = input->options.is_raw && tcgetattr(STDIN_FILENO, &input->before) == 0;
    if (input->has_terminal && !input->options.shows_lines)
        input->options.ctl->screen.is_raw = set_terminal(input, false);
}

static void make_raw(struct stdin_feed *input)
{
    if (!input->has_terminal || input->is_raw)
        return;
    input->is_raw = set_terminal(input, true);
    if (input->is_raw && !input->is_announced)
        screen_message(&input->options.ctl->screen,
                       "-- keys go to rank %u; Ctrl-] three times lets go of it --",
                       input->options.rank);
    input->is_announced = input->is_announced || input->is_raw;
}

/* The keys are ours. */
static void take_keys(struct stdin_feed *input)
{
    if (input->is_raw)
        (void)set_terminal(input, false);
    input->is_raw = false;
    (void)uv_timer_stop(&input->silent);
}

static void close_terminal(struct stdin_feed *input)
{
    if (input->has_terminal)
        (void)tcsetattr(STDIN_FILENO, TCSADRAIN, &input->before);
    input->has_terminal = input->is_raw = input->options.ctl->screen.is_raw = false;
    (void)uv_timer_stop(&input->silent);
}

static void on_silent(uv_timer_t *timer)
{
    struct stdin_feed *input = timer->data;

    take_keys(input);
    screen_message(
        &input->options.ctl->screen,
        "-- rank %u does not take what is typed: until it does, Ctrl-C is for the job --",
        input->options.rank);
}

static void on_resized(uv_signal_t *signal, int number)
{
    struct stdin_feed *input = signal->data;
    struct winsize size = {0};

    (void)number;
    if (ioctl(STDIN_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row == 0 || size.ws_col == 0)
        return;
    feed_size(&input->feed, size.ws_row, size.ws_col);
    pump(input);
}

/* Whether these bytes complete Ctrl-] three times. They go to the program as well. */
static bool is_escape(struct stdin_feed *input, const uint8_t *bytes, size_t byte_count)
{
    for (size_t i = 0; input->is_raw && i < byte_count; i++) {
        uint64_t now_us = clock_boot_us();

        if (bytes[i] != ESCAPE || now_us - input->escape_at_us > ESCAPE_US)
            input->escapes = 0;
        if (bytes[i] != ESCAPE)
            continue;
        if (input->escapes++ == 0)
            input->escape_at_us = now_us;
        if (input->escapes == ESCAPES)
            return true;
    }
    return false;
}

/* -- reading ----------------------------------------------------------------------------------- */

/* Reads from stdin once. False: nothing can be read now. */
static bool read_some(struct stdin_feed *input)
{
    uint8_t bytes[STDIN_BYTES_MAX];
    uint32_t room = feed_room(&input->feed);
    ssize_t got = room > 0 ? read(input->fd, bytes, room) : 0;

    if (room == 0 || (got < 0 && (errno == EAGAIN || errno == EINTR)))
        return false;
    if (got <= 0)
        feed_end(&input->feed);
    else
        feed_add(&input->feed, bytes, (uint32_t)got);
    if (got > 0 && is_escape(input, bytes, (size_t)got))
        input->options.on_escape(input->options.owner);
    return true;
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
    struct stdin_feed *input = poll->data;

    (void)status;
    (void)events;
    if (read_some(input))
        pump(input);
}

/* The rank takes no more input. Closes our stdin, so that a program that writes into it notices. */
static void stop_reading(struct stdin_feed *input)
{
    int null_fd;

    if (input->has_poll)
        uv_close((uv_handle_t *)&input->poll, NULL);
    input->has_poll = input->is_polled = false;
    if (input->fd >= 0)
        (void)close(input->fd);
    input->fd = -1;
    null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (null_fd >= 0) {
        (void)dup2(null_fd, STDIN_FILENO);
        (void)close(null_fd);
    }
}

static void read_when_there_is_room(struct stdin_feed *input)
{
    bool is_wanted = feed_room(&input->feed) > 0 && !input->feed.is_over && input->fd >= 0;

    if (!is_wanted && input->is_polled)
        (void)uv_poll_stop(&input->poll);
    if (is_wanted && input->has_poll && !input->is_polled)
        (void)uv_poll_start(&input->poll, UV_READABLE, on_readable);
    input->is_polled = is_wanted && input->has_poll;
    if (is_wanted && !input->has_poll && input->feed.generation > 0)
        (void)read_some(input); /* a file: it can be read without waiting */
}

/* -- sending ----------------------------------------------------------------------------------- */

static void pump(struct stdin_feed *input)
{
    struct msg msg = {.type = MSG_TYPE_INPUT};
    struct err err = {0};

    if (!input->is_open)
        return;
    if (input->feed.count == 0 || input->has_poll)
        read_when_there_is_room(input);
    if (input->is_raw && (input->feed.count > 0 || input->feed.in_flight) &&
        !uv_is_active((uv_handle_t *)&input->silent))
        (void)uv_timer_start(&input->silent, on_silent, SILENT_MS, 0);
    if (!input->is_open || !input->has_client || !input->client.open ||
        !feed_next(&input->feed, &msg.input))
        return;
    msg.input.job_id = input->job_id;
    client_expect(&input->client, ANSWER_TIMEOUT_US);
    if (client_send(&input->client, &msg, &err) != STATUS_OK)
        feed_lost(&input->feed);
    read_when_there_is_room(input);
}

static void on_again(uv_timer_t *timer)
{
    pump(timer->data);
}

static void on_open(struct client *client)
{
    struct stdin_feed *input = client->owner;

    feed_lost(&input->feed);
    pump(input);
}

/* The rank takes no more. Ctrl-C on its way to it is for us. */
static void give_up(struct stdin_feed *input)
{
    const bool is_break = input->is_raw && input->feed.count > 0 &&
                          memchr(input->feed.bytes, BREAK, input->feed.count) != NULL;

    take_keys(input);
    if (is_break)
        input->options.on_break(input->options.owner);
}

static void on_message(struct client *client, const struct msg *msg)
{
    struct stdin_feed *input = client->owner;
    struct screen *screen = &input->options.ctl->screen;

    client_expect(client, 0);
    if (msg->type == MSG_TYPE_ERROR)
        screen_error(screen, msg->error.code, msg->error.message, msg->error.hint);
    if (msg->type != MSG_TYPE_INPUT_STATE)
        return;
    switch (feed_take(&input->feed, &msg->input_state)) {
    case FEED_GOES_ON:
        (void)uv_timer_stop(&input->silent);
        make_raw(input);
        pump(input);
        break;
    case FEED_WAITS:
        (void)uv_timer_start(&input->timer, on_again, AGAIN_MS, 0);
        break;
    case FEED_OVER:
        if (msg->input_state.problem[0])
            screen_message(screen, "-- rank %u gets no input: %s --", input->feed.rank,
                           msg->input_state.problem);
        if (!input->options.is_raw)
            stop_reading(input);
        give_up(input);
        break;
    }
}

static void on_failed(struct client *client, const struct err *err)
{
    struct stdin_feed *input = client->owner;

    screen_message(&input->options.ctl->screen, "-- rank %u gets no more input: %s --",
                   input->feed.rank, err->text);
}

static const struct client_handlers handlers = {
    .on_open = on_open, .on_message = on_message, .on_failed = on_failed};

/* -- for attach.c ------------------------------------------------------------------------------ */

/* Opens stdin again with O_NONBLOCK, if possible. This file description is our own: programs that
 * share our stdin do not get O_NONBLOCK. A file or a disk never makes us wait. Its description is
 * shared: we begin where the caller is in it, and the caller goes on after what we have read. */
static int open_stdin(void)
{
    struct stat stat;
    int fd = -1;

    if (fstat(STDIN_FILENO, &stat) != 0 || !(S_ISREG(stat.st_mode) || S_ISBLK(stat.st_mode)))
        fd = open("/proc/self/fd/0", O_RDONLY | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
    return fd >= 0 ? fd : fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
}

void stdin_feed_open(struct stdin_feed *input, const struct stdin_feed_options *options)
{
    assert(!input->is_open && options->on_escape != NULL && options->on_break != NULL);
    *input = (struct stdin_feed){.options = *options, .is_open = true, .fd = -1};
    input->feed.rank = options->rank;
    input->feed.is_terminal = options->is_raw;
    (void)uv_timer_init(options->loop, &input->timer);
    (void)uv_timer_init(options->loop, &input->silent);
    (void)uv_signal_init(options->loop, &input->resized);
    input->timer.data = input->silent.data = input->resized.data = input;
    input->fd = open_stdin();
    if (input->fd < 0)
        feed_end(&input->feed); /* there is no stdin */
    else if (uv_poll_init(options->loop, &input->poll, input->fd) == 0)
        input->has_poll = true; /* otherwise stdin is a file */
    input->poll.data = input;
    open_terminal(input);
    if (input->has_terminal)
        (void)uv_signal_start(&input->resized, on_resized, SIGWINCH);
}

void stdin_feed_job(struct stdin_feed *input, uint64_t job_id, uint32_t generation)
{
    const struct stdin_feed_options *options = &input->options;

    if (!input->is_open)
        return;
    input->job_id = job_id;
    if (options->is_raw && generation != input->feed.generation)
        feed_probe(&input->feed);
    if (feed_generation(&input->feed, generation))
        screen_message(&options->ctl->screen,
                       "-- generation %u: the stdin of rank %u is at its end, because generation "
                       "%u had some of it --",
                       generation, options->rank, generation - 1);
    if (!input->has_client) {
        input->has_client = true;
        client_open(&input->client, options->loop, &options->ctl->server, options->patience_us,
                    &handlers, input);
        input->client.first_is_patient = true;
    }
    pump(input);
}

void stdin_feed_over(struct stdin_feed *input, uint32_t generation)
{
    if (!input->is_open || !input->options.is_raw || generation != input->feed.generation ||
        input->feed.is_over)
        return;
    input->feed.is_over = true;
    give_up(input);
    read_when_there_is_room(input);
}

void stdin_feed_close(struct stdin_feed *input)
{
    if (!input->is_open)
        return;
    input->is_open = false;
    close_terminal(input);
    if (input->has_client)
        client_close(&input->client);
    if (input->has_poll)
        uv_close((uv_handle_t *)&input->poll, NULL);
    uv_close((uv_handle_t *)&input->timer, NULL);
    uv_close((uv_handle_t *)&input->silent, NULL);
    uv_close((uv_handle_t *)&input->resized, NULL);
    if (input->fd >= 0)
        (void)close(input->fd);
    input->fd = -1;
}
