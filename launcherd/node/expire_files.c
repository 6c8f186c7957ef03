#include "launcherd/node/expire_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launcherd/process/cgroup.h"

static void drop(struct file_work *work)
{
    free(work);
}

struct sweep_files *sweep_files_new(const char *cgroups)
{
    struct sweep_files *files = calloc(1, sizeof *files);

    if (files == NULL)
        return NULL;
    files->work.lane = FILE_LANE_EXPIRE;
    files->work.run = sweep_files_remove;
    files->work.drop = drop;
    (void)snprintf(files->cgroups, sizeof files->cgroups, "%s", cgroups);
    return files;
}

void sweep_files_remove(struct file_work *work)
{
    cgroup_sweep(((struct sweep_files *)work)->cgroups);
}

static bool is_used(void *owner, const struct log_folder_name *name)
{
    const struct expire_files *files = owner;

    for (uint32_t i = 0; i < files->used_count; i++)
        if (files->used[i].job_id == name->job_id &&
            strcmp(files->used[i].cluster, name->cluster) == 0)
            return true;
    return false;
}

static bool is_stopping(void *owner)
{
    return file_work_is_late(&((struct expire_files *)owner)->work);
}

struct expire_files *expire_files_new(const struct rundir_logs *logs, uint64_t keep_us, void *owner)
{
    struct expire_files *files = calloc(1, sizeof *files);

    if (files == NULL)
        return NULL;
    files->work.lane = FILE_LANE_EXPIRE;
    files->work.run = expire_files_remove;
    files->work.drop = drop;
    files->owner = owner;
    (void)snprintf(files->logs_dir, sizeof files->logs_dir, "%s", logs->dir);
    (void)snprintf(files->owner_id, sizeof files->owner_id, "%s", logs->owner);
    files->folders =
        (struct log_folders){.logs = {.dir = files->logs_dir, .owner = files->owner_id},
                             .keep_us = keep_us,
                             .is_used = is_used,
                             .is_stopping = is_stopping,
                             .owner = files};
    return files;
}

void expire_files_remove(struct file_work *work)
{
    struct expire_files *files = (struct expire_files *)work;

    file_work_at(work, FILE_DISK_LOGS, "opendir");
    files->removed = log_folders_expire(&files->folders);
}
