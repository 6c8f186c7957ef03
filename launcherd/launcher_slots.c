/* Which slots may be used. Only those with a GPU have a state; a CPU share is free when no shim has
 * it.
 *
 *   free --(its shim ended)--> checking --(nobody on the GPU, memory at its baseline)--> free
 *   checking --(still not so after GPU_CLEAN_US, or a stranger is on it)--> quarantined --> free
 *   any --(NVML does not answer, or answers with an error)--> unknown --(it answers)--> as it is
 *   any --(a fault that says so, fault.h)--> drained --(slot_resume, or a new boot)--> checking
 *
 * NVML is asked again and again, one question a slot; every answer names its question, and one
 * from before the slot was left counts for nothing. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "launcherd/fault.h"
#include "launcherd/launcher_slots.h"

#define XID_BURST_US 10000000u /* one fault gives many Xids */

static uint32_t gpu_slots(const struct launcher *launcher)
{
    const struct launcher_options *options = &launcher->options;
    return options->gpus < options->slots ? options->gpus : options->slots;
}

static struct launcher_slot *slot_of(struct launcher *launcher, uint32_t index)
{
    return index < gpu_slots(launcher) ? &launcher->slots[index] : NULL;
}

bool launcher_slot_in_use(const struct launcher *launcher, uint32_t index)
{
    return (launcher->used_mask >> index & 1) != 0;
}

int launcher_slot_closed(const struct launcher *launcher, uint64_t mask)
{
    for (uint32_t i = 0; i < gpu_slots(launcher); i++)
        if ((mask >> i & 1) != 0 && launcher->slots[i].state != SLOT_FREE)
            return (int)i;
    return -1;
}

uint32_t launcher_list_closed(const struct launcher *launcher, struct part_slot_closed *out)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < gpu_slots(launcher); i++) {
        const struct launcher_slot *slot = &launcher->slots[i];
        if (slot->state != SLOT_FREE)
            out[count++] = (struct part_slot_closed){
                .slot = i,
                .state = slot->state,
                .incident = slot->state == SLOT_DRAINED ? slot->incident : 0,
                .reason = slot->reason,
            };
    }
    return count;
}

/* -- changes
 * ----------------------------------------------------------------------------------------- */

void launcher_slot_tell(struct launcher *launcher, uint32_t index, const char *text,
                        struct launcher_actions *actions)
{
    char line[REASON_BYTES_MAX];
    const struct launcher_shim *on_it = NULL;
    for (uint32_t i = 0; i < launcher->shim_count && on_it == NULL; i++)
        if (!launcher->shims[i].dead && (launcher->shims[i].slot_mask >> index & 1) != 0)
            on_it = &launcher->shims[i];
    (void)snprintf(line, sizeof line, "GPU %u: %s", index, text);
    if (on_it != NULL)
        launcher_note(actions, "%s (job %llu, generation %u is on it)", line,
                      (unsigned long long)on_it->job_id, on_it->generation);
    else
        launcher_note(actions, "%s", line);
    if (!launcher->welcomed || actions->text_count == LAUNCHER_TEXTS_MAX)
        return;
    char *kept = actions->texts[actions->text_count++];
    (void)snprintf(kept, REASON_BYTES_MAX, "%s", line);
    struct msg_node_event *msg = &launcher_send_server(actions, MSG_TYPE_NODE_EVENT)->node_event;
    msg->slot = index;
    msg->text = kept;
}

void launcher_slot_open(struct launcher *launcher, uint32_t index, struct launcher_actions *actions)
{
    struct launcher_slot *slot = &launcher->slots[index];
    if (slot->state == SLOT_FREE)
        return;
    if (slot->state != SLOT_CHECKING)
        launcher_note(actions, "slot %u is open again", index);
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
        launcher_note(actions, "slot %u is %s: %s", index, slot_state_word(state), reason);
    slot->state = state;
    launcher_copy(slot->reason, sizeof slot->reason, reason);
    launcher->slots_changed = true;
}

