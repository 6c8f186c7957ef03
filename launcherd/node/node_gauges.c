#include "launcherd/node/node_gauges.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "common/io/conn.h"

#define FRESH_US 900000u  /* what is younger is not read again: clients ask once a second */
#define DRIVER_US 500000u /* how long NVML may take; after that its last values are shown */
#define PATIENCE_MS 3000u /* how long the whole reading may take, as a disk may hang */

void node_gauges_open(struct node_gauges *gauges, const struct node_host *host,
                      struct gpu_watch *watch)
{
    gauges->host = host;
    gauges->watch = watch;
    (void)uv_timer_init(host->loop, &gauges->timer);
    gauges->timer.data = gauges;
    gauges->work.data = gauges;
}

/* The local rank is the slot's position among the slots of its shim. */
static uint32_t rank_of(const struct launcher_shim *shim, uint32_t slot)
{
    return shim->rank_base + (uint32_t)__builtin_popcountll(shim->slot_mask & ((1ull << slot) - 1));
}

static void fill_slot(const struct launcher *core, uint32_t index, struct slot_gauges *slot)
{
    *slot = (struct slot_gauges){.state = core->slots[index].state};
    (void)snprintf(slot->reason, sizeof slot->reason, "%s", core->slots[index].reason);
    for (uint32_t i = 0; i < core->shim_count; i++) {
        const struct launcher_shim *shim = &core->shims[i];

        if (shim->phase == SHIM_ENDED || (shim->slot_mask & (1ull << index)) == 0)
            continue;
        slot->state = SLOT_BUSY;
        slot->job_id = shim->job_id;
        slot->generation = shim->generation;
        slot->rank = rank_of(shim, index);
    }
}

static void fill_slots(const struct launcher *core, struct gauges *reading)
{
    memset(reading, 0, sizeof *reading);
    (void)snprintf(reading->node, sizeof reading->node, "%s", core->options.name);
    reading->slot_count = core->options.slots;
    reading->gpu_count = core->options.gpus;
    for (uint32_t i = 0; i < reading->slot_count; i++)
        fill_slot(core, i, &reading->slots[i]);
}

static void answer(struct node_gauges *gauges, const char *problem)
{
    for (uint32_t i = 0; i < gauges->wait_count; i++)
        gauges->on_answer(gauges->owner, gauges->waits[i], &gauges->made, problem);
    gauges->wait_count = 0;
}

/* -- in a thread of the pool -- */

static void on_work(uv_work_t *work)
{
    struct node_gauges *gauges = work->data;
    struct gauges *reading = &gauges->reading;

    host_gauges_read(&reading->host, &gauges->times, clock_boot_us(), gauges->host->logs_dir);
    if (gauges->watch != NULL && reading->gpu_count > 0)
        gpu_watch_gauges(gauges->watch, reading->gpu_count, clock_boot_us(), FRESH_US, DRIVER_US,
                         reading->gpus);
    reading->now_us = clock_boot_us();
    buf_drop(&gauges->made, gauges->made.byte_count);
    gauges->made.failed = false;
    gauges_write(reading, &gauges->made);
}

/* -- in the loop -- */

static void on_read(uv_work_t *work, int rc)
{
    struct node_gauges *gauges = work->data;

    gauges->is_busy = false;
    if (gauges->closed)
        return;
    (void)uv_timer_stop(&gauges->timer);
    gauges->read_us = rc == 0 && !gauges->made.failed ? clock_boot_us() : 0;
    answer(gauges, gauges->read_us > 0 ? "" : "out of memory");
}

static void on_timeout(uv_timer_t *timer)
{
    answer(timer->data, "the disk of the logs does not answer");
}

void node_gauges_read(struct node_gauges *gauges, uint64_t request_id)
{
    if (gauges->closed)
        return;
    if (!gauges->is_busy && gauges->read_us > 0 && clock_boot_us() < gauges->read_us + FRESH_US) {
        gauges->on_answer(gauges->owner, request_id, &gauges->made, "");
        return;
    }
    if (gauges->wait_count == NODE_GAUGES_WAITS_MAX) {
        gauges->on_answer(gauges->owner, request_id, &gauges->made, "too many ask at once");
        return;
    }
    gauges->waits[gauges->wait_count++] = request_id;
    if (!gauges->is_busy) {
        fill_slots(gauges->host->core, &gauges->reading);
        gauges->is_busy = uv_queue_work(gauges->host->loop, &gauges->work, on_work, on_read) == 0;
    }
    if (!gauges->is_busy)
        answer(gauges, "no thread to read them");
    else if (!uv_is_active((uv_handle_t *)&gauges->timer))
        (void)uv_timer_start(&gauges->timer, on_timeout, PATIENCE_MS, 0);
}

void node_gauges_close(struct node_gauges *gauges)
{
    if (gauges->host == NULL || gauges->closed)
        return;
    gauges->closed = true;
    gauges->wait_count = 0;
    uv_close((uv_handle_t *)&gauges->timer, NULL);
}

void node_gauges_free(struct node_gauges *gauges)
{
    if (!gauges->is_busy)
        buf_free(&gauges->made);
}
