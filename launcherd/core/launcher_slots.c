#include "launcherd/core/launcher_slots.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "launcherd/core/launcher_table.h"

uint32_t launcher_slots_with_gpu(const struct launcher *launcher)
{
    const struct launcher_options *options = &launcher->options;
    return options->gpus < options->slots ? options->gpus : options->slots;
}

struct launcher_slot *launcher_slot_find(struct launcher *launcher, uint32_t index)
{
    return index < launcher_slots_with_gpu(launcher) ? &launcher->slots[index] : NULL;
}

bool launcher_slot_in_use(const struct launcher *launcher, uint32_t index)
{
    assert(index < SLOTS_PER_NODE_MAX);
    return (launcher->used_mask >> index & 1) != 0;
}

int launcher_slots_first_closed(const struct launcher *launcher, uint64_t mask)
{
    for (uint32_t i = 0; i < launcher_slots_with_gpu(launcher); i++)
        if ((mask >> i & 1) != 0 && launcher->slots[i].state != SLOT_FREE)
            return (int)i;
    return -1;
}

/* Slots of shims that the server knows nothing of: it would give them to its own jobs, which would be refused here. */
static uint64_t foreign_mask(const struct launcher *launcher)
{
    uint64_t mask = 0;
    for (uint32_t i = 0; i < launcher->shim_count; i++)
        if (launcher_shim_is_active(&launcher->shims[i]) &&
            !launcher_is_ours(launcher, &launcher->shims[i]))
            mask |= launcher->shims[i].slot_mask;
    return mask;
}

uint32_t launcher_slots_list_closed(const struct launcher *launcher, struct part_slot_closed *out)
{
    uint64_t foreign = foreign_mask(launcher);
    uint32_t count = 0;
    for (uint32_t i = 0; i < launcher_slots_with_gpu(launcher); i++) {
        const struct launcher_slot *slot = &launcher->slots[i];
        if (slot->state == SLOT_FREE)
            continue;
        foreign &= ~(1ull << i);
        out[count++] = (struct part_slot_closed){
            .slot = i,
            .state = slot->state,
            .incident = slot->state == SLOT_DRAINED ? slot->incident : 0,
            .reason = slot->reason,
        };
    }
    for (; foreign != 0; foreign &= foreign - 1)
        out[count++] = (struct part_slot_closed){
            .slot = (uint32_t)__builtin_ctzll(foreign),
            .state = SLOT_QUARANTINED,
            .reason = "a job of another server, or of its state before a restore, uses it until "
                      "its lease ends",
        };
    return count;
}

void launcher_slot_event(struct launcher *launcher, uint32_t index, const char *text,
                         struct launcher_actions *actions)
{
    char line[REASON_BYTES_MAX];
    const struct launcher_shim *user = NULL;
    for (uint32_t i = 0; i < launcher->shim_count && user == NULL; i++)
        if (!launcher->shims[i].dead && (launcher->shims[i].slot_mask >> index & 1) != 0)
            user = &launcher->shims[i];
    (void)snprintf(line, sizeof line, "GPU %u: %s", index, text);
    if (user != NULL)
        launcher_log(actions, "%s (job %llu, generation %u uses it)", line,
                     (unsigned long long)user->job_id, user->generation);
    else
        launcher_log(actions, "%s", line);
    if (launcher->welcomed)
        launcher_send_event(actions, index, line);
}

void launcher_slot_open(struct launcher *launcher, uint32_t index, struct launcher_actions *actions)
{
    struct launcher_slot *slot = &launcher->slots[index];
    if (slot->state == SLOT_FREE)
        return;
    if (slot->state != SLOT_CHECKING)
        launcher_log(actions, "slot %u is open again", index);
    slot->state = SLOT_FREE;
    slot->reason[0] = '\0';
    launcher->slots_changed = true;
}

