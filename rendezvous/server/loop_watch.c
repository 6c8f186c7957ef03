#include "rendezvous/server/loop_watch.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/io/conn.h"
#include "common/log.h"

#define ALIVE_MS 1000u
#define LOOK_US 1000000u

struct loop_watch {
    char state_dir[4096];
    uint64_t lease_us;
    uv_timer_t timer;
    _Atomic uint64_t alive_us; /* when the loop last turned */
    uv_thread_t thread;
    uv_mutex_t lock;
    uv_cond_t wake;
    bool is_ending; /* under the lock */
};

static void on_timer(uv_timer_t *timer)
{
    struct loop_watch *watch = timer->data;

    atomic_store(&watch->alive_us, clock_boot_us());
}

/* False: it ends. */
static bool wait_a_while(struct loop_watch *watch)
{
    bool goes_on;

    uv_mutex_lock(&watch->lock);
    if (!watch->is_ending)
        (void)uv_cond_timedwait(&watch->wake, &watch->lock, LOOK_US * UINT64_C(1000));
    goes_on = !watch->is_ending;
    uv_mutex_unlock(&watch->lock);
    return goes_on;
}

static void tell(const struct loop_watch *watch)
{
    log_line(LOG_ERROR, LOG_ABOUT_NONE,
             "this server has stood still for %u s, in a call that does not return, and answers "
             "nobody: does the disk of %.300s answer? Nodes that hear from no server end their "
             "workers when their lease of %.0f s is over",
             LOOP_WATCH_LATE_US / 1000000u, watch->state_dir, (double)watch->lease_us / 1e6);
}

static void run(void *argument)
{
    struct loop_watch *watch = argument;
    uint64_t looked_us = clock_boot_us(), told_us = 0, now_us, alive_us;

    for (; wait_a_while(watch); looked_us = now_us) {
        now_us = clock_boot_us();
        alive_us = atomic_load(&watch->alive_us);
        if (now_us - looked_us > 3 * LOOK_US) { /* the whole process stood still, or the machine */
            atomic_store(&watch->alive_us, now_us);
        } else if (told_us == 0 && now_us >= alive_us + LOOP_WATCH_LATE_US) {
            told_us = alive_us;
            tell(watch);
        } else if (told_us != 0 && now_us < alive_us + LOOP_WATCH_LATE_US) {
            log_line(LOG_INFO, LOG_ABOUT_NONE,
                     "this server goes on after it stood still for %.0f s",
                     (double)(alive_us - told_us) / 1e6);
            told_us = 0;
        }
    }
}

enum status loop_watch_open(struct loop_watch **out, uv_loop_t *loop, const char *state_dir,
                            uint64_t lease_us, struct err *err)
{
    struct loop_watch *watch = calloc(1, sizeof *watch);
    int code;

    if (watch == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory");
    (void)snprintf(watch->state_dir, sizeof watch->state_dir, "%s", state_dir);
    watch->lease_us = lease_us;
    atomic_store(&watch->alive_us, clock_boot_us());
    (void)uv_mutex_init(&watch->lock);
    (void)uv_cond_init(&watch->wake);
    code = uv_thread_create(&watch->thread, run, watch);
    if (code != 0) {
        uv_cond_destroy(&watch->wake);
        uv_mutex_destroy(&watch->lock);
        free(watch);
        return err_set(err, STATUS_SYSTEM, code, "no thread: %s", uv_strerror(code));
    }
    (void)uv_timer_init(loop, &watch->timer);
    watch->timer.data = watch;
    (void)uv_timer_start(&watch->timer, on_timer, ALIVE_MS, ALIVE_MS);
    uv_unref((uv_handle_t *)&watch->timer);
    *out = watch;
    return STATUS_OK;
}

static void on_closed(uv_handle_t *handle)
{
    free(handle->data);
}

void loop_watch_close(struct loop_watch **out)
{
    struct loop_watch *watch = *out;

    *out = NULL;
    if (watch == NULL)
        return;
    uv_mutex_lock(&watch->lock);
    watch->is_ending = true;
    uv_cond_signal(&watch->wake);
    uv_mutex_unlock(&watch->lock);
    (void)uv_thread_join(&watch->thread);
    uv_cond_destroy(&watch->wake);
    uv_mutex_destroy(&watch->lock);
    uv_close((uv_handle_t *)&watch->timer, on_closed);
}
