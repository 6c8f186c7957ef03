#include "launcherd/core/launcher_evaluate.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

#include "launcherd/core/launcher_slots.h"

#define ASK_QUARANTINED_US 1000000u /* the slot opens soon after the holder is gone */
#define ASK_CHECKING_US 20000u      /* doubled with each question, up to: */
#define ASK_CHECKING_MAX_US 500000u
#define XID_BURST_US 10000000u /* repetitions within this time are of the same fault */
#define MIB ((uint64_t)1 << 20)

/* "pid 4711 (python3 of bob) holds 1830 MiB" */
static void holder_text(const struct gpu_process *process, char *out, size_t out_bytes)
{
    char job[32] = "", memory[32] = "memory";
    if (process->job_id != 0)
        (void)snprintf(job, sizeof job, ", job %" PRIu64, process->job_id);
    if (process->bytes != GPU_BYTES_UNKNOWN)
        (void)snprintf(memory, sizeof memory, "%" PRIu64 " MiB", process->bytes / MIB);
    if (process->is_gone)
        (void)snprintf(out, out_bytes, "pid %u (gone, or in another container) holds %s",
                       process->pid, memory);
    else
        (void)snprintf(out, out_bytes, "pid %u (%s of %s%s) holds %s", process->pid,
                       process->program, process->user, job, memory);
}

static void openers_text(const struct gpu_facts *facts, char *out, size_t out_bytes)
{
    size_t used = 0;
    out[0] = '\0';
    for (uint32_t i = 0; i < facts->opener_count && i < GPU_OPENERS_MAX && used < out_bytes; i++)
        used +=
            (size_t)snprintf(out + used, out_bytes - used, "%spid %u (%s of %s)",
                             i == 0 ? "; its device file is open in " : ", ", facts->openers[i].pid,
                             facts->openers[i].program, facts->openers[i].user);
}

static bool is_stranger(const struct gpu_process *process)
{
    return process->job_id == 0 && !process->is_gone;
}

/* The process to name in messages, preferably one that no job left. There is at least one. */
static const struct gpu_process *main_holder(const struct gpu_facts *facts)
{
    assert(facts->process_count > 0);
    for (uint32_t i = 0; i < facts->process_count && i < GPU_PROCESSES_MAX; i++)
        if (is_stranger(&facts->processes[i]))
            return &facts->processes[i];
    return &facts->processes[0];
}

static void quarantine(struct launcher *launcher, const struct gpu_facts *facts,
                       struct launcher_actions *actions)
{
    const struct launcher_slot *slot = &launcher->slots[facts->slot];
    char text[160];
    if (facts->process_count == 0 && !slot->has_baseline) {
        openers_text(facts, text, sizeof text);
        launcher_slot_close(launcher, facts->slot, SLOT_QUARANTINED, actions,
                            "%" PRIu64 " MiB are in use before the first job, an idle GPU uses at "
                            "most %" PRIu64 ", and NVML names no process%s",
                            facts->used_bytes / MIB, (uint64_t)GPU_FIRST_BYTES_MAX / MIB, text);
        return;
    }
    if (facts->process_count == 0) {
        openers_text(facts, text, sizeof text);
        launcher_slot_close(launcher, facts->slot, SLOT_QUARANTINED, actions,
                            "%" PRIu64 " MiB are in use, %" PRIu64
                            " MiB when idle, and NVML names no process%s",
                            facts->used_bytes / MIB, slot->baseline_bytes / MIB, text);
        return;
    }
    holder_text(main_holder(facts), text, sizeof text);
    if (facts->process_count > 1)
        launcher_slot_close(launcher, facts->slot, SLOT_QUARANTINED, actions, "%s, and %u more",
                            text, facts->process_count - 1);
    else
        launcher_slot_close(launcher, facts->slot, SLOT_QUARANTINED, actions, "%s", text);
}

static bool is_clean(const struct launcher_slot *slot, const struct gpu_facts *facts)
{
    if (facts->process_count > 0)
        return false;
    if (!slot->has_baseline)
        return facts->used_bytes <= GPU_FIRST_BYTES_MAX || facts->has_graphics;
    return facts->used_bytes <= slot->baseline_bytes + GPU_SLACK_BYTES;
}

