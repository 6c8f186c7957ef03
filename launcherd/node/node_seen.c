#include "launcherd/node/node_seen.h"

#include "launcherd/node/seen_files.h"

static void save(struct node_seen *seen, const struct seen_record *record);

/* A save that is late may still happen. So the newest record follows it, until one was saved. */
static void on_saved(struct file_work *work, const char *late)
{
    const struct seen_files *files = (struct seen_files *)work;
    struct node_seen *seen = files->owner;
    const bool is_saved = late == NULL && files->status == STATUS_OK;

    seen->saving = NULL;
    if (late == NULL && files->note.text[0] != '\0')
        log_line(LOG_WARNING, node_about(seen->host), "%s", files->note.text);
    if (!is_saved && !seen->is_unsaved)
        log_line(LOG_WARNING, node_about(seen->host), "the newest job is not recorded: %s",
                 late != NULL ? late : files->err.text);
    seen->is_unsaved = !is_saved;
    if (seen->has_next && !seen->host->closed)
        save(seen, &seen->next);
    else if (late != NULL && !seen->host->closed)
        save(seen, &files->record);
}

static void save(struct node_seen *seen, const struct seen_record *record)
{
    struct seen_files *files = seen_files_new(seen->host->state_dir, seen);

    if (files == NULL)
        return; /* the next one is saved */
    files->record = *record;
    files->work.run = seen_files_write;
    files->work.done = on_saved;
    seen->has_next = false;
    seen->saving = &files->work;
    if (!file_work_start(seen->host->files, &files->work))
        seen->saving = NULL;
}

static void on_read(struct file_work *work, const char *late)
{
    const struct seen_files *files = (struct seen_files *)work;
    const struct node_host *host = ((const struct node_seen *)files->owner)->host;

    if (late == NULL && files->status == STATUS_OK)
        host->step(host->owner, (struct launcher_event){.type = LAUNCHER_EVENT_SEEN_LOADED,
                                                        .seen = &files->record});
    else if (late != NULL || files->status != STATUS_NOT_FOUND)
        log_line(LOG_WARNING, node_about(host),
                 "%s: a server whose state is of the past does not learn it from this node",
                 late != NULL ? late : files->err.text);
}

void node_seen_open(struct node_seen *seen, const struct node_host *host)
{
    struct seen_files *files = seen_files_new(host->state_dir, seen);

    *seen = (struct node_seen){.host = host};
    if (files == NULL)
        return;
    files->work.run = seen_files_read;
    files->work.done = on_read;
    file_work_wait(host->files, &files->work);
}

void node_seen_save(struct node_seen *seen, const struct seen_record *record)
{
    if (seen->saving == NULL) {
        save(seen, record);
        return;
    }
    seen->next = *record;
    seen->has_next = true;
}
