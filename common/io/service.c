#include "common/io/service.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "common/buf.h"
#include "common/io/notify.h"
#include "common/log.h"

int service_complain(const struct option_table *table, const char *format, ...)
{
    va_list args;

    (void)fprintf(stderr, "%s: ", table->program);
    va_start(args, format);
    (void)vfprintf(stderr, format, args);
    va_end(args);
    (void)fprintf(stderr, "; see %s --help\n", table->program);
    return SERVICE_EXIT_USAGE;
}

int service_parse(const struct option_table *table, int argc, char *const *argv, void *settings)
{
    struct option_result result;
    struct buf help = {0};
    struct err err;

    if (options_parse(table, argc, argv, options_getenv, settings, &result, &err) != STATUS_OK) {
        (void)fprintf(stderr, "%s: %s\n", table->program, err.text);
        return SERVICE_EXIT_USAGE;
    }
    if (result.wants_version) {
        (void)printf("%s %s\n", table->program, DDP_VERSION);
        return EXIT_SUCCESS;
    }
    if (result.wants_help) {
        options_help(table, &help);
        (void)fwrite(help.bytes, 1, help.byte_count, stdout);
        buf_free(&help);
        return EXIT_SUCCESS;
    }
    if (result.positional_count + result.rest_count > 0)
        return service_complain(table, "it takes options only");
    return -1;
}

/* What belongs to the system is under /var/lib, what belongs to a user where the XDG base directory
 * specification says. */
void service_state_dir(const char *name, char dir[PATH_MAX])
{
    const char *state_home = getenv("XDG_STATE_HOME"), *home = getenv("HOME");

    if (geteuid() == 0)
        (void)snprintf(dir, PATH_MAX, "/var/lib/ddp%s", name);
    else if (state_home != NULL && state_home[0] == '/')
        (void)snprintf(dir, PATH_MAX, "%s/ddp%s", state_home, name);
    else
        (void)snprintf(dir, PATH_MAX, "%s/.local/state/ddp%s", home != NULL ? home : "", name);
}

bool service_begin(const char *program, const struct service_settings *settings, pid_t parent)
{
    log_open(program, LOG_INFO, settings->log_format == 1);
    (void)signal(SIGPIPE, SIG_IGN);
    if (!settings->exit_with_parent)
        return true;
    /* only its end from now on is told, so look whether it is still there */
    return prctl(PR_SET_PDEATHSIG, SIGTERM) == 0 && getppid() == parent;
}

void service_ready(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    (void)vprintf(format, args);
    va_end(args);
    (void)fflush(stdout);
    notify_ready();
}

int service_signals_open(struct service_signals *signals, uv_loop_t *loop, uv_signal_cb on_signal,
                         void *owner)
{
    static const int numbers[] = {SIGTERM, SIGINT};
    int rc = uv_signal_init(loop, &signals->handles[0]);

    if (rc < 0)
        return rc;
    rc = uv_signal_init(loop, &signals->handles[1]);
    for (int i = 0; i < 2 && rc == 0; i++) {
        signals->handles[i].data = owner;
        rc = uv_signal_start(&signals->handles[i], on_signal, numbers[i]);
        uv_unref((uv_handle_t *)&signals->handles[i]);
    }
    if (rc < 0)
        service_signals_close(signals);
    return rc;
}

void service_signals_close(struct service_signals *signals)
{
    for (int i = 0; i < 2; i++) {
        uv_handle_t *handle = (uv_handle_t *)&signals->handles[i];

        if (handle->type == UV_SIGNAL && !uv_is_closing(handle))
            uv_close(handle, NULL);
    }
}