/* The baseline is what an idle GPU uses: the first answer in a boot, and lower ones later. The
 * memory of a display belongs to it and may grow or shrink. */
static void learn_baseline(struct launcher *launcher, struct launcher_slot *slot,
                           const struct gpu_facts *facts)
{
    if (slot->has_baseline && facts->used_bytes + MIB > slot->baseline_bytes &&
        !facts->has_graphics)
        return;
    if (slot->has_baseline && facts->used_bytes == slot->baseline_bytes)
        return;
    slot->has_baseline = true;
    slot->baseline_bytes = facts->used_bytes;
    launcher->slots_dirty = true;
}

/* A slot is a whole GPU. If the GPU is divided (MIG), NVML's memory and processes do not show
 * whether it is free. */
static void refuse_mig(struct launcher *launcher, const struct gpu_facts *facts, uint64_t now_us,
                       struct launcher_actions *actions)
{
    launcher_slot_close(launcher, facts->slot, SLOT_QUARANTINED, actions,
                        "the GPU is in MIG mode, which is not supported: nvidia-smi -i N -mig 0 "
                        "turns it off");
    launcher->slots[facts->slot].next_ask_us = now_us + ASK_QUARANTINED_US;
}

static void evaluate_memory(struct launcher *launcher, const struct gpu_facts *facts,
                            uint64_t now_us, struct launcher_actions *actions)
{
    struct launcher_slot *slot = &launcher->slots[facts->slot];
    bool has_stranger = facts->process_count > 0 && is_stranger(main_holder(facts));
    /* The memory of a display may grow while the slot is idle. */
    bool is_unexplained = !slot->has_baseline && facts->process_count == 0;
    bool is_display = slot->state == SLOT_FREE && facts->has_graphics && facts->process_count == 0;

    if (is_clean(slot, facts) || is_display) {
        learn_baseline(launcher, slot, facts);
        launcher_slot_open(launcher, facts->slot, actions);
        slot->next_ask_us = now_us + launcher->options.gpu_timeout_us;
    } else if (slot->state == SLOT_CHECKING && !has_stranger && !is_unexplained &&
               now_us < slot->checking_us + launcher->options.gpu_timeout_us) {
        uint64_t wait_us = slot->asks < 6 ? (uint64_t)ASK_CHECKING_US << slot->asks : UINT64_MAX;
        slot->next_ask_us =
            now_us + (wait_us < ASK_CHECKING_MAX_US ? wait_us : ASK_CHECKING_MAX_US);
    } else {
        quarantine(launcher, facts, actions);
        slot->next_ask_us = now_us + ASK_QUARANTINED_US;
    }
}

/* True: NVML answered with an error, and the rest of the answer is void. */
static bool evaluate_error(struct launcher *launcher, const struct gpu_facts *facts,
                           uint64_t now_us, struct launcher_actions *actions)
{
    struct launcher_slot *slot = &launcher->slots[facts->slot];
    const struct fault *fault = facts->is_lost ? &fault_lost : &fault_needs_reset;
    if (facts->error == 0)
        return false;
    slot->next_ask_us = now_us + ASK_QUARANTINED_US;
    if (slot->state == SLOT_DRAINED)
        return true; /* the same fault, not a new incident */
    if (facts->is_lost || facts->needs_reset)
        launcher_slot_drain(launcher, facts->slot, fault, fault->text, now_us, actions);
    else
        launcher_slot_close(launcher, facts->slot, SLOT_UNKNOWN, actions,
                            "NVML answers with error %d (%s)", facts->error, facts->error_text);
    return true;
}

