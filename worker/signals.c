#include "worker/signals.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

enum { END_TIMEOUT_S = 8, EXIT_BUS_ERROR = 1 };

static struct signals asked;
static atomic_int stop_code; /* the exit code when stopped by a signal; 0: no signal yet */
static atomic_int late_code; /* and when the end takes too long */

/* -- handlers ---------------------------------------------------------------------------------- */

static void on_alarm(int signal_number)
{
    (void)signal_number;
    if (!asked.writes)
        _exit(late_code);
    (void)alarm(END_TIMEOUT_S);
}

static void on_stop(int signal_number)
{
    if (asked.stop && signal_number == SIGINT)
        _exit(128 + SIGINT);
    stop_code = late_code = 128 + signal_number;
    asked.stop = true;
    (void)alarm(END_TIMEOUT_S);
}

static void on_save(int signal_number)
{
    (void)signal_number;
    asked.save = true;
}

/* In the thread that writes. If the pipe is our output, we end as any program would; if it is a file of --metrics or the
 * like, the write fails and is told, and training goes on. */
static void on_pipe(int signal_number)
{
    struct pollfd outputs[] = {{.fd = STDOUT_FILENO}, {.fd = STDERR_FILENO}};
    const int saved = errno;

    if (poll(outputs, 2, 0) > 0 && ((outputs[0].revents | outputs[1].revents) & POLLERR) != 0)
        _exit(128 + signal_number);
    errno = saved;
}

/* In the thread that reads a file that is mapped, as that of --cache, and has become shorter. */
static void on_bus_error(int signal_number)
{
    static const char text[] =
        "ddp-worker: a file was cut off while it was read (SIGBUS): is another program writing to "
        "the file of --cache?\n";

    (void)signal_number;
    (void)!write(STDERR_FILENO, text, sizeof text - 1);
    _exit(EXIT_BUS_ERROR);
}

static void handle(int signal_number, void (*handler)(int signal_number))
{
    const struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};

    (void)sigaction(signal_number, &action, NULL);
}

/* -- the thread -------------------------------------------------------------------------------- */

/* The handlers run within pause(). */
static void *run(void *mask)
{
    (void)pthread_sigmask(SIG_SETMASK, mask, NULL);
    for (;;)
        (void)pause();
    return NULL;
}

enum status signals_open(struct err *err)
{
    static sigset_t before; /* what the parent has let through is let through */
    pthread_t thread;
    sigset_t handled;
    int code;

    handle(SIGUSR1, on_save);
    (void)sigemptyset(&handled);
    (void)sigaddset(&handled, SIGUSR1);
    (void)sigaddset(&handled, SIGALRM);
    (void)sigaddset(&handled, SIGTERM);
    (void)sigaddset(&handled, SIGINT);
    (void)pthread_sigmask(SIG_BLOCK, &handled, &before);
    code = pthread_create(&thread, NULL, run, &before);
    if (code != 0)
        return err_set(err, STATUS_SYSTEM, code, "no thread for signals: %s", strerror(code));
    (void)pthread_setname_np(thread, "ddp-signals");
    (void)pthread_detach(thread);
    return STATUS_OK;
}

void signals_begin_run(void)
{
    handle(SIGALRM, on_alarm);
    handle(SIGPIPE, on_pipe);
    handle(SIGBUS, on_bus_error);
}

void signals_catch_stop(void)
{
    handle(SIGTERM, on_stop);
    handle(SIGINT, on_stop);
}

struct signals *signals_of_training(void)
{
    return &asked;
}

int signals_exit_code(int otherwise)
{
    const int code = stop_code;

    return code != 0 ? code : otherwise;
}

void signals_limit_end(int code)
{
    late_code = code;
    asked.writes = false;
    (void)alarm(END_TIMEOUT_S);
}
