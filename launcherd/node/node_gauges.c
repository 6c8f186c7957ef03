#include "launcherd/node/node_gauges.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "common/io/conn.h"
#include "launcherd/node/gauges_files.h"

#define FRESH_US 900000u  /* what is younger is not read again: clients ask once a second */
#define DRIVER_US 500000u /* how long NVML may take; after that its last values are shown */
#define PATIENCE_MS 3000u /* how long the whole reading may take, as a disk may hang */

void node_gauges_open(struct node_gauges *gauges, const struct node_host *host,
                      struct gpu_watch *watch)
{
    gauges->host = host;
    gauges->watch = watch;
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

static void on_read(struct file_work *work, const char *late)
{
    struct gauges_files *files = (struct gauges_files *)work;
    struct node_gauges *gauges = files->owner;
    const bool is_made = late == NULL && !files->made.failed;

    gauges->is_busy = false;
    if (gauges->closed)
        return;
    gauges->read_us = is_made ? clock_boot_us() : 0;
    if (is_made) {
        buf_free(&gauges->made);
        gauges->made = files->made;
        files->made = (struct buf){0};
        gauges->times = files->times;
    }
    answer(gauges, is_made ? "" : late != NULL ? late : "out of memory");
}

static void begin(struct node_gauges *gauges)
{
    struct gauges_files *files = gauges_files_new(gauges->host->logs_dir, gauges);

    if (files == NULL)
        return;
    fill_slots(gauges->host->core, &files->reading);
    files->work.limit_ms = PATIENCE_MS;
    files->work.done = on_read;
    files->watch = gauges->watch;
    files->fresh_us = FRESH_US;
    files->driver_us = DRIVER_US;
    files->times = gauges->times;
    gauges->is_busy = file_work_start(gauges->host->files, &files->work);
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
    if (!gauges->is_busy)
        begin(gauges);
    if (!gauges->is_busy)
        answer(gauges, "no memory to read them");
}

void node_gauges_close(struct node_gauges *gauges)
{
    if (gauges->host == NULL || gauges->closed)
        return;
    gauges->closed = true;
    gauges->wait_count = 0;
}

void node_gauges_free(struct node_gauges *gauges)
{
    buf_free(&gauges->made);
}
