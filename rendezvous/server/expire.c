/* Removes ended jobs from the store after --keep-jobs. From time to time a sweep looks at all jobs,
 * a few in each turn of the loop. */
#include "common/log.h"
#include "rendezvous/server/internal.h"

#define SWEEP_MIN_MS 250u
#define SWEEP_MAX_MS 3600000u
#define PAUSE_MS 20u /* between two pieces of a sweep */

/* Jobs that others wait for stay: a restarted server must find how they ended. */
static void mark_awaited(const void *core, struct rdzv_ids *ids, uint32_t count)
{
    rdzv_mark_awaited(core, ids, count);
}

static void on_expire(uv_timer_t *timer)
{
    struct server *server = timer->data;
    int64_t before_ms = clock_wall_ms() - (int64_t)(server->keep_jobs_us / 1000);
    uint64_t interval_ms = server->keep_jobs_us / 8000;
    bool is_at_end = false;

    store_begin(server->store);
    server->expired_count += store_expire(server->store, before_ms, mark_awaited, server->core,
                                          &server->expire_after_id, &is_at_end);
    server_flush(server);
    if (!is_at_end) {
        (void)uv_timer_start(timer, on_expire, PAUSE_MS, 0);
        return;
    }
    if (server->expired_count > 0)
        log_line(LOG_INFO, LOG_ABOUT_NONE, "%u jobs that ended long ago were removed (--keep-jobs)",
                 server->expired_count);
    server->expired_count = 0;
    server->expire_after_id = 0;
    interval_ms = interval_ms < SWEEP_MIN_MS   ? SWEEP_MIN_MS
                  : interval_ms > SWEEP_MAX_MS ? SWEEP_MAX_MS
                                               : interval_ms;
    (void)uv_timer_start(timer, on_expire, interval_ms, 0);
}

void expire_begin(struct server *server, uint64_t keep_jobs_us)
{
    server->keep_jobs_us = keep_jobs_us;
    if (keep_jobs_us > 0)
        (void)uv_timer_start(&server->expire_timer, on_expire, SWEEP_MIN_MS, 0);
}
