/* The text of seen.h's file. Touches no file. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/store/seen.h"

#define FORMAT "ddp-seen 1"

static bool read_number(const char *text, uint64_t *number)
{
    char *end = NULL;

    *number = strtoull(text, &end, 10);
    return *end == '\0' && text[0] >= '0' && text[0] <= '9';
}

/* Ids become parts of SQL and of keys. */
static bool is_id(const char *text)
{
    return text[strspn(text, "0123456789abcdefghijklmnopqrstuvwxyz-")] == '\0';
}

bool seen_decode(const char *text, struct seen *seen)
{
    char commit[24] = "", job[24] = "", event[24] = "", lease[24] = "0";
    const char *more = strstr(text, " lease="), *lineage = strstr(text, " lineage=");

    /* an earlier version has written none of them */
    (void)snprintf(seen->lineage, sizeof seen->lineage, "-");
    if (lineage != NULL && (sscanf(lineage, " lineage=%263s", seen->lineage) != 1 ||
                            strspn(seen->lineage, "0123456789abcdef,-") != strlen(seen->lineage)))
        return false;
    if (more != NULL &&
        (sscanf(more, " lease=%20s", lease) != 1 || !read_number(lease, &seen->lease_us)))
        return false;
    return sscanf(text, FORMAT " cluster=%32s restore=%32s commit=%20s job=%20s event=%20s",
                  seen->cluster, seen->restore, commit, job, event) == 5 &&
           is_id(seen->cluster) && is_id(seen->restore) && read_number(commit, &seen->commit) &&
           read_number(job, &seen->job_id) && read_number(event, &seen->event_id);
}

size_t seen_encode(const struct seen *seen, char text[SEEN_FILE_BYTES])
{
    return (size_t)snprintf(
        text, SEEN_FILE_BYTES,
        FORMAT " cluster=%s restore=%s commit=%020" PRIu64 " job=%020" PRIu64 " event=%020" PRIu64
               " lease=%020" PRIu64 " stamp=- lineage=%s\n",
        seen->cluster, seen->restore, seen->commit, seen->job_id, seen->event_id, seen->lease_us,
        seen->lineage[0] != '\0' ? seen->lineage : "-");
}
