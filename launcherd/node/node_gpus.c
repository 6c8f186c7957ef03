#include "launcherd/node/node_gpus.h"

#include <assert.h>
#include <dirent.h>
#include <string.h>

#include "common/log.h"
#include "launcherd/node/slots_file.h"

#define DRIVER_DIR "/proc/driver/nvidia/gpus" /* one folder for each GPU that the driver has */

static uint32_t count_of_driver(void)
{
    DIR *dir = opendir(DRIVER_DIR);
    const struct dirent *entry;
    uint32_t count = 0;
    while (dir != NULL && (entry = readdir(dir)) != NULL)
        count += entry->d_name[0] != '.';
    if (dir != NULL)
        closedir(dir);
    return count;
}

static uint32_t count_of_record(const char *state_dir, const char *boot_id)
{
    struct slots_record record;
    struct err err;
    if (slots_file_read(state_dir, &record, &err) != STATUS_OK ||
        strcmp(record.boot_id, boot_id) != 0)
        return 0;
    return record.gpus;
}

struct gpu_watch *node_gpus_find(const char *state_dir, const char *boot_id, uint64_t timeout_us,
                                 uint32_t *gpus)
{
    struct gpu_watch *watch = NULL;
    struct err err = {0};
    *gpus = 0;
    enum status status = gpu_watch_new(&watch, &err);
    if (status == STATUS_OK)
        status = gpu_watch_count(watch, timeout_us, gpus, &err);
    if (status == STATUS_LIBRARY || status == STATUS_TIMEOUT) {
        *gpus = count_of_driver();
        if (*gpus == 0)
            *gpus = count_of_record(state_dir, boot_id);
        log_line(LOG_WARNING, LOG_ABOUT_NONE,
                 *gpus > 0 ? "%s; the slots of %u GPUs stay closed until it does"
                           : "GPUs are not used: %s",
                 err.text, *gpus);
    } else if (status != STATUS_OK && status != STATUS_NOT_FOUND) {
        log_line(LOG_WARNING, LOG_ABOUT_NONE, "GPUs are not used: %s", err.text);
    }
    if (*gpus > SLOTS_PER_NODE_MAX)
        *gpus = SLOTS_PER_NODE_MAX;
    return watch;
}

static void on_facts(void *owner, const struct gpu_facts *facts)
{
    const struct node_host *host = ((const struct node_gpus *)owner)->host;
    struct gpu_facts explained = *facts;
    if (host->closed || host->ending)
        return;
    host->explain_gpu(host->owner, &explained);
    host->step(host->owner, (struct launcher_event){.type = LAUNCHER_EVENT_GPU, .gpu = &explained});
}

static void on_xid(void *owner, uint32_t slot, uint32_t xid)
{
    const struct node_host *host = ((const struct node_gpus *)owner)->host;
    if (!host->closed && !host->ending)
        host->step(host->owner,
                   (struct launcher_event){.type = LAUNCHER_EVENT_XID, .slot = slot, .xid = xid});
}

static const struct gpu_watch_handlers handlers = {on_facts, on_xid};

static void load_slots(const struct node_host *host)
{
    struct slots_record record;
    struct err err;
    enum status status = slots_file_read(host->state_dir, &record, &err);
    if (status == STATUS_OK)
        host->step(host->owner,
                   (struct launcher_event){.type = LAUNCHER_EVENT_SLOTS_LOADED, .slots = &record});
    else if (status != STATUS_NOT_FOUND)
        log_line(LOG_WARNING, node_about(host), "%s; slots that were drained are open again",
                 err.text);
}

enum status node_gpus_open(struct node_gpus *gpus, const struct node_host *host,
                           struct gpu_watch *watch, struct err *err)
{
    gpus->host = host;
    gpus->watch = watch;
    if (watch == NULL || host->core->options.gpus == 0)
        return STATUS_OK;
    enum status status = gpu_watch_attach(watch, host->loop, &handlers, gpus, err);
    if (status == STATUS_OK)
        load_slots(host);
    return status;
}

void node_gpus_ask(struct node_gpus *gpus, const struct launcher_action *action)
{
    assert(action->slot < gpus->host->core->options.gpus);
    if (gpus->watch != NULL && !gpus->host->closed)
        gpu_watch_ask(gpus->watch, action->slot, action->asked_us, action->bytes_max);
}

void node_gpus_save(const struct node_gpus *gpus, const struct slots_record *record)
{
    struct err err;
    if (slots_file_write(gpus->host->state_dir, record, &err) != STATUS_OK)
        log_line(LOG_WARNING, node_about(gpus->host), "the record of the slots is not saved: %s",
                 err.text);
}

void node_gpus_close(struct node_gpus *gpus)
{
    gpu_watch_detach(gpus->watch);
}