void launcher_slot_close(struct launcher *launcher, uint32_t index, enum slot_state state,
                         struct launcher_actions *actions, const char *format, ...)
{
    struct launcher_slot *slot = &launcher->slots[index];
    char reason[REASON_BYTES_MAX];
    va_list args;
    if (slot->state == SLOT_DRAINED && state != SLOT_DRAINED)
        return;
    va_start(args, format);
    (void)vsnprintf(reason, sizeof reason, format, args);
    va_end(args);
    if (slot->state == state && strcmp(slot->reason, reason) == 0)
        return;
    if (slot->state != state)
        launcher_log(actions, "slot %u is %s: %s", index, slot_state_name(state), reason);
    slot->state = state;
    (void)snprintf(slot->reason, sizeof slot->reason, "%s", reason);
    launcher->slots_changed = true;
}

/* Begins to check a slot. It has no reason text: this is the usual end of a job. */
static void begin_check(struct launcher *launcher, uint32_t index, uint64_t now_us)
{
    struct launcher_slot *slot = &launcher->slots[index];
    slot->state = SLOT_CHECKING;
    slot->reason[0] = '\0';
    slot->checking_us = now_us;
    slot->asks = 0;
    slot->asked_us = 0; /* the answer to an open question will be ignored */
    slot->next_ask_us = now_us;
    launcher->slots_changed = true;
}

void launcher_slot_drain(struct launcher *launcher, uint32_t index, const struct fault *fault,
                         const char *what, uint64_t now_us, struct launcher_actions *actions)
{
    struct launcher_slot *slot = &launcher->slots[index];
    const char *remedy = fault_remedy(fault->action);
    if (slot->state != SLOT_DRAINED || fault->action == FAULT_DRAIN_RESTART)
        launcher_slot_close(launcher, index, SLOT_DRAINED, actions, "%s; %s", what, remedy);
    slot->incident = now_us;
    launcher->slots_dirty = true;
    launcher->slots_changed = true;
}

void launcher_slot_resume(struct launcher *launcher, const struct msg_slot_resume *resume,
                          uint64_t now_us, struct launcher_actions *actions)
{
    struct launcher_slot *slot = launcher_slot_find(launcher, resume->slot);
    if (!launcher->welcomed || slot == NULL || slot->state != SLOT_DRAINED ||
        slot->incident != resume->incident)
        return;
    launcher_log(actions, "slot %u is resumed by an operator", resume->slot);
    slot->incident = 0;
    launcher->slots_dirty = true;
    begin_check(launcher, resume->slot, now_us);
    if (launcher_slot_in_use(launcher, resume->slot))
        launcher_slot_open(launcher, resume->slot, actions);
}

void launcher_slots_load(struct launcher *launcher, const struct slots_record *record)
{
    assert(record->count <= SLOTS_PER_NODE_MAX);
    if (strcmp(record->boot_id, launcher->options.boot_id) != 0)
        return;
    for (uint32_t i = 0; i < record->count; i++) {
        const struct slot_record *from = &record->slots[i];
        struct launcher_slot *slot = launcher_slot_find(launcher, from->slot);
        if (slot == NULL)
            continue; /* the node had more GPUs then */
        slot->has_baseline = from->has_baseline;
        slot->baseline_bytes = from->baseline_bytes;
        slot->has_ecc = from->has_ecc;
        slot->ecc_uncorrected = from->ecc_uncorrected;
        slot->remap_failed = from->remap_failed;
        slot->incident = from->incident;
        if (from->incident == 0)
            continue;
        slot->state = SLOT_DRAINED;
        (void)snprintf(slot->reason, sizeof slot->reason, "%s", from->reason);
    }
}

