#include "rendezvous/store/seen.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/io/own_path.h"

#define FORMAT "ddp-seen 1"

static bool read_number(const char *text, uint64_t *number)
{
    char *end = NULL;

    *number = strtoull(text, &end, 10);
    return *end == '\0' && text[0] >= '0' && text[0] <= '9';
}

bool seen_read(const char *path, struct seen *seen)
{
    FILE *file = fopen(path, "re");
    char commit[24] = "", job[24] = "", event[24] = "";
    int count;

    *seen = (struct seen){.commit = 0};
    if (file == NULL)
        return false;
    count = fscanf(file, FORMAT " cluster=%32s restore=%32s commit=%20s job=%20s event=%20s",
                   seen->cluster, seen->restore, commit, job, event);
    (void)fclose(file);
    return count == 5 && read_number(commit, &seen->commit) && read_number(job, &seen->job_id) &&
           read_number(event, &seen->event_id);
}

bool seen_is_same(const struct seen *one, const struct seen *other)
{
    return strcmp(one->cluster, other->cluster) == 0 && strcmp(one->restore, other->restore) == 0;
}

/* It is not synced: after a loss of power it may be a few seconds old, as it may be anyway. */
enum status seen_write(const char *path, const struct seen *seen, struct err *err)
{
    struct seen before;
    char temp[4200], text[256];
    int fd, length;
    bool is_written;
    enum status status;

    if (seen_read(path, &before) && seen_is_same(&before, seen) && before.commit >= seen->commit)
        return STATUS_OK;
    (void)snprintf(temp, sizeof temp, "%.4100s.new", path);
    length = snprintf(text, sizeof text,
                      FORMAT " cluster=%s restore=%s commit=%" PRIu64 " job=%" PRIu64
                             " event=%" PRIu64 "\n",
                      seen->cluster, seen->restore, seen->commit, seen->job_id, seen->event_id);
    status = own_file_make(temp, 0, 0600, &fd, err);
    if (status != STATUS_OK)
        return status;
    is_written = write(fd, text, (size_t)length) == length;
    if (!is_written)
        status = err_set(err, STATUS_IO, errno, "cannot write %s: %s", path, strerror(errno));
    (void)close(fd);
    return is_written ? own_file_rename(temp, path, 0, err) : status;
}
