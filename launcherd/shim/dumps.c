#include "launcherd/shim/dumps.h"

#include "launcherd/process/proc.h"

static void on_look(uv_timer_t *timer)
{
    struct shim_workers *workers = timer->data;
    const struct shim_workers_options *options = &workers->options;

    for (uint32_t i = 0; i < options->start->local_count && !workers->closed; i++) {
        struct shim_worker *worker = &workers->items[i];
        struct shim_event event = {.type = SHIM_EVENT_DUMPING, .local = i};

        if (worker->pid <= 0 || worker->dump_until_ms != 0 ||
            !proc_dumps_core(worker->pid, &event.signal))
            continue;
        worker->dump_until_ms = uv_now(options->loop) + DUMPS_SPARE_MS;
        output_drain(&worker->output); /* so that the report has its last lines */
        options->step(options->owner, event);
    }
}

void dumps_open(struct shim_workers *workers)
{
    (void)uv_timer_init(workers->options.loop, &workers->dump_timer);
    workers->dump_timer.data = workers;
    (void)uv_timer_start(&workers->dump_timer, on_look, DUMPS_LOOK_MS, DUMPS_LOOK_MS);
}

void dumps_close(struct shim_workers *workers)
{
    uv_close((uv_handle_t *)&workers->dump_timer, NULL);
}

bool dumps_spare(const struct shim_worker *worker)
{
    return worker->pid > 0 && worker->dump_until_ms > uv_now(worker->workers->options.loop);
}

bool dumps_spare_any(const struct shim_workers *workers)
{
    for (uint32_t i = 0; i < workers->options.start->local_count; i++)
        if (dumps_spare(&workers->items[i]))
            return true;
    return false;
}

bool dumps_spare_pid(void *arg, pid_t pid)
{
    const struct shim_workers *workers = arg;

    if (workers->store.pid > 0 && pid == workers->store.pid)
        return true;
    for (uint32_t i = 0; i < workers->options.start->local_count; i++)
        if (workers->items[i].pid == pid)
            return dumps_spare(&workers->items[i]);
    return false;
}
