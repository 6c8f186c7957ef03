#include "ddpctl/daemon.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/io/conn.h"
#include "common/io/own_path.h"
#include "common/io/stop_signal.h"
#include "ddpctl/units.h"

#define QUICK_US 2000000u
#define QUICK_ENDS_MAX 3u

void daemon_arg(struct daemon *daemon, const char *format, ...)
{
    char *text = daemon->arg_texts[daemon->arg_count];
    va_list args;

    assert(daemon->arg_count < DAEMON_ARGS_MAX);
    va_start(args, format);
    (void)vsnprintf(text, PATH_MAX, format, args);
    va_end(args);
    daemon->args[daemon->arg_count++] = text;
    daemon->args[daemon->arg_count] = NULL;
}

static void restart(struct daemon *daemon)
{
    struct err err = {0};

    daemon->handlers->on_restart(daemon, daemon->ended);
    if (daemon_start(daemon, daemon->loop, &err) != STATUS_OK) {
        daemon->finished = true;
        daemon->handlers->on_failed(daemon, err.text);
    }
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct daemon *daemon = handle->data;

    assert(daemon->handles_open > 0);
    if (--daemon->handles_open > 0)
        return;
    if (daemon->stopping) {
        daemon->finished = true;
        daemon->handlers->on_stopped(daemon);
    } else if (daemon->quick_ends >= QUICK_ENDS_MAX || !daemon->is_ready) {
        daemon->finished = true;
        daemon->handlers->on_failed(daemon, daemon->ended);
    } else {
        restart(daemon);
    }
}

static void on_exit(uv_process_t *process, int64_t code, int signal)
{
    struct daemon *daemon = process->data;
    char name[TEXT_BYTES];

    assert(daemon->running && daemon->handles_open == 2);
    daemon->running = false;
    signal_text((uint32_t)signal, name);
    if (signal)
        (void)snprintf(daemon->ended, sizeof daemon->ended, "killed by %s", name);
    else
        (void)snprintf(daemon->ended, sizeof daemon->ended, "exit %lld", (long long)code);
    daemon->quick_ends =
        clock_boot_us() - daemon->started_us < QUICK_US ? daemon->quick_ends + 1 : 0;
    uv_close((uv_handle_t *)process, on_handle_closed);
    uv_close((uv_handle_t *)&daemon->out, on_handle_closed);
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    static char bytes[4096]; /* used only within on_output */

    (void)handle;
    (void)suggested;
    *buf = uv_buf_init(bytes, sizeof bytes);
}

/* The daemon prints its first line on stdout when it is ready. */
static void on_output(uv_stream_t *stream, ssize_t byte_count, const uv_buf_t *buf)
{
    struct daemon *daemon = stream->data;

    if (byte_count < 0) {
        (void)uv_read_stop(stream);
        return;
    }
    for (ssize_t i = 0; i < byte_count && !daemon->is_ready; i++) {
        daemon->is_ready = buf->base[i] == '\n';
        if (!daemon->is_ready && daemon->ready_bytes < sizeof daemon->ready_line - 1)
            daemon->ready_line[daemon->ready_bytes++] = buf->base[i];
        daemon->ready_line[daemon->ready_bytes] = '\0';
        if (daemon->is_ready && !daemon->stopping)
            daemon->handlers->on_ready(daemon);
    }
}

enum status daemon_start(struct daemon *daemon, uv_loop_t *loop, struct err *err)
{
    assert(!daemon->running && daemon->handles_open == 0 && daemon->arg_count > 0);
    int log_fd = -1;
    enum status status =
        own_file_open(daemon->log_path, 0, O_WRONLY | O_CREAT | O_APPEND, 0600, &log_fd, err);
    uv_stdio_container_t stdio[DAEMON_SOCKET_FD + 1] = {
        {.flags = UV_IGNORE},
        {.flags = UV_CREATE_PIPE | UV_WRITABLE_PIPE, .data.stream = (uv_stream_t *)&daemon->out},
        {.flags = UV_INHERIT_FD, .data.fd = log_fd},
        {.flags = UV_INHERIT_FD, .data.fd = daemon->socket_fd}};
    uv_process_options_t options = {
        .exit_cb = on_exit,
        .file = daemon->program,
        .args = daemon->args,
        .env = (char **)(uintptr_t)daemon->environ,
        .flags = UV_PROCESS_DETACHED, /* so that Ctrl-C at the terminal signals only us */
        .stdio_count = daemon->socket_fd > 0 ? DAEMON_SOCKET_FD + 1 : DAEMON_SOCKET_FD,
        .stdio = stdio,
    };
    int code;

    if (status != STATUS_OK)
        return status;
    daemon->loop = loop;
    daemon->is_ready = false;
    daemon->ready_bytes = 0;
    daemon->started_us = clock_boot_us();
    (void)uv_pipe_init(loop, &daemon->out, 0);
    daemon->out.data = daemon->process.data = daemon;
    code = uv_spawn(loop, &daemon->process, &options);
    (void)close(log_fd);
    daemon->handles_open = 2;
    if (code != 0) {
        uv_close((uv_handle_t *)&daemon->process, NULL);
        uv_close((uv_handle_t *)&daemon->out, NULL);
        return err_set(err, STATUS_SYSTEM, code, "start %.180s: %s", daemon->program,
                       uv_strerror(code));
    }
    daemon->running = true;
    (void)uv_read_start((uv_stream_t *)&daemon->out, on_alloc, on_output);
    return STATUS_OK;
}

void daemon_stop(struct daemon *daemon)
{
    if (daemon->stopping || daemon->finished)
        return;
    daemon->stopping = true;
    if (daemon->running)
        (void)uv_process_kill(&daemon->process, stop_signal());
}

void daemon_kill(struct daemon *daemon)
{
    if (daemon->running)
        (void)uv_process_kill(&daemon->process, SIGKILL);
}
