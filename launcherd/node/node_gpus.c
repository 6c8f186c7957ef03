#include "launcherd/node/node_gpus.h"

#include <assert.h>

#include "common/log.h"
#include "launcherd/node/keep_files.h"

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

static void on_slots_read(struct file_work *work, const char *late)
{
    const struct slots_files *files = (struct slots_files *)work;
    const struct node_host *host = files->owner;

    if (late == NULL && files->status == STATUS_OK)
        host->step(host->owner, (struct launcher_event){.type = LAUNCHER_EVENT_SLOTS_LOADED,
                                                        .slots = &files->record});
    else if (late != NULL || files->status != STATUS_NOT_FOUND)
        log_line(LOG_WARNING, node_about(host), "%s; slots that were drained are open again",
                 late != NULL ? late : files->err.text);
}

/* The loop does not run yet. */
static void load_slots(const struct node_host *host)
{
    struct slots_files *files = slots_files_new(host->state_dir, (void *)(uintptr_t)host);

    if (files == NULL)
        return;
    files->work.run = slots_files_read;
    files->work.done = on_slots_read;
    file_work_wait(host->files, &files->work);
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

static void save(struct node_gpus *gpus, const struct slots_record *record);

/* A save that is late may still happen. So the newest record follows it, until one was saved. */
static void on_saved(struct file_work *work, const char *late)
{
    const struct slots_files *files = (struct slots_files *)work;
    struct node_gpus *gpus = files->owner;
    const bool is_saved = late == NULL && files->status == STATUS_OK;

    gpus->saving = NULL;
    if (!is_saved && !gpus->is_unsaved)
        log_line(LOG_WARNING, node_about(gpus->host), "the record of the slots is not saved: %s",
                 late != NULL ? late : files->err.text);
    gpus->is_unsaved = !is_saved;
    if (gpus->has_next && !gpus->host->closed)
        save(gpus, &gpus->next);
    else if (late != NULL && !gpus->host->closed)
        save(gpus, &files->record);
}

static void save(struct node_gpus *gpus, const struct slots_record *record)
{
    struct slots_files *files = slots_files_new(gpus->host->state_dir, gpus);

    if (files == NULL)
        return; /* the next change is saved */
    files->record = *record;
    files->work.run = slots_files_write;
    files->work.done = on_saved;
    gpus->has_next = false;
    gpus->saving = &files->work;
    if (!file_work_start(gpus->host->files, &files->work))
        gpus->saving = NULL;
}

void node_gpus_save(struct node_gpus *gpus, const struct slots_record *record)
{
    if (gpus->saving == NULL) {
        save(gpus, record);
        return;
    }
    gpus->next = *record;
    gpus->has_next = true;
}

void node_gpus_close(struct node_gpus *gpus)
{
    gpu_watch_detach(gpus->watch);
}
