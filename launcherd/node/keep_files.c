#include "launcherd/node/keep_files.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/io/key_file.h"
#include "launcherd/node/slots_file.h"
#include "launcherd/node/key_mark.h"
#include "launcherd/process/rundir.h"

static void drop_slots(struct file_work *work)
{
    free(work);
}

struct slots_files *slots_files_new(const char *state_dir, void *owner)
{
    struct slots_files *files = calloc(1, sizeof *files);

    if (files == NULL)
        return NULL;
    files->work.lane = FILE_LANE_KEEP;
    files->work.limit_ms = FILE_WORK_LATE_MS;
    files->work.drop = drop_slots;
    files->owner = owner;
    (void)snprintf(files->state_dir, sizeof files->state_dir, "%s", state_dir);
    return files;
}

void slots_files_read(struct file_work *work)
{
    struct slots_files *files = (struct slots_files *)work;

    file_work_at(work, FILE_DISK_STATE, "read");
    files->status = slots_file_read(files->state_dir, &files->record, &files->err);
}

void slots_files_write(struct file_work *work)
{
    struct slots_files *files = (struct slots_files *)work;

    if (file_work_is_late(work))
        return; /* a newer one follows */
    file_work_at(work, FILE_DISK_STATE, "write");
    files->status = slots_file_write(files->state_dir, &files->record, &files->err);
}

static void drop_key(struct file_work *work)
{
    key_forget(&((struct key_files *)work)->key);
    free(work);
}

struct key_files *key_files_new(const char *state_dir, const char *name, const struct key *key,
                                void *owner)
{
    struct key_files *files = calloc(1, sizeof *files);

    if (files == NULL)
        return NULL;
    files->work.lane = FILE_LANE_KEEP;
    files->work.limit_ms = FILE_WORK_LATE_MS;
    files->work.run = key_files_write;
    files->work.drop = drop_key;
    files->owner = owner;
    files->key = *key;
    (void)snprintf(files->state_dir, sizeof files->state_dir, "%s", state_dir);
    rundir_join(files->path, state_dir, name);
    return files;
}

void key_files_write(struct file_work *work)
{
    struct key_files *files = (struct key_files *)work;

    file_work_at(work, FILE_DISK_STATE, "write");
    files->status = key_file_write(files->path, &files->key, &files->err);
    if (files->status == STATUS_OK)
        key_mark_write(files->state_dir, files->key.name);
}
