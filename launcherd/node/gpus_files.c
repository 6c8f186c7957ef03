/* Which GPUs this node has: before the loop runs. */
#include <dirent.h>
#include <string.h>

#include "common/log.h"
#include "launcherd/node/node_gpus.h"
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
