/* What NVML's answer about one GPU means for its slot. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "launcherd/launcher_slots.h"

#define ASK_IDLE_US 5000000u        /* a slot of which nothing is expected */
#define ASK_QUARANTINED_US 1000000u /* open again soon after the holder is gone */
#define ASK_CHECKING_US 20000u      /* doubled with each question, to: */
#define ASK_CHECKING_MAX_US 500000u
#define MIB ((uint64_t)1 << 20)

/* "pid 4711 (python3 of bob) holds 1830 MiB" */
static void holder_words(const struct gpu_process *process, char *out, size_t out_bytes)
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

static void openers_words(const struct gpu_facts *facts, char *out, size_t out_bytes)
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

/* The one to name: a stranger before what a job left. */
static const struct gpu_process *main_holder(const struct gpu_facts *facts)
{
    for (uint32_t i = 0; i < facts->process_count && i < GPU_PROCESSES_MAX; i++)
        if (is_stranger(&facts->processes[i]))
            return &facts->processes[i];
    return &facts->processes[0];
}

static void quarantine(struct launcher *launcher, const struct gpu_facts *facts,
                       struct launcher_actions *actions)
{
    const struct launcher_slot *slot = &launcher->slots[facts->slot];
    char words[160];
    if (facts->process_count == 0) {
        openers_words(facts, words, sizeof words);
        launcher_slot_close(launcher, facts->slot, SLOT_QUARANTINED, actions,
                            "%" PRIu64 " MiB are in use, %" PRIu64
                            " MiB when idle, and NVML names no process%s",
                            facts->used_bytes / MIB, slot->baseline_bytes / MIB, words);
        return;
    }
    holder_words(main_holder(facts), words, sizeof words);
    if (facts->process_count > 1)
        launcher_slot_close(launcher, facts->slot, SLOT_QUARANTINED, actions, "%s, and %u more",
                            words, facts->process_count - 1);
    else
        launcher_slot_close(launcher, facts->slot, SLOT_QUARANTINED, actions, "%s", words);
}

static bool is_clean(const struct launcher_slot *slot, const struct gpu_facts *facts)
{
    return facts->process_count == 0 &&
           (!slot->has_baseline || facts->used_bytes <= slot->baseline_bytes + GPU_SLACK_BYTES);
}

/* The first look in a boot, and whatever is lower than that: the device with nobody on it. */
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

static void judge(struct launcher *launcher, const struct gpu_facts *facts, uint64_t now_us,
                  struct launcher_actions *actions)
{
    struct launcher_slot *slot = &launcher->slots[facts->slot];
    bool has_stranger = facts->process_count > 0 && is_stranger(main_holder(facts));
    /* a display's memory comes and goes while the slot is idle */
    bool is_display = slot->state == SLOT_FREE && facts->has_graphics && facts->process_count == 0;

    if (is_clean(slot, facts) || is_display) {
        learn_baseline(launcher, slot, facts);
        launcher_slot_open(launcher, facts->slot, actions);
        slot->next_ask_us = now_us + ASK_IDLE_US;
    } else if (slot->state == SLOT_CHECKING && !has_stranger &&
               now_us < slot->checking_us + GPU_CLEAN_US) {
        uint64_t wait_us = slot->asks < 6 ? (uint64_t)ASK_CHECKING_US << slot->asks : UINT64_MAX;
        slot->next_ask_us =
            now_us + (wait_us < ASK_CHECKING_MAX_US ? wait_us : ASK_CHECKING_MAX_US);
    } else {
        quarantine(launcher, facts, actions);
        slot->next_ask_us = now_us + ASK_QUARANTINED_US;
    }
}

/* True: nothing else of this answer is to be believed. */
static bool judge_error(struct launcher *launcher, const struct gpu_facts *facts, uint64_t now_us,
                        struct launcher_actions *actions)
{
    struct launcher_slot *slot = &launcher->slots[facts->slot];
    const struct fault *fault = facts->is_lost ? &fault_lost : &fault_needs_reset;
    if (facts->error == 0)
        return false;
    slot->next_ask_us = now_us + ASK_QUARANTINED_US;
    if (slot->state == SLOT_DRAINED)
        return true; /* as it was: no new incident */
    if (facts->is_lost || facts->needs_reset)
        launcher_slot_drain(launcher, facts->slot, fault, fault->words, now_us, actions);
    else
        launcher_slot_close(launcher, facts->slot, SLOT_UNKNOWN, actions,
                            "NVML answers with error %d (%s)", facts->error, facts->error_text);
    return true;
}

static void judge_ecc(struct launcher *launcher, const struct gpu_facts *facts, uint64_t now_us,
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
                       facts->ecc_uncorrected - slot->ecc_uncorrected, fault->words);
        launcher_slot_tell(launcher, facts->slot, what, actions);
        if (fault_drains(fault->action))
            launcher_slot_drain(launcher, facts->slot, fault, what, now_us, actions);
        slot->contained_seen = false;
    }
    slot->has_ecc = true;
    slot->ecc_uncorrected = facts->ecc_uncorrected; /* it falls when the driver is loaded again */
    launcher->slots_dirty = true;
}

static void judge_rows(struct launcher *launcher, const struct gpu_facts *facts, uint64_t now_us,
                       struct launcher_actions *actions)
{
    struct launcher_slot *slot = &launcher->slots[facts->slot];
    if (facts->remap_failed && !slot->remap_failed) {
        launcher_slot_tell(launcher, facts->slot, fault_remap_failed.words, actions);
        launcher_slot_drain(launcher, facts->slot, &fault_remap_failed, fault_remap_failed.words,
                            now_us, actions);
    }
    if (facts->remap_pending && !slot->remap_pending)
        launcher_slot_tell(launcher, facts->slot, fault_remap_pending.words, actions);
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
        return; /* of an older question */
    slot->asked_us = 0;
    slot->next_ask_us = now_us + ASK_IDLE_US;
    if (now_us >= facts->asked_us + GPU_SILENT_US) {
        slot->next_ask_us = now_us; /* it hung: what it saw may be as old as the question */
        return;
    }
    if (judge_error(launcher, facts, now_us, actions))
        return;
    judge_ecc(launcher, facts, now_us, actions);
    judge_rows(launcher, facts, now_us, actions);
    if (slot->state == SLOT_DRAINED)
        return;
    if (launcher_slot_in_use(launcher, facts->slot))
        launcher_slot_open(launcher, facts->slot, actions);
    else
        judge(launcher, facts, now_us, actions);
}
