/* ddpctl top: jobs, nodes and GPUs, live at a terminal (top_view.h), once, or as JSON. Only nodes that are on the
 * screen are asked for their values. The terminal is restored at every end, also after a signal. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "common/io/conn.h"
#include "ddpctl/collect.h"
#include "ddpctl/top_json.h"
#include "ddpctl/top_view.h"
#include "ddpctl/verbs.h"

#define DRAW_MS 50u        /* changes within this time are drawn together */
#define ONCE_WAIT_MS 2000u /* how long --once waits for nodes */
#define ONCE_ROWS 5000u    /* for --once: enough for all jobs and nodes */
#define ROWS_DEFAULT 24u
#define COLUMNS_DEFAULT 400u /* if there is no terminal */

/* The alternate screen, no cursor, no line wrap. */
#define TERMINAL_BEGIN "\x1b[?1049h\x1b[?25l\x1b[?7l"
#define TERMINAL_END "\x1b[?7h\x1b[?25h\x1b[?1049l"

enum { SIGNALS = 5 };
static const int watched_signals[SIGNALS] = {SIGINT, SIGTERM, SIGHUP, SIGWINCH, SIGTSTP};

struct top_run {
    struct ctl *ctl;
    uv_loop_t loop;
    struct collect collect;
    struct top_state state;
    uv_timer_t timer;
    uv_poll_t keyboard;
    uv_signal_t signals[SIGNALS];
    bool is_live, has_keyboard, is_closed, is_first_read;
    char lost_why[256];
    char keys[64]; /* the first bytes of a key */
    size_t key_bytes;
    int exit_code;
};

/* -- the terminal -- */

static struct termios saved_terminal;
static volatile sig_atomic_t terminal_is_changed;

/* Signal handlers call it too. */
static void restore_terminal(void)
{
    if (!terminal_is_changed)
        return;
    terminal_is_changed = 0;
    (void)!write(STDOUT_FILENO, TERMINAL_END, sizeof TERMINAL_END - 1);
    (void)tcsetattr(STDIN_FILENO, TCSANOW, &saved_terminal);
}

static void on_crash(int number)
{
    restore_terminal();
    (void)signal(number, SIG_DFL);
    (void)raise(number);
}

static void change_terminal(void)
{
    static const int crashes[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGQUIT};
    struct termios raw;

    if (terminal_is_changed || tcgetattr(STDIN_FILENO, &saved_terminal) != 0)
        return;
    raw = saved_terminal;
    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO); /* ISIG stays: Ctrl-C is a signal */
    raw.c_cc[VMIN] = 1;
    raw.c_cc[VTIME] = 0;
    for (size_t i = 0; i < sizeof crashes / sizeof crashes[0]; i++)
        (void)signal(crashes[i], on_crash);
    terminal_is_changed = 1;
    (void)tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    (void)!write(STDOUT_FILENO, TERMINAL_BEGIN, sizeof TERMINAL_BEGIN - 1);
}

static void terminal_size(struct top_view *view, bool with_rows)
{
    struct winsize size = {0};

    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row == 0 || size.ws_col == 0)
        return;
    view->rows = with_rows ? size.ws_row : view->rows;
    view->columns = size.ws_col;
}

/* -- pictures -- */

static struct top_view make_view(const struct top_run *run)
{
    const struct collect *collect = &run->collect;
    struct top_view view = {.cluster = &collect->cluster,
                            .gauges = &collect->gauges,
                            .server = run->ctl->server.address,
                            .lost_why = run->lost_why,
                            .job = collect->watched.info.jobs.count > 0 ? &collect->watched.info
                                                                        : NULL,
                            .job_problem = collect->watched_problem,
                            .now_us = clock_boot_us(),
                            .now_ms = clock_wall_ms(),
                            .rows = run->is_live ? ROWS_DEFAULT : ONCE_ROWS,
                            .columns = COLUMNS_DEFAULT,
                            .is_terminal = run->is_live,
                            .has_color = run->ctl->screen.color};

    terminal_size(&view, run->is_live);
    return view;
}

static bool want(void *owner, const char *node)
{
    struct top_run *run = owner;

    return collect_want(&run->collect, node, run->ctl->options.interval_us);
}

static void ask_gauges(struct top_run *run)
{
    struct top_view view = make_view(run);

    if (!run->is_closed)
        top_wanted(&run->state, &view, want, run);
}

