/* The GPUs of the node: between the core's questions and gpu_watch, and what is kept of them in
 * STATE_DIR/slots.msg. */
#include <dirent.h>
#include <string.h>

#include "common/log.h"
#include "launcherd/gpu_watch.h"
#include "launcherd/node_state.h"

#define COUNT_TIMEOUT_US 5000000u
#define KEPT_NAME "slots.msg"
#define DRIVER_DIR "/proc/driver/nvidia/gpus" /* one folder for each GPU that the driver has */

static struct log_about about(const struct node *node)
{
    return (struct log_about){.node = node->options.core.name, .rank = -1};
}

/* -- how many there are
 * ----------------------------------------------------------------------------------------- */

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

static uint32_t count_of_last_time(const char *state_dir, const char *boot_id)
{
    struct arena arena = {0};
    struct msg msg;
    struct err err;
    uint32_t count = 0;
    if (rundir_read_msg(state_dir, KEPT_NAME, &arena, &msg, &err) == STATUS_OK &&
        msg.type == MSG_TYPE_SLOTS_KEPT && strcmp(msg.slots_kept.boot_id, boot_id) == 0)
        count = msg.slots_kept.gpus;
    arena_reset(&arena);
    return count;
}

struct gpu_watch *node_gpus_find(const char *state_dir, const char *boot_id, uint32_t *gpus)
{
    struct gpu_watch *watch = NULL;
    struct err err = {0};
    *gpus = 0;
    enum status status = gpu_watch_new(&watch, &err);
    if (status == STATUS_OK)
        status = gpu_watch_count(watch, COUNT_TIMEOUT_US, gpus, &err);
    if (status == STATUS_LIBRARY || status == STATUS_TIMEOUT) {
        *gpus = count_of_driver();
        if (*gpus == 0)
            *gpus = count_of_last_time(state_dir, boot_id);
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

/* -- questions, answers
 * ----------------------------------------------------------------------------------------- */

static void on_facts(void *owner, const struct gpu_facts *facts)
{
    struct node *node = owner;
    if (!node->closed && !node->ending)
        node_step(node, (struct launcher_event){.type = LAUNCHER_EVENT_GPU, .gpu = facts});
}

static void on_xid(void *owner, uint32_t slot, uint32_t xid)
{
    struct node *node = owner;
    if (!node->closed && !node->ending)
        node_step(node,
                  (struct launcher_event){.type = LAUNCHER_EVENT_XID, .slot = slot, .xid = xid});
}

static const struct gpu_watch_handlers handlers = {on_facts, on_xid};

/* Before anything is adopted: which slots were drained, and what an idle GPU looks like. */
enum status node_gpu_open(struct node *node, struct err *err)
{
    struct arena arena = {0};
    struct msg msg;
    if (node->options.gpus == NULL || node->options.core.gpus == 0)
        return STATUS_OK;
    if (gpu_watch_attach(node->options.gpus, node->loop, &handlers, node, err) != STATUS_OK)
        return err->status;
    enum status status = rundir_read_msg(node->options.state_dir, KEPT_NAME, &arena, &msg, err);
    if (status == STATUS_OK && msg.type == MSG_TYPE_SLOTS_KEPT)
        node_step(node, (struct launcher_event){.type = LAUNCHER_EVENT_SLOTS_KEPT, .msg = &msg});
    else if (status != STATUS_NOT_FOUND)
        log_line(LOG_WARNING, about(node), "%s is not read: drained slots are open again",
                 KEPT_NAME);
    arena_reset(&arena);
    return STATUS_OK;
}

void node_gpu_ask(struct node *node, const struct launcher_action *action)
{
    if (node->options.gpus != NULL && !node->closed)
        gpu_watch_ask(node->options.gpus, action->slot, action->asked_us, action->bytes_max);
}

void node_gpu_keep(struct node *node, const struct msg *kept)
{
    struct msg copy = *kept;
    struct err err;
    copy.seq = 1;
    if (rundir_write_msg(node->options.state_dir, KEPT_NAME, &copy, &err) != STATUS_OK)
        log_line(LOG_WARNING, about(node), "the slots' states were not kept: %s", err.text);
}
