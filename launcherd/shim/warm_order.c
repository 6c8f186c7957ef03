#include "launcherd/shim/warm_order.h"

#include <string.h>

struct msg_start warm_start(const struct msg_warm *warm)
{
    const uint32_t count = (uint32_t)__builtin_popcountll(warm->slot_mask);

    return (struct msg_start){.cluster = warm->cluster,
                              .job_id = warm->job_id,
                              .generation = 1,
                              .name = "warm",
                              .user = warm->user,
                              .node_count = 1,
                              .local_count = count,
                              .world = count,
                              .slot_mask = warm->slot_mask,
                              .cwd = warm->cwd,
                              .argv = warm->argv,
                              .env = warm->env,
                              .launch = warm->launch};
}

static bool same_texts(const struct msg_text_list *a, const struct msg_text_list *b)
{
    bool same = a->count == b->count;

    for (uint32_t i = 0; same && i < a->count; i++)
        same = strcmp(a->items[i], b->items[i]) == 0;
    return same;
}

static bool same_pairs(const struct msg_pair_list *a, const struct msg_pair_list *b)
{
    bool same = a->count == b->count;

    for (uint32_t i = 0; same && i < a->count; i++)
        same = strcmp(a->items[i].name, b->items[i].name) == 0 &&
               strcmp(a->items[i].value, b->items[i].value) == 0;
    return same;
}

bool warm_fits(const struct msg_warm *warm, const struct msg_start *start)
{
    return warm->job_id == start->job_id && warm->slot_mask == start->slot_mask &&
           strcmp(warm->cluster, start->cluster) == 0 && strcmp(warm->user, start->user) == 0 &&
           strcmp(warm->cwd, start->cwd) == 0 && same_texts(&warm->argv, &start->argv) &&
           same_pairs(&warm->env, &start->env) && same_pairs(&warm->launch, &start->launch);
}

bool warm_order_build(struct buf *out, const char *const *texts, uint32_t count)
{
    uint32_t byte_count = 0;

    for (uint32_t i = 0; i < count; i++)
        byte_count += (uint32_t)strlen(texts[i]) + 1;
    buf_add(out, &byte_count, sizeof byte_count);
    for (uint32_t i = 0; i < count; i++)
        buf_add(out, texts[i], strlen(texts[i]) + 1);
    return !out->failed && byte_count <= WARM_ORDER_BYTES_MAX;
}

bool warm_order_read(char *bytes, uint32_t byte_count, char **texts, uint32_t count)
{
    uint32_t at = 0;

    if (byte_count == 0 || bytes[byte_count - 1] != '\0')
        return false;
    for (uint32_t i = 0; i < count; i++) {
        if (at >= byte_count)
            return false;
        texts[i] = bytes + at;
        at += (uint32_t)strlen(bytes + at) + 1;
    }
    return at == byte_count;
}
