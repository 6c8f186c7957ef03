#include "rendezvous/core/after_list.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

static_assert(TAIL_BYTES_MAX >= (AFTER_MAX - 1) * sizeof "9007199254740992-9007199254740992:any ",
              "the longest list fits");

/* Reads the digits of an id, which must not be 0. Returns what follows them; NULL: there is no
 * id. */
static const char *read_id(const char *at, uint64_t *id)
{
    *id = 0;
    for (; *at >= '0' && *at <= '9'; at++) {
        *id = *id * 10 + (uint64_t)(*at - '0');
        if (*id > JOB_ID_MAX)
            return NULL;
    }
    return *id == 0 ? NULL : at;
}

static const char *read_item(const char *at, struct rdzv_after_item *item)
{
    at = read_id(at, &item->first);
    if (at == NULL || *at != '-')
        return NULL;
    at = read_id(at + 1, &item->last);
    if (at == NULL)
        return NULL;
    item->any = strncmp(at, ":any", 4) == 0;
    if (!item->any && strncmp(at, ":ok", 3) != 0)
        return NULL;
    return at + (item->any ? 4 : 3);
}

bool after_list_read(const struct rdzv_record *record, struct rdzv_after *after)
{
    const char *at = record->tail;

    after->count = 0;
    if (record->after_job == 0)
        return true;
    after->items[after->count++] =
        (struct rdzv_after_item){record->after_job, record->after_last, record->after_any};
    while (*at != '\0') {
        if (after->count == AFTER_MAX)
            return false;
        at = read_item(at, &after->items[after->count++]);
        if (at == NULL || (*at != ' ' && *at != '\0'))
            return false;
        if (*at == ' ' && *++at == '\0')
            return false;
    }
    return true;
}

void after_list_write(const struct rdzv_after *after, struct rdzv_record *record)
{
    size_t used = 0;

    assert(after->count <= AFTER_MAX);
    after_list_clear(record);
    if (after->count == 0)
        return;
    record->after_job = after->items[0].first;
    record->after_last = after->items[0].last;
    record->after_any = after->items[0].any;
    for (uint32_t i = 1; i < after->count; i++)
        used += (size_t)snprintf(record->tail + used, sizeof record->tail - used, "%s%llu-%llu:%s",
                                 i == 1 ? "" : " ", (unsigned long long)after->items[i].first,
                                 (unsigned long long)after->items[i].last,
                                 after->items[i].any ? "any" : "ok");
    assert(used < sizeof record->tail);
}

void after_list_clear(struct rdzv_record *record)
{
    record->after_job = record->after_last = 0;
    record->after_any = false;
    record->tail[0] = '\0';
}
