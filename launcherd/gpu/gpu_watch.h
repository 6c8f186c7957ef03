/* Queries the GPUs of this node off the loop thread. Every call of NVML is made by one of two
 * threads, since any of them may hang: one answers questions about single GPUs, one waits for Xid
 * events of the driver. The owner asks questions and gets the answers on its loop. An answer may
 * never come; the core notices that (core/launcher_slots.h). A thread that hangs is abandoned at
 * the end of the process.
 *
 *   gpu_watch_new      a thread loads and initialises NVML and counts the GPUs
 *   gpu_watch_count    waits for that
 *   gpu_watch_attach   answers come on this loop from now on
 *   gpu_watch_ask      the thread queries the GPU (nvml_look), then on_facts; on_xid at any time
 *   gpu_watch_gauges   the last known values for people, read by the same thread
 *   gpu_watch_detach, gpu_watch_close */
#ifndef LAUNCHERD_GPU_GPU_WATCH_H
#define LAUNCHERD_GPU_GPU_WATCH_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "common/status.h"
#include "launcherd/core/gpu_facts.h"
#include "launcherd/gpu/gauges.h"
#include "launcherd/process/devices.h"

struct gpu_watch;

/* Called on the loop. Every Xid that NVML reports is passed on, in order: when many come at once,
 * the thread waits for the loop. */
struct gpu_watch_handlers {
    void (*on_facts)(void *owner, const struct gpu_facts *facts);
    void (*on_xid)(void *owner, uint32_t slot, uint32_t xid);
};

/* Starts to load NVML. Errors: STATUS_MEMORY, STATUS_SYSTEM. */
enum status gpu_watch_new(struct gpu_watch **watch, struct err *err);
/* Counts the GPUs; blocks up to `timeout_us`. `*count` is 0 unless STATUS_OK.
 *   STATUS_NOT_FOUND  no NVML: there is no NVIDIA driver
 *   STATUS_LIBRARY    NVML answered with an error
 *   STATUS_TIMEOUT    NVML hangs
 * After the last two, questions may be asked all the same: the threads try again. */
enum status gpu_watch_count(struct gpu_watch *watch, uint64_t timeout_us, uint32_t *count,
                            struct err *err);
/* Sets which GPU each slot has: slot i has the i-th of these devices. Without this call it has GPU
 * i. Call before gpu_watch_attach. */
void gpu_watch_choose(struct gpu_watch *watch, const struct devices *devices);
/* From now on answers come on `loop`. Call at most once. */
enum status gpu_watch_attach(struct gpu_watch *watch, uv_loop_t *loop,
                             const struct gpu_watch_handlers *handlers, void *owner,
                             struct err *err);
/* Asks about a slot's GPU. An earlier question about the slot that no thread has taken yet is
 * replaced. */
void gpu_watch_ask(struct gpu_watch *watch, uint32_t slot, uint64_t asked_us, uint64_t bytes_max);
/* The gauges of the first `count` slots' GPUs. Values older than `age_us` are read again, which may
 * take `timeout_us`; after that the last known values are returned, with the time of their reading.
 * May be called from any thread except the loop's, and not after gpu_watch_close. */
void gpu_watch_gauges(struct gpu_watch *watch, uint32_t count, uint64_t now_us, uint64_t age_us,
                      uint64_t timeout_us, struct gpu_gauges gauges[]);
/* No answers come after this; the handle on the loop is closed. NULL is allowed. */
void gpu_watch_detach(struct gpu_watch *watch);
/* After the loop has ended. Waits up to `timeout_us` for the threads. False: one hangs in NVML, and
 * the process must end with _exit, since destructors of NVML may hang too. NULL is allowed. */
bool gpu_watch_close(struct gpu_watch **watch, uint64_t timeout_us);

#endif
