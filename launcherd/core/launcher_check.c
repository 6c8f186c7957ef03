#include "launcherd/core/launcher_check.h"

#include <assert.h>

#include "launcherd/core/launcher_slots.h"
#include "launcherd/core/launcher_table.h"

static void check_shim(const struct launcher_shim *shim)
{
    assert(shim->job_id != 0 && shim->local_count <= SLOTS_PER_NODE_MAX);
    assert(!(shim->connected && shim->connect_at_us != 0));
    assert(shim->acked <= shim->revision);
    if (shim->dead) {
        assert(!shim->connected && shim->connect_at_us == 0);
        assert(shim->phase == SHIM_ENDED && shim->revision == LAUNCHER_REVISION_LAST);
    } else {
        assert(shim->revision == 0 && (!shim->end.is_known || shim->phase == SHIM_ENDED));
    }
}

/* Each shim is in the table once, and a slot belongs to one active shim. Two adopted shims may
 * have the same slot until SHIM_GONE comes for the one whose process has ended. */
static void check_shims(const struct launcher *launcher)
{
    uint64_t started = 0, adopted = 0;
    assert(launcher->shim_count <= SHIMS_PER_NODE_MAX);
    for (uint32_t i = 0; i < launcher->shim_count; i++) {
        const struct launcher_shim *shim = &launcher->shims[i];
        check_shim(shim);
        for (uint32_t j = 0; j < i; j++)
            assert(launcher->shims[j].job_id != shim->job_id ||
                   launcher->shims[j].generation != shim->generation);
        if (!launcher_shim_is_active(shim))
            continue;
        if (shim->adopted) {
            adopted |= shim->slot_mask;
            continue;
        }
        assert((started & shim->slot_mask) == 0);
        started |= shim->slot_mask;
    }
    assert((started & adopted) == 0);
    assert(launcher->used_mask == (started | adopted));
}

static void check_slots(const struct launcher *launcher)
{
    for (uint32_t i = 0; i < SLOTS_PER_NODE_MAX; i++) {
        const struct launcher_slot *slot = &launcher->slots[i];
        assert(slot->state != SLOT_BUSY);
        assert((slot->state == SLOT_DRAINED) == (slot->incident != 0));
        if (i >= launcher_slots_with_gpu(launcher))
            assert(slot->state == SLOT_FREE && slot->asked_us == 0);
        if (slot->state == SLOT_FREE || slot->state == SLOT_CHECKING)
            assert(slot->reason[0] == '\0');
        if (launcher_slot_in_use(launcher, i))
            assert(slot->state != SLOT_CHECKING && slot->state != SLOT_QUARANTINED);
    }
}

void launcher_check(const struct launcher *launcher, uint64_t lease_before_us)
{
    assert(!launcher->welcomed || launcher->server_open);
    assert(!launcher->welcomed || launcher->cluster[0] != '\0');
    assert(launcher->retry_at_us == UINT64_MAX || !launcher->server_open);
    assert(launcher->lease_until_us >= lease_before_us);
    check_shims(launcher);
    check_slots(launcher);
}
