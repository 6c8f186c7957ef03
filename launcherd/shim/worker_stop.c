#include "launcherd/shim/worker_stop.h"

#include "common/log.h"

void worker_stop_tell(struct shim_workers *workers, uint32_t signal, uint64_t kill_at_us)
{
    struct msg msg = {.type = MSG_TYPE_WORKER_STOP};
    struct err err;

    if (kill_at_us > TIME_US_MAX)
        return;
    msg.worker_stop.signal = signal;
    msg.worker_stop.kill_at_us = kill_at_us;
    for (uint32_t i = 0; i < workers->options.start->local_count; i++) {
        struct shim_worker *worker = &workers->items[i];

        if (worker->conn_open && conn_send(&worker->conn, &msg, &err) != STATUS_OK)
            log_line(LOG_WARNING, LOG_ABOUT_NONE, "local rank %u was not told of the stop: %s", i,
                     err.text);
    }
}