/* What is being checked has no reason to tell: that is its ordinary way. */
static void check_anew(struct launcher *launcher, uint32_t index, uint64_t now_us)
{
    struct launcher_slot *slot = &launcher->slots[index];
    slot->state = SLOT_CHECKING;
    slot->reason[0] = '\0';
    slot->checking_us = now_us;
    slot->asks = 0;
    slot->asked_us = 0; /* an answer from before counts for nothing */
    slot->next_ask_us = now_us;
    launcher->slots_changed = true;
}

/* A slot that is drained already keeps the reason of its first fault, unless the new one needs
 * more; but it is another incident: a resume that is on its way was not meant for it. */
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
    struct launcher_slot *slot = slot_of(launcher, resume->slot);
    if (!launcher->welcomed || slot == NULL || slot->state != SLOT_DRAINED ||
        slot->incident != resume->incident)
        return;
    launcher_note(actions, "slot %u is resumed by an operator", resume->slot);
    slot->incident = 0;
    launcher->slots_dirty = true;
    check_anew(launcher, resume->slot, now_us);
    if (launcher_slot_in_use(launcher, resume->slot))
        launcher_slot_open(launcher, resume->slot, actions);
}

/* -- what is kept over a restart of launcherd
 * ----------------------------------------------------------------------------------------- */

void launcher_slots_kept(struct launcher *launcher, const struct msg_slots_kept *kept)
{
    if (strcmp(kept->boot_id, launcher->options.boot_id) != 0)
        return; /* the machine was restarted: faults and baselines are of the past */
    for (uint32_t i = 0; i < kept->slots.count; i++) {
        const struct part_slot_kept *from = &kept->slots.items[i];
        struct launcher_slot *slot = slot_of(launcher, from->slot);
        if (slot == NULL)
            continue;
        slot->has_baseline = from->has_baseline;
        slot->baseline_bytes = from->baseline_bytes;
        slot->has_ecc = from->has_ecc;
        slot->ecc_uncorrected = from->ecc_uncorrected;
        slot->remap_failed = from->remap_failed;
        slot->incident = from->incident;
        if (from->incident == 0)
            continue;
        slot->state = SLOT_DRAINED;
        launcher_copy(slot->reason, sizeof slot->reason, from->reason);
    }
}

static void keep(struct launcher *launcher, struct launcher_actions *actions)
{
    struct msg_slots_kept *msg =
        &launcher_add(actions, (struct launcher_action){.type = LAUNCHER_KEEP_SLOTS,
                                                        .msg = {.type = MSG_TYPE_SLOTS_KEPT}})
             ->msg.slots_kept;
    *msg = (struct msg_slots_kept){.boot_id = launcher->options.boot_id,
                                   .gpus = launcher->options.gpus};
    for (uint32_t i = 0; i < gpu_slots(launcher); i++) {
        const struct launcher_slot *slot = &launcher->slots[i];
        bool is_drained = slot->state == SLOT_DRAINED;
        actions->kept[i] = (struct part_slot_kept){
            .slot = i,
            .has_baseline = slot->has_baseline,
            .baseline_bytes = slot->baseline_bytes,
            .has_ecc = slot->has_ecc,
            .ecc_uncorrected = slot->ecc_uncorrected,
            .remap_failed = slot->remap_failed,
            .incident = is_drained ? slot->incident : 0,
            .reason = is_drained ? slot->reason : "",
        };
    }
    msg->slots.items = actions->kept;
    msg->slots.count = gpu_slots(launcher);
    launcher->slots_dirty = false;
}

/* -- faults
 * ----------------------------------------------------------------------------------------- */

/* That of the same number, else a free one, else the oldest. */
static struct launcher_xid *xid_entry(struct launcher_slot *slot, uint32_t number)
{
    struct launcher_xid *oldest = &slot->xids[0];
    for (uint32_t i = 0; i < LAUNCHER_XIDS_MAX; i++) {
        if (slot->xids[i].number == number)
            return &slot->xids[i];
        if (slot->xids[i].at_us < oldest->at_us)
            oldest = &slot->xids[i];
    }
    return oldest;
}

