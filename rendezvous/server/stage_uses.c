#include "rendezvous/server/stage_uses.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/server/stage_files.h"

#define KEPT_US ((uint64_t)STAGE_KEEP_FULL_MS * 1000)

static void forget_old(struct stage_uses *uses, uint64_t now_us)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < uses->count; i++) {
        if (now_us - uses->items[i].at_us > KEPT_US)
            continue;
        if (kept < i)
            uses->items[kept] = uses->items[i];
        kept++;
    }
    uses->count = kept;
}

/* The note of this use; NULL: there is none. `may_add`: whether the user may have one more. */
static struct stage_use *find(struct stage_uses *uses, const char *user, const char *hash,
                              uint64_t now_us, bool *may_add)
{
    uint32_t of_user = 0;

    forget_old(uses, now_us);
    for (uint32_t i = 0; i < uses->count; i++) {
        if (strcmp(uses->items[i].user, user) != 0)
            continue;
        if (strcmp(uses->items[i].hash, hash) == 0)
            return &uses->items[i];
        of_user++;
    }
    *may_add = of_user + 1 <= (STAGE_USES_MAX - (uses->count - of_user)) / 2;
    return NULL;
}

bool stage_uses_takes(struct stage_uses *uses, const char *user, const char *hash, uint64_t now_us)
{
    bool may_add = false;

    return find(uses, user, hash, now_us, &may_add) != NULL || may_add;
}

bool stage_uses_has(struct stage_uses *uses, const char *user, const char *hash, uint64_t now_us)
{
    bool may_add;

    return find(uses, user, hash, now_us, &may_add) != NULL;
}

/* Place for one more; NULL: no memory. */
static struct stage_use *add(struct stage_uses *uses)
{
    const uint32_t room = uses->room == 0 ? 64 : uses->room * 2;
    struct stage_use *items;

    if (uses->count == uses->room) {
        items = realloc(uses->items, room * sizeof *items);
        if (items == NULL)
            return NULL;
        uses->items = items;
        uses->room = room;
    }
    return &uses->items[uses->count++];
}

bool stage_uses_note(struct stage_uses *uses, const char *user, const char *hash, uint64_t now_us)
{
    bool may_add = false;
    struct stage_use *use = find(uses, user, hash, now_us, &may_add);

    if (use == NULL && may_add && (use = add(uses)) != NULL) {
        (void)snprintf(use->user, sizeof use->user, "%s", user);
        (void)snprintf(use->hash, sizeof use->hash, "%s", hash);
    }
    if (use != NULL)
        use->at_us = now_us;
    return use != NULL;
}

static int by_hash(const void *a, const void *b)
{
    return strcmp(((const struct store_staged *)a)->hash, ((const struct store_staged *)b)->hash);
}

bool stage_uses_add(struct stage_uses *uses, const char *user, uint64_t now_us,
                    struct store_staged **used, uint32_t *count)
{
    struct store_staged *all;
    uint32_t kept = 0, sum;

    forget_old(uses, now_us);
    sum = *count + uses->count;
    all = realloc(*used, (sum + 1u) * sizeof *all);
    if (all == NULL)
        return false;
    *used = all;
    for (uint32_t i = 0; i < uses->count; i++) {
        struct store_staged *one = &all[*count + i];

        one->is_named = false;
        memcpy(one->hash, uses->items[i].hash, sizeof one->hash);
        one->is_of_user = strcmp(uses->items[i].user, user) == 0;
    }
    qsort(all, sum, sizeof *all, by_hash);
    for (uint32_t i = 0; i < sum; i++) {
        if (kept == 0 || strcmp(all[kept - 1].hash, all[i].hash) != 0) {
            all[kept++] = all[i];
            continue;
        }
        all[kept - 1].is_named |= all[i].is_named;
        all[kept - 1].is_of_user |= all[i].is_of_user;
    }
    *count = kept;
    return true;
}

void stage_uses_free(struct stage_uses *uses)
{
    free(uses->items);
    *uses = (struct stage_uses){0};
}
