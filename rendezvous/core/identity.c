#include "rendezvous/core/identity.h"

/* FNV-1a; 0: the text is empty. */
static uint64_t mark_of(const char *text)
{
    uint64_t mark = 0xcbf29ce484222325u;

    if (text == NULL || text[0] == '\0')
        return 0;
    for (; *text != '\0'; text++)
        mark = (mark ^ (uint8_t)*text) * 0x100000001b3u;
    return mark | 1;
}

struct rdzv_identity identity_of(const struct msg_node_hello *hello)
{
    return (struct rdzv_identity){.machine = mark_of(hello->machine_id),
                                  .boot = mark_of(hello->boot_id),
                                  .state = mark_of(hello->state_id)};
}

enum kinship identity_kinship(const struct rdzv_identity *before, const struct rdzv_identity *now)
{
    const bool has_machines = before->machine != 0 && now->machine != 0;
    const bool has_states = before->state != 0 && now->state != 0;

    if (has_machines && has_states && before->machine == now->machine &&
        before->state == now->state)
        return KIN_SAME;
    if (has_machines && before->machine == now->machine && before->boot != 0 && now->boot != 0 &&
        before->boot != now->boot)
        return KIN_REBOOTED;
    return has_machines && has_states ? KIN_OTHER : KIN_UNKNOWN;
}

struct rdzv_identity identity_join(const struct rdzv_identity *a, const struct rdzv_identity *b)
{
    return identity_kinship(a, b) == KIN_SAME ? *b : (struct rdzv_identity){0};
}