/* Draws the whole screen in one write, over the old one, so that nothing flickers. */
static void draw(struct top_run *run)
{
    struct top_view view = make_view(run);
    struct buf lines = {0}, out = {0};
    const char *at, *end;

    top_draw(&run->state, &view, &lines);
    buf_add_text(&out, "\x1b[H");
    at = lines.bytes;
    end = lines.bytes + lines.byte_count;
    while (at < end) {
        size_t length = (size_t)((const char *)memchr(at, '\n', (size_t)(end - at)) - at);

        buf_add(&out, at, length);
        at += length + 1;
        buf_add_text(&out, at < end ? "\x1b[K\r\n" : "\x1b[K");
    }
    buf_add_text(&out, "\x1b[J");
    out.failed = out.failed || lines.failed;
    buf_free(&lines);
    (void)screen_out(&run->ctl->screen, &out);
}

static void close_all(struct top_run *run, int exit_code)
{
    if (run->is_closed)
        return;
    run->is_closed = true;
    run->exit_code = exit_code;
    restore_terminal();
    collect_close(&run->collect);
    uv_close((uv_handle_t *)&run->timer, NULL);
    if (run->has_keyboard)
        uv_close((uv_handle_t *)&run->keyboard, NULL);
    for (size_t i = 0; i < SIGNALS; i++)
        uv_close((uv_handle_t *)&run->signals[i], NULL);
}

/* Prints the output of --once and --json. */
static void print(struct top_run *run)
{
    const struct options *options = &run->ctl->options;
    struct top_view view = make_view(run);
    struct buf out = {0};
    bool is_missing = run->state.screen == TOP_JOB && view.job == NULL;

    if (is_missing) {
        close_all(run, ctl_fail(run->ctl, CTL_NOT_FOUND, view.job_problem, "ddpctl ps -a"));
        return;
    }
    if (run->ctl->screen.json)
        top_json_write(&view, &out);
    else
        top_draw(&run->state, &view, &out);
    if (screen_out(&run->ctl->screen, &out) != STATUS_OK)
        close_all(run, CTL_FAILED);
    else if (options->once)
        close_all(run, CTL_OK);
}

static void on_draw(uv_timer_t *timer)
{
    struct top_run *run = timer->data;

    if (run->is_live)
        draw(run);
    else
        print(run);
}

static void draw_soon(struct top_run *run, uint64_t in_ms)
{
    if (!run->is_closed && !uv_is_active((uv_handle_t *)&run->timer))
        (void)uv_timer_start(&run->timer, on_draw, in_ms, 0);
}

/* -- events -- */

static void on_snapshot(struct collect *collect)
{
    struct top_run *run = collect->options.owner;

    run->lost_why[0] = '\0';
    ask_gauges(run);
    if (run->is_live)
        draw_soon(run, 0);
    else
        draw_soon(run, collect->asked_count > 0 ? ONCE_WAIT_MS : 0);
}

/* --once is done when all nodes have answered. */
static void on_gauges(struct collect *collect, const struct gauges_row *row)
{
    struct top_run *run = collect->options.owner;

    (void)row;
    ask_gauges(run);
    if (run->is_live) {
        draw_soon(run, DRAW_MS);
    } else if (collect->asked_count == 0 && uv_is_active((uv_handle_t *)&run->timer)) {
        (void)uv_timer_start(&run->timer, on_draw, 0, 0);
    }
}

static void on_waiting(struct collect *collect, const struct err *err)
{
    struct top_run *run = collect->options.owner;

    (void)snprintf(run->lost_why, sizeof run->lost_why, "%s", err->text);
    if (run->is_live)
        draw_soon(run, 0);
    else
        screen_message(&run->ctl->screen, "-- the server does not answer (%s); still trying --",
                       err->text);
}

static void on_failed(struct collect *collect, const struct err *err)
{
    struct top_run *run = collect->options.owner;

    close_all(run, CTL_FAILED); /* restores the terminal before the error is shown */
    run->exit_code = ctl_fail_server(run->ctl, err);
}

static void on_keys(struct top_run *run)
{
    size_t used = 0;

    while (run->key_bytes > 0 && !run->state.is_over) {
        struct top_view view = make_view(run);
        enum top_key key = top_key_read(run->keys, run->key_bytes, &used);

        top_key(&run->state, &view, key);
        run->key_bytes -= used;
        memmove(run->keys, run->keys + used, run->key_bytes);
    }
    if (run->state.is_over) {
        close_all(run, CTL_OK);
        return;
    }
    collect_watch(&run->collect, run->state.screen == TOP_JOB || run->state.below == TOP_JOB
                                     ? run->state.job
                                     : "");
    ask_gauges(run);
    draw(run);
}

