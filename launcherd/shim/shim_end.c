#include "launcherd/shim/shim_end.h"

#include <stdio.h>

#include "launcherd/shim/end_files.h"

static void tell(const struct shim_end *end, const char *problem)
{
    end->on_stored(end->owner, problem);
}

static void on_done(struct file_work *work, const char *late)
{
    const struct end_files *files = (struct end_files *)work;
    struct shim_end *end = files->end;

    if (end == NULL)
        return;
    end->is_late = late != NULL;
    if (late != NULL)
        tell(end, late);
    else
        tell(end, files->status == STATUS_OK ? NULL : files->err.text);
}

/* After a deadline this is when the disk has answered. */
static void drop(struct file_work *work)
{
    struct end_files *files = (struct end_files *)work;
    struct shim_end *end = files->end;

    if (end != NULL) {
        end->work = NULL;
        if (end->is_late && files->has_run && files->status == STATUS_OK)
            tell(end, NULL);
    }
    end_files_free(files);
}

const char *shim_end_store(struct shim_end *end, const char *run_dir, struct msg *msg)
{
    struct end_files *files = end_files_new(run_dir, msg);

    if (files == NULL)
        return "there is no memory for it";
    files->end = end;
    files->work.lane = FILE_LANE_END;
    files->work.limit_ms = SHIM_END_LATE_MS;
    files->work.done = on_done;
    files->work.drop = drop;
    end->work = files;
    if (file_work_start(end->files, &files->work))
        return NULL;
    return "the shim ends already";
}

void shim_end_close(struct shim_end *end)
{
    if (end->work != NULL)
        end->work->end = NULL;
    end->work = NULL;
}
