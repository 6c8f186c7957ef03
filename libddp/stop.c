/* Whether to stop, and when to write a checkpoint. */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/io/mono.h"
#include "libddp/internal.h"

/* Written by the handler. */
static atomic_bool stop_caught;
static atomic_uint saves_caught;
static _Atomic pid_t caught_by; /* the process that catches signals; 0: none */

/* -- signals ----------------------------------------------------------------------------------- */

static struct caught {
    int number;
    struct sigaction before;
    bool is_installed;
} caught[] = {{.number = SIGTERM}, {.number = SIGINT}, {.number = SIGUSR1}};

#define CAUGHT_COUNT (sizeof caught / sizeof caught[0])

static void call_before(const struct sigaction *before, int number, siginfo_t *info, void *context)
{
    if ((before->sa_flags & SA_SIGINFO) != 0)
        before->sa_sigaction(number, info, context);
    else if (before->sa_handler != SIG_DFL && before->sa_handler != SIG_IGN)
        before->sa_handler(number);
}

/* In a forked child, such as a DataLoader's worker: a stop of the whole process group does not
 * concern it. But a parent that ends its children and waits for them, as multiprocessing's pool
 * does, must not wait for ever. */
static void end_as_before(const struct sigaction *before, int number, const siginfo_t *info)
{
    if ((before->sa_flags & SA_SIGINFO) != 0 || before->sa_handler != SIG_DFL ||
        info->si_pid != getppid())
        return;
    (void)sigaction(number, before, NULL);
    (void)raise(number); /* it is blocked until the handler returns */
}

static void on_signal(int number, siginfo_t *info, void *context)
{
    const int saved = errno;
    const bool is_ours = getpid() == atomic_load(&caught_by);

    if (is_ours && number == SIGUSR1)
        atomic_fetch_add(&saves_caught, 1);
    else if (is_ours)
        atomic_store(&stop_caught, true);
    for (size_t i = 0; i < CAUGHT_COUNT; i++) {
        if (caught[i].number != number)
            continue;
        if (!is_ours)
            end_as_before(&caught[i].before, number, info);
        call_before(&caught[i].before, number, info, context);
    }
    errno = saved;
}

static enum status catch_one(struct caught *one, struct err *err)
{
    /* SA_ONSTACK: on the stack that the program has set for handlers, if it has (sigaltstack). */
    struct sigaction action = {.sa_sigaction = on_signal,
                               .sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK};

    if (one->is_installed)
        return STATUS_OK;
    (void)sigemptyset(&action.sa_mask);
    if (sigaction(one->number, NULL, &one->before) != 0 ||
        sigaction(one->number, &action, NULL) != 0)
        return err_set(err, STATUS_SYSTEM, errno, "cannot catch signal %d: %s", one->number,
                       strerror(errno));
    one->is_installed = true;
    return STATUS_OK;
}

enum ddp_status ddp_catch_signals(struct ddp *ddp, struct ddp_error *error)
{
    struct err err = {.text = ""};
    enum status status = STATUS_OK;

    if (is_forked(ddp))
        return result_forked(error);
    (void)pthread_mutex_lock(&ddp->fence_lock); /* any that no handler needs */
    atomic_store(&caught_by, ddp->pid);
    for (size_t i = 0; i < CAUGHT_COUNT && status == STATUS_OK; i++)
        if (caught[i].number != SIGINT || ddp->place.has_launcher)
            status = catch_one(&caught[i], &err);
    (void)pthread_mutex_unlock(&ddp->fence_lock);
    return result(status, &err, error);
}

bool stop_is_caught(void)
{
    return atomic_load(&stop_caught);
}

/* -- questions --------------------------------------------------------------------------------- */

static double seconds_until(uint64_t at_us)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_BOOTTIME, &now);
    return (double)at_us / 1e6 - ((double)now.tv_sec + (double)now.tv_nsec / 1e9);
}

enum ddp_stop ddp_should_stop(struct ddp *ddp, double *left_s)
{
    double unused;
    double *left = left_s != NULL ? left_s : &unused;

    *left = -1;
    if (is_forked(ddp))
        return DDP_GO_ON;
    if (pthread_mutex_trylock(&ddp->lock) == 0) {
        (void)pump(ddp, NULL);
        (void)pthread_mutex_unlock(&ddp->lock);
    }
    if (atomic_load(&ddp->is_stopping)) {
        const double until = seconds_until(atomic_load(&ddp->kill_at_us));

        *left = until > 0 ? until : 0;
        return DDP_STOP_ASKED;
    }
    if (atomic_load(&ddp->is_link_closed)) {
        *left = 0;
        return DDP_STOP_LAUNCHER;
    }
    return stop_is_caught() ? DDP_STOP_SIGNAL : DDP_GO_ON;
}

static bool takes_a_save(void)
{
    unsigned waiting = atomic_load(&saves_caught);

    while (waiting > 0 && !atomic_compare_exchange_weak(&saves_caught, &waiting, waiting - 1)) {
    }
    return waiting > 0;
}

int ddp_should_checkpoint(struct ddp *ddp, double interval_s)
{
    bool is_due = false;

    if (is_forked(ddp))
        return 0;
    if (takes_a_save())
        return 1;
    if (ddp_should_stop(ddp, NULL) != DDP_GO_ON)
        return !atomic_exchange(&ddp->stop_saved, true);
    if (!(interval_s > 0) || pthread_mutex_trylock(&ddp->lock) != 0)
        return 0;
    is_due = (double)(mono_us() - ddp->committed_us) / 1e6 >= interval_s;
    (void)pthread_mutex_unlock(&ddp->lock);
    return is_due;
}
