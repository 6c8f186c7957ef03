#include "launcherd/node/ask_share.h"

#include <stdbool.h>
#include <stddef.h>

#include "common/msg.h"

const char *ask_share(const uint64_t *ids, uint32_t count, uint32_t places, uint64_t id)
{
    const bool is_admin = (id & NODE_ASKER_ADMIN) != 0;
    uint32_t own = 0;

    for (uint32_t i = 0; i < count; i++)
        own += (ids[i] & (NODE_ASKER_ADMIN | NODE_ASKER_BITS)) ==
               (id & (NODE_ASKER_ADMIN | NODE_ASKER_BITS));
    if (!is_admin && own >= ASK_SHARE)
        return NODE_ANSWERS_YOU;
    return count >= places || (!is_admin && count + 1 >= places) ? NODE_ANSWERS_OTHERS : NULL;
}
