#include "common/io/service.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/buf.h"
#include "common/io/notify.h"
#include "common/io/standard_open.h"
#include "common/io/stop_signal.h"
#include "common/log.h"
#include "common/msg_version.h"
#include "common/option_docs.h"

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

/* Handles --help=man, bash, zsh or fish. */
static bool service_docs(const struct option_table *table, int argc, char *const *argv)
{
    const struct option_docs docs = {.table = table};
    enum option_form form;
    struct buf text = {0};

    if (!option_docs_asked(argc, argv, &form))
        return false;
    option_docs_write(&docs, form, &text);
    (void)fwrite(text.bytes, 1, text.byte_count, stdout);
    buf_free(&text);
    return true;
}

int service_parse(const struct option_table *table, int argc, char *const *argv, void *settings)
{
    struct option_result result;
    struct buf help = {0};
    const char *missing;
    struct err err;

    assert(argc >= 1);
    if (service_docs(table, argc, argv))
        return EXIT_SUCCESS;
    if (options_parse(table, argc, argv, options_getenv, settings, &result, &err) != STATUS_OK) {
        (void)fprintf(stderr, "%s: %s\n", table->program, err.text);
        return SERVICE_EXIT_USAGE;
    }
    if (result.wants_version) {
        (void)printf("%s %s\n", table->program, msg_release());
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
    missing = standard_missing();
    if (missing == NULL)
        return -1;
    (void)fprintf(stderr, "%s: %s\n", table->program, missing);
    return EXIT_FAILURE;
}

/* The state of root is under /var/lib; the state of a user is where the XDG base directory
 * specification puts it. */
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

/* Whether the process that started us, as it says, has ended, a zombie included. It may have ended before
 * main began, when getppid() is that of another one already. It need not be our parent: there may be a
 * wrapper between us. */
static bool starter_has_ended(void)
{
    const char *said = getenv(SERVICE_STARTER_VARIABLE);
    const long pid = said != NULL ? strtol(said, NULL, 10) : 0;
    struct pollfd ended = {.events = POLLIN};
    bool has_ended;

    (void)unsetenv(SERVICE_STARTER_VARIABLE); /* of nobody whom we start */
    if (pid <= 0 || pid > INT_MAX || getppid() == pid)
        return false;
    ended.fd = (int)syscall(SYS_pidfd_open, (pid_t)pid, 0);
    if (ended.fd < 0)
        return errno == ESRCH;
    has_ended = poll(&ended, 1, 0) == 1;
    (void)close(ended.fd);
    return has_ended;
}

/* One arena for all threads: each arena of its own would take 100 KB and more, and our threads allocate little. And a
 * fixed threshold: glibc raises it when a large block is freed, and then keeps such blocks for ever. */
void service_memory(void)
{
    (void)mallopt(M_ARENA_MAX, 1);
    (void)mallopt(M_MMAP_THRESHOLD, 128 * 1024); /* glibc's first one */
}

bool service_begin(const char *program, const struct service_settings *settings, pid_t parent)
{
    service_memory();
    log_open(program, LOG_INFO, settings->log_format == 1);
    log_never_wait();
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGXFSZ, SIG_IGN); /* a write beyond ulimit -f then fails with EFBIG */
    stop_signal_shield();
    if (!settings->exit_with_parent)
        return true;
    (void)signal(SIGHUP, SIG_IGN); /* the parent decides what the end of a terminal means */
    /* the signal only comes for an end from now on, so check that the parent is still alive */
    return prctl(PR_SET_PDEATHSIG, stop_signal()) == 0 && getppid() == parent &&
           !starter_has_ended();
}

int service_socket(void)
{
    const char *said = getenv(SERVICE_SOCKET_VARIABLE);
    const long fd = said != NULL ? strtol(said, NULL, 10) : 0;

    (void)unsetenv(SERVICE_SOCKET_VARIABLE);
    return fd > STDERR_FILENO && fd <= INT_MAX ? (int)fd : 0;
}

/* Kernels treat a limit of 1 byte as "no core file and no pipe either". With 0, a collector behind
 * a pipe would still get the memory. */
void service_no_core(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_CORE, &limit) < 0)
        return;
    limit.rlim_cur = limit.rlim_max = limit.rlim_max < 1 ? limit.rlim_max : 1;
    (void)setrlimit(RLIMIT_CORE, &limit);
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
    const int numbers[] = {stop_signal(), SIGINT}; /* in a step the same */
    int rc = uv_signal_init(loop, &signals->handles[0]);

    assert(on_signal != NULL);
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
