#include "rendezvous/core/identity.h"

#include <string.h>

#include "common/fnv.h"
#include "common/limits.h"

/* A hash; 0: not known. */
static uint64_t mark_of(const char *text)
{
    if (text == NULL || text[0] == '\0' || strcmp(text, BOOT_ID_UNKNOWN) == 0)
        return 0;
    return fnv_add(FNV_START, text, strlen(text)) | 1;
}

uint64_t identity_boot(const char *boot_id)
{
    return mark_of(boot_id);
}

struct rdzv_identity identity_of(const struct msg_node_hello *hello)
{
    return (struct rdzv_identity){.machine = mark_of(hello->machine_id),
                                  .boot = mark_of(hello->boot_id),
                                  .state = mark_of(hello->state_id)};
}

/* A boot's id is random, so equal ones are of one machine, also where it does not know its own id. Other boots of one
 * machine's id come first: a copied disk has the id of the machine and of the state directory. */
enum kinship identity_kinship(const struct rdzv_identity *before, const struct rdzv_identity *now,
                              enum kernel_age age)
{
    const bool has_boots = before->boot != 0 && now->boot != 0;
    const bool has_machines = before->machine != 0 && now->machine != 0;
    const bool has_states = before->state != 0 && now->state != 0;
    const bool is_same_boot = has_boots && before->boot == now->boot;
    const bool is_same_id = has_machines && before->machine == now->machine;

    if (is_same_id && has_boots && !is_same_boot)
        return age == KERNEL_LATER       ? KIN_REBOOTED
               : age == KERNEL_NOT_LATER ? KIN_OTHER
                                         : KIN_UNKNOWN;
    if ((is_same_boot || is_same_id) && has_states && before->state == now->state)
        return KIN_SAME;
    return (is_same_boot || is_same_id ? has_states : has_machines) ? KIN_OTHER : KIN_UNKNOWN;
}

struct rdzv_identity identity_join(const struct rdzv_identity *a, const struct rdzv_identity *b)
{
    return identity_kinship(a, b, KERNEL_AGE_UNKNOWN) == KIN_SAME ? *b : (struct rdzv_identity){0};
}