void launcher_on_xid(struct launcher *launcher, const struct launcher_event *event,
                     struct launcher_actions *actions)
{
    struct launcher_slot *slot = slot_of(launcher, event->slot);
    const struct fault *fault = fault_of_xid(event->xid);
    char what[128];
    if (slot == NULL)
        return;
    struct launcher_xid *entry = xid_entry(slot, event->xid);
    bool same = entry->number == event->xid;
    uint64_t age_us = event->now_us - entry->at_us;
    slot->contained_seen = slot->contained_seen || event->xid == FAULT_XID_CONTAINED;
    if (same && age_us < XID_BURST_US)
        return;
    *entry = (struct launcher_xid){event->xid, event->now_us};
    (void)snprintf(what, sizeof what, "Xid %u: %s", event->xid, fault->words);
    if (fault->action == FAULT_DRAIN_REPEATED && same && age_us < FAULT_REPEAT_US) {
        static const struct fault again = {.action = FAULT_DRAIN_RESET};
        (void)snprintf(what, sizeof what, "Xid %u again: %s", event->xid, fault->words);
        fault = &again;
    }
    launcher_slot_tell(launcher, event->slot, what, actions);
    if (fault_drains(fault->action))
        launcher_slot_drain(launcher, event->slot, fault, what, event->now_us, actions);
}

/* -- time
 * ----------------------------------------------------------------------------------------- */

void launcher_slots_begin(struct launcher *launcher, uint64_t now_us)
{
    for (uint32_t i = 0; i < gpu_slots(launcher); i++) {
        launcher->slots[i].next_ask_us = now_us;
        if (launcher->slots[i].state != SLOT_DRAINED && !launcher_slot_in_use(launcher, i))
            check_anew(launcher, i, now_us);
    }
}

static uint64_t used_now(const struct launcher *launcher)
{
    uint64_t mask = 0;
    for (uint32_t i = 0; i < launcher->shim_count; i++)
        if (!launcher->shims[i].dead && launcher->shims[i].phase != SHIM_ENDED)
            mask |= launcher->shims[i].slot_mask;
    return mask;
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
                                                           : GPU_BYTES_UNKNOWN});
}

static bool has_beat(const struct launcher_actions *actions)
{
    for (uint32_t i = 0; i < actions->count; i++)
        if (actions->items[i].type == LAUNCHER_SEND_SERVER &&
            actions->items[i].msg.type == MSG_TYPE_BEAT)
            return true;
    return false;
}

void launcher_slots_settle(struct launcher *launcher, uint64_t now_us,
                           struct launcher_actions *actions)
{
    uint64_t used = used_now(launcher), left = launcher->used_mask & ~used;
    launcher->used_mask = used;
    for (uint32_t i = 0; i < gpu_slots(launcher); i++) {
        struct launcher_slot *slot = &launcher->slots[i];
        if ((left >> i & 1) != 0 && slot->state != SLOT_DRAINED)
            check_anew(launcher, i, now_us);
        if (slot->next_ask_us == 0)
            continue; /* before launcher_slots_begin */
        if (slot->asked_us == 0 && now_us >= slot->next_ask_us)
            ask(launcher, i, now_us, actions);
        else if (slot->asked_us != 0 && now_us >= slot->asked_us + GPU_SILENT_US)
            launcher_slot_close(launcher, i, SLOT_UNKNOWN, actions,
                                "NVML has not answered for %u s: the driver hangs, or the GPU does",
                                GPU_SILENT_US / 1000000);
    }
    if (launcher->slots_dirty)
        keep(launcher, actions);
    if (launcher->slots_changed && launcher->welcomed && !has_beat(actions))
        launcher_beat(launcher, now_us, actions);
}

uint64_t launcher_slots_timer_us(const struct launcher *launcher)
{
    uint64_t at_us = UINT64_MAX;
    for (uint32_t i = 0; i < gpu_slots(launcher); i++) {
        const struct launcher_slot *slot = &launcher->slots[i];
        uint64_t own_us = slot->next_ask_us;
        if (slot->next_ask_us == 0)
            continue;
        if (slot->asked_us != 0) /* said once; then its answer is awaited */
            own_us = slot->state == SLOT_UNKNOWN || slot->state == SLOT_DRAINED
                         ? UINT64_MAX
                         : slot->asked_us + GPU_SILENT_US;
        if (own_us < at_us)
            at_us = own_us;
    }
    if (launcher->slots_changed && launcher->welcomed)
        at_us = 0;
    return at_us;
}