static void on_keyboard(uv_poll_t *poll, int status, int events)
{
    struct top_run *run = poll->data;
    ssize_t got = read(STDIN_FILENO, run->keys + run->key_bytes, sizeof run->keys - run->key_bytes);

    (void)events;
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (status < 0 || got <= 0) { /* the terminal is gone */
        close_all(run, CTL_FAILED);
        return;
    }
    run->key_bytes += (size_t)got;
    on_keys(run);
}

static void on_signal(uv_signal_t *handle, int number)
{
    struct top_run *run = handle->data;

    if (number == SIGWINCH) {
        draw_soon(run, 0);
    } else if (number == SIGTSTP) {
        restore_terminal();
        (void)raise(SIGSTOP);
        change_terminal(); /* we were continued */
        draw_soon(run, 0);
    } else {
        close_all(run, 128 + number);
    }
}

static const struct collect_handlers handlers = {.on_snapshot = on_snapshot,
                                                 .on_gauges = on_gauges,
                                                 .on_waiting = on_waiting,
                                                 .on_failed = on_failed};

static void open_handles(struct top_run *run)
{
    const struct options *options = &run->ctl->options;

    (void)uv_timer_init(&run->loop, &run->timer);
    run->timer.data = run;
    for (size_t i = 0; i < SIGNALS; i++) {
        (void)uv_signal_init(&run->loop, &run->signals[i]);
        run->signals[i].data = run;
        if (run->is_live || watched_signals[i] == SIGINT || watched_signals[i] == SIGTERM)
            (void)uv_signal_start(&run->signals[i], on_signal, watched_signals[i]);
    }
    if (run->is_live && uv_poll_init(&run->loop, &run->keyboard, STDIN_FILENO) == 0) {
        run->has_keyboard = true;
        run->keyboard.data = run;
        (void)uv_poll_start(&run->keyboard, UV_READABLE, on_keyboard);
    }
    collect_open(&run->collect, &(struct collect_options){.loop = &run->loop,
                                                          .server = &run->ctl->server,
                                                          .interval_us = options->interval_us,
                                                          .patience_us = options->patience_us,
                                                          .handlers = &handlers,
                                                          .owner = run});
    if (run->state.screen == TOP_JOB)
        collect_watch(&run->collect, run->state.job);
}

static int show(struct top_run *run)
{
    int rc = uv_loop_init(&run->loop);

    if (rc != 0)
        return ctl_fail(run->ctl, CTL_FAILED, "no event loop: out of files or memory", "");
    open_handles(run);
    if (run->is_live) {
        change_terminal();
        draw(run);
    }
    (void)uv_run(&run->loop, UV_RUN_DEFAULT);
    restore_terminal();
    collect_free(&run->collect);
    (void)uv_loop_close(&run->loop);
    return run->exit_code;
}

int verb_top(struct ctl *ctl)
{
    const char *terminal = getenv("TERM");
    bool has_terminal = ctl->screen.out_is_tty && isatty(STDIN_FILENO) == 1 &&
                        (terminal == NULL || strcmp(terminal, "dumb") != 0);
    struct top_run *run;
    int rc = verb_too_many(ctl, 1);

    if (rc == CTL_OK && ctl->word_count > 0)
        rc = verb_need_job(ctl);
    if (rc != CTL_OK)
        return rc;
    if (!has_terminal && !ctl->options.once && !ctl->screen.json)
        return ctl_fail(ctl, CTL_USAGE, "top needs a terminal that can move its cursor",
                        "--once prints one picture, --json one object each second");
    run = calloc(1, sizeof *run);
    if (run == NULL)
        return ctl_fail(ctl, CTL_FAILED, "out of memory", "");
    run->ctl = ctl;
    run->is_live = !ctl->options.once && !ctl->screen.json;
    if (ctl->word_count > 0) {
        (void)snprintf(run->state.job, sizeof run->state.job, "%s", ctl->words[0]);
        run->state.screen = TOP_JOB;
        run->state.job_is_fixed = true;
    }
    rc = show(run);
    free(run);
    return rc;
}