static void evaluate_ecc(struct launcher *launcher, const struct gpu_facts *facts, uint64_t now_us,
                         struct launcher_actions *actions)
{
    struct launcher_slot *slot = &launcher->slots[facts->slot];
    const struct fault *fault =
        slot->contained_seen ? &fault_ecc_contained : &fault_ecc_uncorrected;
    char what[128];
    if (!facts->has_ecc || (slot->has_ecc && facts->ecc_uncorrected == slot->ecc_uncorrected))
        return;
    if (slot->has_ecc && facts->ecc_uncorrected > slot->ecc_uncorrected) {
        (void)snprintf(what, sizeof what, "%" PRIu64 " new %s",
                       facts->ecc_uncorrected - slot->ecc_uncorrected, fault->text);
        launcher_slot_event(launcher, facts->slot, what, actions);
        if (fault_drains(fault->action))
            launcher_slot_drain(launcher, facts->slot, fault, what, now_us, actions);
        slot->contained_seen = false;
    }
    slot->has_ecc = true;
    slot->ecc_uncorrected = facts->ecc_uncorrected; /* reloading the driver sets it to 0 */
    launcher->slots_dirty = true;
}

static void evaluate_rows(struct launcher *launcher, const struct gpu_facts *facts, uint64_t now_us,
                          struct launcher_actions *actions)
{
    struct launcher_slot *slot = &launcher->slots[facts->slot];
    if (facts->remap_failed && !slot->remap_failed) {
        launcher_slot_event(launcher, facts->slot, fault_remap_failed.text, actions);
        launcher_slot_drain(launcher, facts->slot, &fault_remap_failed, fault_remap_failed.text,
                            now_us, actions);
    }
    if (facts->remap_pending && !slot->remap_pending)
        launcher_slot_event(launcher, facts->slot, fault_remap_pending.text, actions);
    launcher->slots_dirty = launcher->slots_dirty || slot->remap_failed != facts->remap_failed;
    slot->remap_failed = facts->remap_failed;
    slot->remap_pending = facts->remap_pending;
}

void launcher_on_gpu(struct launcher *launcher, const struct launcher_event *event,
                     struct launcher_actions *actions)
{
    const struct gpu_facts *facts = event->gpu;
    const uint64_t now_us = event->now_us;
    if (facts->slot >= launcher->options.gpus || facts->slot >= launcher->options.slots)
        return;
    struct launcher_slot *slot = &launcher->slots[facts->slot];
    if (slot->asked_us == 0 || facts->asked_us != slot->asked_us)
        return; /* the answer to an earlier question */
    slot->asked_us = 0;
    slot->next_ask_us = now_us + launcher->options.gpu_timeout_us;
    if (now_us >= facts->asked_us + launcher->options.gpu_timeout_us) {
        slot->next_ask_us = now_us; /* NVML hung: the answer may be as old as the question */
        return;
    }
    if (evaluate_error(launcher, facts, now_us, actions))
        return;
    evaluate_ecc(launcher, facts, now_us, actions);
    evaluate_rows(launcher, facts, now_us, actions);
    if (slot->state == SLOT_DRAINED)
        return;
    if (launcher_slot_in_use(launcher, facts->slot))
        launcher_slot_open(launcher, facts->slot, actions);
    else if (facts->has_mig)
        refuse_mig(launcher, facts, now_us, actions);
    else
        evaluate_memory(launcher, facts, now_us, actions);
}

/* The entry of the same number, else an empty one, else the oldest. */
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
    static const struct fault repeated = {.action = FAULT_DRAIN_RESET};
    struct launcher_slot *slot = launcher_slot_find(launcher, event->slot);
    const struct fault *fault = fault_of_xid(event->xid);
    char what[128];
    if (slot == NULL)
        return;
    struct launcher_xid *entry = xid_entry(slot, event->xid);
    bool same = entry->number == event->xid;
    assert(event->now_us >= entry->at_us);
    uint64_t age_us = event->now_us - entry->at_us;
    slot->contained_seen = slot->contained_seen || event->xid == FAULT_XID_CONTAINED;
    if (same && age_us < XID_BURST_US)
        return;
    *entry = (struct launcher_xid){event->xid, event->now_us};
    (void)snprintf(what, sizeof what, "Xid %u: %s", event->xid, fault->text);
    if (fault->action == FAULT_DRAIN_REPEATED && same && age_us < FAULT_REPEAT_US) {
        (void)snprintf(what, sizeof what, "Xid %u again: %s", event->xid, fault->text);
        fault = &repeated;
    }
    launcher_slot_event(launcher, event->slot, what, actions);
    if (fault_drains(fault->action))
        launcher_slot_drain(launcher, event->slot, fault, what, event->now_us, actions);
}
