/* The GPUs of this node, asked off the loop. Two threads of its own make every call of NVML, for
 * any of them may hang: one answers questions about single GPUs, one waits for the driver's Xid
 * events. The owner posts questions and gets answers on its loop; one that never comes is its to
 * notice (launcher_slots.c does). A thread that hangs is left behind when the process ends.
 *
 *   gpu_watch_new -> (thread) load, init, count -> gpu_watch_count -> gpu_watch_attach
 *     -> gpu_watch_ask -> (thread) nvml_look -> on_facts, and on_xid whenever -> gpu_watch_close */
#ifndef LAUNCHERD_GPU_WATCH_H
#define LAUNCHERD_GPU_WATCH_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "common/status.h"
#include "launcherd/gpu_facts.h"

struct gpu_watch;

struct gpu_watch_handlers {
    void (*on_facts)(void *owner, const struct gpu_facts *facts);
    void (*on_xid)(void *owner, uint32_t slot, uint32_t xid);
};

/* Begins to load NVML. Errors: STATUS_MEMORY, STATUS_SYSTEM. */
enum status gpu_watch_new(struct gpu_watch **watch, struct err *err);
/* How many GPUs there are; blocks up to `timeout_us`. STATUS_NOT_FOUND: no NVML (no NVIDIA driver);
 * STATUS_LIBRARY: it answered with an error; STATUS_TIMEOUT: it hangs. `*count` is 0 unless
 * STATUS_OK. After the last two, questions may be asked all the same: it is tried again. */
enum status gpu_watch_count(struct gpu_watch *watch, uint64_t timeout_us, uint32_t *count,
                            struct err *err);
/* Answers come on `loop` from now on. Once. */
enum status gpu_watch_attach(struct gpu_watch *watch, uv_loop_t *loop,
                             const struct gpu_watch_handlers *handlers, void *owner,
                             struct err *err);
/* A newer question about the same slot takes the place of one that was not begun. */
void gpu_watch_ask(struct gpu_watch *watch, uint32_t slot, uint64_t asked_us, uint64_t bytes_max);
/* No answers any more; the loop's handle is closed. NULL is fine. */
void gpu_watch_detach(struct gpu_watch *watch);
/* After the loop ran out. Waits `timeout_us` for the threads; false: one hangs in NVML, and the
 * process should end with _exit, for NVML's own destructors may hang too. NULL is fine. */
bool gpu_watch_close(struct gpu_watch **watch, uint64_t timeout_us);

#endif