static void save(struct launcher *launcher, struct launcher_actions *actions)
{
    struct slots_record *record = &actions->slots;
    (void)snprintf(record->boot_id, sizeof record->boot_id, "%s", launcher->options.boot_id);
    record->gpus = launcher->options.gpus;
    record->count = launcher_slots_with_gpu(launcher);
    for (uint32_t i = 0; i < record->count; i++) {
        const struct launcher_slot *slot = &launcher->slots[i];
        struct slot_record *to = &record->slots[i];
        *to = (struct slot_record){
            .slot = i,
            .has_baseline = slot->has_baseline,
            .baseline_bytes = slot->baseline_bytes,
            .has_ecc = slot->has_ecc,
            .ecc_uncorrected = slot->ecc_uncorrected,
            .remap_failed = slot->remap_failed,
            .incident = slot->incident,
        };
        if (slot->incident != 0)
            (void)snprintf(to->reason, sizeof to->reason, "%s", slot->reason);
    }
    launcher_add(actions, (struct launcher_action){.type = LAUNCHER_SAVE_SLOTS, .slots = record});
    launcher->slots_dirty = false;
}

void launcher_slots_begin(struct launcher *launcher, uint64_t now_us)
{
    for (uint32_t i = 0; i < launcher_slots_with_gpu(launcher); i++) {
        launcher->slots[i].next_ask_us = now_us;
        if (launcher->slots[i].state != SLOT_DRAINED && !launcher_slot_in_use(launcher, i))
            begin_check(launcher, i, now_us);
    }
}

static void ask(struct launcher *launcher, uint32_t index, uint64_t now_us,
                struct launcher_actions *actions)
{
    struct launcher_slot *slot = &launcher->slots[index];
    slot->asked_us = now_us;
    slot->asks++;
    launcher_add(actions,
                 (struct launcher_action){.type = LAUNCHER_ASK_GPU,
                                          .slot = index,
                                          .asked_us = now_us,
                                          .bytes_max = slot->has_baseline
                                                           ? slot->baseline_bytes + GPU_SLACK_BYTES
                                                           : GPU_FIRST_BYTES_MAX});
}

void launcher_slots_settle(struct launcher *launcher, uint64_t now_us,
                           struct launcher_actions *actions)
{
    const uint32_t before = actions->count;
    uint64_t used = launcher_table_slots(launcher), left = launcher->used_mask & ~used;
    launcher->used_mask = used;
    for (uint32_t i = 0; i < launcher_slots_with_gpu(launcher); i++) {
        struct launcher_slot *slot = &launcher->slots[i];
        if ((left >> i & 1) != 0 && slot->state != SLOT_DRAINED)
            begin_check(launcher, i, now_us);
        if (slot->next_ask_us == 0)
            continue; /* before launcher_slots_begin */
        if (slot->asked_us == 0 && now_us >= slot->next_ask_us)
            ask(launcher, i, now_us, actions);
        else if (slot->asked_us != 0 && now_us >= slot->asked_us + launcher->options.gpu_timeout_us)
            launcher_slot_close(launcher, i, SLOT_UNKNOWN, actions,
                                "NVML has not answered for %g s: the driver hangs, or the GPU does",
                                (double)launcher->options.gpu_timeout_us / 1e6);
    }
    if (launcher->slots_dirty)
        save(launcher, actions);
    assert(actions->count - before <= LAUNCHER_SLOTS_ACTIONS_MAX);
}

uint64_t launcher_slots_timer_us(const struct launcher *launcher)
{
    uint64_t at_us = UINT64_MAX;
    for (uint32_t i = 0; i < launcher_slots_with_gpu(launcher); i++) {
        const struct launcher_slot *slot = &launcher->slots[i];
        uint64_t own_us = slot->next_ask_us;
        if (slot->next_ask_us == 0)
            continue;
        if (slot->asked_us != 0) /* UNKNOWN, DRAINED: nothing more to do until the answer */
            own_us = slot->state == SLOT_UNKNOWN || slot->state == SLOT_DRAINED
                         ? UINT64_MAX
                         : slot->asked_us + launcher->options.gpu_timeout_us;
        if (own_us < at_us)
            at_us = own_us;
    }
    return at_us;
}
