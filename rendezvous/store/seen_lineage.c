/* Which of two states came before the other (seen.h). Touches no file. */
#include <stdio.h>
#include <string.h>

#include "rendezvous/store/seen.h"

const char *seen_id(const struct seen *seen)
{
    return strcmp(seen->restore, "-") == 0 ? seen->cluster : seen->restore;
}

bool seen_is_same(const struct seen *one, const struct seen *other)
{
    return strcmp(one->cluster, other->cluster) == 0 && strcmp(one->restore, other->restore) == 0;
}

/* The next id of a lineage; its length is 0 after the last one. */
static size_t next_id(const char **at)
{
    *at += strspn(*at, ",-");
    return strcspn(*at, ",");
}

static bool has_id(const char *lineage, const char *id, size_t id_bytes)
{
    for (const char *at = lineage; next_id(&at) > 0; at += next_id(&at))
        if (next_id(&at) == id_bytes && memcmp(at, id, id_bytes) == 0)
            return true;
    return false;
}

bool seen_came_before(const struct seen *now, const struct seen *later)
{
    return has_id(later->lineage, seen_id(now), strlen(seen_id(now)));
}

bool seen_is_past(const struct seen *now, const struct seen *before)
{
    return seen_came_before(now, before) ||
           (seen_is_same(now, before) &&
            (before->commit > now->commit || before->job_id > now->job_id));
}

static bool are_related(const struct seen *one, const struct seen *other)
{
    if (seen_is_same(one, other) || seen_came_before(one, other) || seen_came_before(other, one))
        return true;
    for (const char *at = one->lineage; next_id(&at) > 0; at += next_id(&at))
        if (has_id(other->lineage, at, next_id(&at)))
            return true;
    return false;
}

static void add_id(struct seen *seen, const char *id, size_t id_bytes)
{
    char *lineage = seen->lineage;
    size_t used = strcmp(lineage, "-") == 0 ? 0 : strlen(lineage);

    if (id_bytes == 0 || id_bytes >= SEEN_ID_BYTES || has_id(lineage, id, id_bytes))
        return;
    while (used + 1 + id_bytes >= SEEN_LINEAGE_BYTES) { /* without the second one */
        char *second = lineage + strcspn(lineage, ",") + 1;
        char *third = second + strcspn(second, ",") + 1;

        memmove(second, third, used + 1 - (size_t)(third - lineage));
        used = strlen(lineage);
    }
    (void)snprintf(lineage + used, SEEN_LINEAGE_BYTES - used, "%s%.*s", used > 0 ? "," : "",
                   (int)id_bytes, id);
}

void seen_add_lineage(struct seen *seen, const struct seen *other)
{
    const struct seen from = *other;

    for (const char *at = from.lineage; next_id(&at) > 0; at += next_id(&at))
        add_id(seen, at, next_id(&at));
    add_id(seen, seen_id(&from), strlen(seen_id(&from)));
}

bool seen_follow(struct seen *next, const struct seen *before)
{
    const bool is_same = seen_is_same(before, next);

    if (seen_came_before(next, before))
        return false;
    if (is_same && next->commit != 0 &&
        (before->commit == next->commit || seen_is_past(next, before)))
        return false;
    for (const char *at = before->lineage; is_same && next_id(&at) > 0; at += next_id(&at))
        add_id(next, at, next_id(&at));
    if (!is_same && are_related(next, before))
        seen_add_lineage(next, before);
    return true;
}

static uint64_t higher(uint64_t one, uint64_t other)
{
    return one > other ? one : other;
}

void seen_join(struct seen *seen, const struct seen *other)
{
    struct seen next = *other;
    const struct seen before = *seen;

    if (seen_follow(&next, &before))
        *seen = next;
    seen->job_id = higher(before.job_id, other->job_id);
    seen->event_id = higher(before.event_id, other->event_id);
    seen->lease_us = higher(before.lease_us, other->lease_us);
}
