/* The launcher's core and its GPUs: how each answer of NVML changes a slot. */
#include <stdio.h>
#include <string.h>

#include "launcherd/core/fault.h"
#include "launcherd/core/launcher.h"
#include "tests/lib/test.h"
#include "tests/unit/launcherd/core_step.h"

#define MIB (1ull << 20)

static const struct launcher_action *find(enum launcher_action_type type)
{
    for (uint32_t i = 0; i < actions.count; i++)
        if (actions.items[i].type == type)
            return &actions.items[i];
    return NULL;
}

static const struct msg *sent(enum msg_type type)
{
    for (uint32_t i = 0; i < actions.count; i++)
        if (actions.items[i].type == LAUNCHER_SEND_SERVER && actions.items[i].msg.type == type)
            return &actions.items[i].msg;
    return NULL;
}

static bool was_asked(uint32_t slot)
{
    for (uint32_t i = 0; i < actions.count; i++)
        if (actions.items[i].type == LAUNCHER_ASK_GPU && actions.items[i].slot == slot)
            return true;
    return false;
}

static void tick(uint64_t after_us)
{
    now_us += after_us;
    step((struct launcher_event){.type = LAUNCHER_EVENT_TICK});
}

/* An answer to the open question, or to one asked at `asked_us`. */
static void answer_to(uint64_t asked_us, struct gpu_facts facts)
{
    facts.asked_us = asked_us;
    step((struct launcher_event){.type = LAUNCHER_EVENT_GPU, .gpu = &facts});
}

static void answer(struct gpu_facts facts)
{
    answer_to(launcher.slots[facts.slot].asked_us, facts);
}

static struct gpu_facts idle(uint32_t slot)
{
    return (struct gpu_facts){.slot = slot, .used_bytes = 500 * MIB};
}

static struct gpu_facts held(uint64_t job_id, bool is_gone)
{
    struct gpu_facts facts = {.used_bytes = 2500 * MIB, .process_count = 1};
    facts.processes[0] = (struct gpu_process){.pid = 4711,
                                              .bytes = 2000 * MIB,
                                              .job_id = job_id,
                                              .is_gone = is_gone,
                                              .program = "python3",
                                              .user = "bob"};
    return facts;
}

static void server(struct msg msg)
{
    step((struct launcher_event){.type = LAUNCHER_EVENT_SERVER_MSG, .msg = &msg});
}

static void begin_kept(const struct slots_record *kept)
{
    struct launcher_options options = {.name = "n",
                                       .boot_id = "boot",
                                       .slots = 3,
                                       .gpus = 2,
                                       .instance = 1,
                                       .gpu_timeout_us = LAUNCHER_GPU_TIMEOUT_US};
    now_us = 100 * SECOND_US;
    launcher_init(&launcher, &options);
    if (kept != NULL)
        step((struct launcher_event){.type = LAUNCHER_EVENT_SLOTS_LOADED, .slots = kept});
    step((struct launcher_event){.type = LAUNCHER_EVENT_ADOPTED});
}

static void welcome(void)
{
    step((struct launcher_event){.type = LAUNCHER_EVENT_SERVER_OPEN});
    server((struct msg){
        .type = MSG_TYPE_NODE_WELCOME,
        .node_welcome = {"one", (uint32_t)SECOND_US, 60 * SECOND_US, PROTOCOL_VERSION, ""}});
}

/* Both GPUs are proved free, and the server is connected. */
static void begin(void)
{
    begin_kept(NULL);
    answer(idle(0));
    answer(idle(1));
    welcome();
}

static void start(uint64_t job_id, uint64_t mask)
{
    struct msg msg = {.type = MSG_TYPE_START};
    msg.start = (struct msg_start){.cluster = "one",
                                   .job_id = job_id,
                                   .generation = 1,
                                   .local_count = (uint32_t)__builtin_popcountll(mask),
                                   .world = 1,
                                   .slot_mask = mask};
    server(msg);
}

static void end_job(uint64_t job_id)
{
    struct msg msg = {.type = MSG_TYPE_SHIM_REPORT};
    msg.shim_report = (struct msg_shim_report){.job_id = job_id,
                                               .generation = 1,
                                               .revision = 1,
                                               .phase = SHIM_ENDED,
                                               .failed_rank = -1,
                                               .cause = "",
                                               .tail = ""};
    step((struct launcher_event){
        .type = LAUNCHER_EVENT_SHIM_MSG, .job_id = job_id, .generation = 1, .msg = &msg});
}

static void xid(uint32_t slot, uint32_t number)
{
    step((struct launcher_event){.type = LAUNCHER_EVENT_XID, .slot = slot, .xid = number});
}

static void check_slot(uint32_t slot, enum slot_state state, const char *reason)
{
    CHECK_STR(slot_state_name(launcher.slots[slot].state), slot_state_name(state));
    CHECK_STR(launcher.slots[slot].reason, reason);
}

TEST(gpus_are_proved_free_before_the_first_job)
{
    begin_kept(NULL);
    CHECK(was_asked(0) && was_asked(1) && !was_asked(2)); /* slot 2 has no GPU */
    CHECK(launcher.slots[0].state == SLOT_CHECKING);
    answer(idle(0));
    check_slot(0, SLOT_FREE, "");
    CHECK(find(LAUNCHER_SAVE_SLOTS) != NULL); /* its baseline */
    CHECK_EQ(launcher.slots[0].baseline_bytes, 500 * MIB);
    step((struct launcher_event){.type = LAUNCHER_EVENT_SERVER_OPEN});
    CHECK_EQ(sent(MSG_TYPE_NODE_HELLO)->node_hello.closed.count, 1);
    CHECK_EQ(sent(MSG_TYPE_NODE_HELLO)->node_hello.closed.items[0].slot, 1);
}

TEST(after_a_job_its_gpu_is_proved_free)
{
    begin();
    start(1, 1);
    CHECK(find(LAUNCHER_SPAWN_SHIM) != NULL);
    end_job(1);
    CHECK(was_asked(0));
    CHECK(find(LAUNCHER_ASK_GPU)->bytes_max == 564 * MIB);
    CHECK_EQ(sent(MSG_TYPE_BEAT)->beat.closed.items[0].state, SLOT_CHECKING);
    start(2, 1); /* the slot is still being checked */
    CHECK_STR(sent(MSG_TYPE_SHIM_REPORT)->shim_report.cause, "slot 0 of node n is checking");
    answer(held(1, true)); /* the process is ending */
    check_slot(0, SLOT_CHECKING, "");
    tick(SECOND_US / 2);
    CHECK(was_asked(0));
    answer(idle(0));
    check_slot(0, SLOT_FREE, "");
    CHECK_EQ(sent(MSG_TYPE_BEAT)->beat.closed.count, 0); /* at once */
    start(3, 1);
    CHECK(find(LAUNCHER_SPAWN_SHIM) != NULL);
}

TEST(a_gpu_of_processes_that_cannot_be_killed_is_drained)
{
    begin();
    start(1, 1);
    step((struct launcher_event){.type = LAUNCHER_EVENT_SHIM_EXITED, .job_id = 1, .generation = 1});
    tick(LAUNCHER_UNKILLABLE_US);
    CHECK_STR(sent(MSG_TYPE_SHIM_REPORT)->shim_report.cause,
              "processes of job 1 do not die of SIGKILL on n, and are left alone");
    check_slot(0, SLOT_DRAINED, "processes of job 1 do not die of SIGKILL; restart the machine");
    check_slot(1, SLOT_FREE, "");
}

TEST(an_answer_from_before_the_end_is_ignored)
{
    uint64_t asked_us;
    begin();
    tick(6 * SECOND_US);
    CHECK(was_asked(0));
    asked_us = launcher.slots[0].asked_us;
    now_us += 1000;
    start(1, 1);
    now_us += 1000;
    end_job(1);
    answer_to(asked_us, idle(0));
    check_slot(0, SLOT_CHECKING, "");
    answer(idle(0));
    check_slot(0, SLOT_FREE, "");
}

TEST(the_remaining_process_is_named)
{
    begin();
    start(1, 1);
    end_job(1);
    answer(held(1, false));
    check_slot(0, SLOT_CHECKING, "");
    tick(6 * SECOND_US);
    answer(held(1, false));
    check_slot(0, SLOT_QUARANTINED, "pid 4711 (python3 of bob, job 1) holds 2000 MiB");
    tick(2 * SECOND_US);
    answer(held(1, true));
    check_slot(0, SLOT_QUARANTINED, "pid 4711 (gone, or in another container) holds 2000 MiB");
    tick(2 * SECOND_US);
    CHECK(was_asked(0));
    struct gpu_facts leak = {.used_bytes = 2500 * MIB, .opener_count = 1};
    leak.openers[0] = (struct gpu_process){.pid = 7, .program = "top", .user = "eve"};
    answer(leak);
    check_slot(0, SLOT_QUARANTINED,
               "2500 MiB are in use, 500 MiB when idle, and NVML names no process; its device file "
               "is open in pid 7 (top of eve)");
    tick(2 * SECOND_US);
    answer((struct gpu_facts){.used_bytes = 563 * MIB});
    check_slot(0, SLOT_FREE, "");
    CHECK_EQ(launcher.slots[0].baseline_bytes, 500 * MIB);
}

/* Memory of a process that NVML does not see, for example in another container, does not become the
 * baseline. */
TEST(much_memory_at_the_first_look_is_no_baseline)
{
    struct gpu_facts used = {.used_bytes = 40000 * MIB, .opener_count = 1};
    used.openers[0] = (struct gpu_process){.pid = 7, .program = "top", .user = "eve"};
    begin_kept(NULL);
    CHECK(find(LAUNCHER_ASK_GPU)->bytes_max == 2048 * MIB); /* above that, openers are searched */
    answer(used);
    check_slot(0, SLOT_QUARANTINED,
               "40000 MiB are in use before the first job, an idle GPU uses at most 2048, and NVML "
               "names no process; its device file is open in pid 7 (top of eve)");
    CHECK(!launcher.slots[0].has_baseline);
    tick(2 * SECOND_US);
    CHECK(find(LAUNCHER_ASK_GPU)->bytes_max == 2048 * MIB);
    answer((struct gpu_facts){.used_bytes = 2048 * MIB});
    check_slot(0, SLOT_FREE, "");
    CHECK_EQ(launcher.slots[0].baseline_bytes, 2048 * MIB);
    answer((struct gpu_facts){.slot = 1, .used_bytes = 3000 * MIB, .has_graphics = true});
    check_slot(1, SLOT_FREE, ""); /* a display uses this much */
}

TEST(mig_mode_is_refused_by_name)
{
    begin_kept(NULL);
    answer((struct gpu_facts){.has_mig = true});
    check_slot(0, SLOT_QUARANTINED,
               "the GPU is in MIG mode, which is not supported: nvidia-smi -i N -mig 0 turns it "
               "off");
    CHECK(!launcher.slots[0].has_baseline);
    tick(2 * SECOND_US);
    CHECK(was_asked(0));
    answer(idle(0));
    check_slot(0, SLOT_FREE, "");
    welcome();
    answer(idle(1));
    start(1, 1);
    tick(6 * SECOND_US);
    answer((struct gpu_facts){.has_mig = true}); /* a job that runs there is left alone */
    check_slot(0, SLOT_FREE, "");
}

TEST(a_stranger_is_named_at_once)
{
    struct gpu_facts two = held(0, false);
    begin();
    tick(6 * SECOND_US); /* idle GPUs are queried periodically */
    two.process_count = 2;
    two.processes[1] = two.processes[0];
    two.processes[0].job_id = 9;
    answer(two);
    check_slot(0, SLOT_QUARANTINED, "pid 4711 (python3 of bob) holds 2000 MiB, and 1 more");
    CHECK_EQ(sent(MSG_TYPE_BEAT)->beat.closed.count, 1);
    start(1, 1);
    CHECK_STR(sent(MSG_TYPE_SHIM_REPORT)->shim_report.cause,
              "slot 0 of node n is quarantined: pid 4711 (python3 of bob) holds 2000 MiB, and 1 "
              "more");
}

TEST(a_hanging_nvml_is_unknown_and_nothing_else_stops)
{
    uint64_t asked_us;
    begin();
    tick(6 * SECOND_US);
    asked_us = launcher.slots[1].asked_us;
    tick(5 * SECOND_US);
    check_slot(1, SLOT_UNKNOWN, "NVML has not answered for 5 s: the driver hangs, or the GPU does");
    CHECK(sent(MSG_TYPE_BEAT) != NULL);
    tick(60 * SECOND_US);
    CHECK(!was_asked(1)); /* one question is enough */
    answer_to(asked_us, idle(1));
    CHECK(launcher.slots[1].state == SLOT_UNKNOWN); /* the answer is a minute old */
    CHECK(was_asked(1));
    answer(idle(1));
    check_slot(1, SLOT_FREE, "");
}

TEST(an_error_of_nvml_is_unknown)
{
    struct gpu_facts facts = {.error = 9, .error_text = "Driver Not Loaded"};
    begin();
    tick(6 * SECOND_US);
    answer(facts);
    check_slot(0, SLOT_UNKNOWN, "NVML answers with error 9 (Driver Not Loaded)");
    tick(2 * SECOND_US);
    answer(idle(0));
    check_slot(0, SLOT_FREE, "");
    tick(6 * SECOND_US);
    facts = (struct gpu_facts){.error = 15, .is_lost = true, .error_text = "GPU is lost"};
    answer(facts);
    check_slot(0, SLOT_DRAINED, "the GPU has fallen off the bus; restart the machine");
    tick(2 * SECOND_US);
    answer(facts);
    CHECK(find(LAUNCHER_SAVE_SLOTS) == NULL && sent(MSG_TYPE_BEAT) == NULL); /* still the same */
}

TEST(xids_by_the_table)
{
    begin();
    xid(0, 31);
    CHECK_STR(sent(MSG_TYPE_NODE_EVENT)->node_event.text,
              "GPU 0: Xid 31: a memory page fault, mostly a bad access of the program");
    check_slot(0, SLOT_FREE, "");
    xid(0, 31); /* of the same burst */
    CHECK(sent(MSG_TYPE_NODE_EVENT) == NULL);
    xid(0, 79);
    check_slot(0, SLOT_DRAINED, "Xid 79: the GPU has fallen off the bus; restart the machine");
    CHECK_EQ(find(LAUNCHER_SAVE_SLOTS)->slots->slots[0].incident, now_us);
    CHECK_EQ(sent(MSG_TYPE_BEAT)->beat.closed.items[0].incident, now_us);
    xid(1, 12345);
    check_slot(1, SLOT_DRAINED,
               "Xid 12345: a fault that is not in the table; reset the GPU, then resume the slot");
    answer(held(0, false));
    CHECK(launcher.slots[0].state == SLOT_DRAINED); /* whatever the answer is */
    xid(2, 79);                                     /* this slot has no GPU */
    CHECK_EQ(actions.count, 0);
}

TEST(xid_109_drains_when_it_repeats)
{
    begin();
    for (uint32_t i = 0; i < 100; i++) { /* numbers alternate within a burst */
        xid(0, 109);
        CHECK_EQ(sent(MSG_TYPE_NODE_EVENT) != NULL, i == 0);
        xid(0, 45);
        CHECK_EQ(sent(MSG_TYPE_NODE_EVENT) != NULL, i == 0);
    }
    check_slot(0, SLOT_FREE, "");
    now_us += 20 * SECOND_US;
    xid(0, 109);
    check_slot(0, SLOT_DRAINED,
               "Xid 109 again: a context switch timed out; reset the GPU, then resume the slot");
}

TEST(memory_errors_drain_unless_contained)
{
    struct gpu_facts facts = idle(0);
    facts.has_ecc = true;
    facts.ecc_uncorrected = 3; /* from before launcherd started */
    begin();
    tick(6 * SECOND_US);
    answer(facts);
    check_slot(0, SLOT_FREE, "");
    xid(0, 94);
    facts.ecc_uncorrected = 4;
    tick(6 * SECOND_US);
    answer(facts);
    check_slot(0, SLOT_FREE, "");
    CHECK_STR(sent(MSG_TYPE_NODE_EVENT)->node_event.text,
              "GPU 0: 1 new uncorrectable memory errors (ECC), contained (Xid 94)");
    facts.ecc_uncorrected = 6;
    tick(6 * SECOND_US);
    answer(facts);
    check_slot(0, SLOT_DRAINED,
               "2 new uncorrectable memory errors (ECC); reset the GPU, then resume the slot");
    facts = idle(1);
    facts.remap_failed = true;
    answer(facts); /* the answer is late, so the question is repeated */
    CHECK(was_asked(1));
    answer(facts);
    check_slot(1, SLOT_DRAINED,
               "a memory row could not be remapped; reset the GPU, then resume the slot");
}

TEST(a_drained_slot_keeps_its_job_and_is_resumed_by_its_incident)
{
    uint64_t incident;
    begin();
    start(1, 1);
    xid(0, 48);
    incident = now_us;
    CHECK(launcher_find(&launcher, 1, 1) != NULL);
    end_job(1);
    CHECK(launcher.slots[0].state == SLOT_DRAINED);
    now_us += SECOND_US;
    xid(0, 95); /* before the resume of the first fault has arrived */
    CHECK_EQ(sent(MSG_TYPE_BEAT)->beat.closed.items[0].incident, now_us);
    server((struct msg){.type = MSG_TYPE_SLOT_RESUME, .slot_resume = {0, incident}});
    check_slot(0, SLOT_DRAINED,
               "Xid 48: an uncorrectable memory error (double-bit ECC); reset the GPU, then resume "
               "the slot");
    incident = now_us;
    server((struct msg){.type = MSG_TYPE_SLOT_RESUME, .slot_resume = {0, incident}});
    check_slot(0, SLOT_CHECKING, "");
    CHECK(was_asked(0));
    CHECK_EQ(find(LAUNCHER_SAVE_SLOTS)->slots->slots[0].incident, 0);
    answer(idle(0));
    check_slot(0, SLOT_FREE, "");
}

TEST(drained_slots_and_baselines_outlive_launcherd_but_not_the_boot)
{
    struct slots_record kept = {
        .boot_id = "boot",
        .count = 3,
        .slots = {{.slot = 0, .has_baseline = true, .baseline_bytes = 100 * MIB},
                  {.slot = 1, .incident = 7, .reason = "Xid 79"},
                  {.slot = 60, .incident = 7, .reason = "of a larger machine"}}};
    begin_kept(&kept);
    check_slot(1, SLOT_DRAINED, "Xid 79");
    answer(idle(0)); /* more than the baseline, after a job that ended while launcherd was not
                      * running */
    check_slot(0, SLOT_CHECKING, "");
    tick(6 * SECOND_US);
    answer(idle(0));
    check_slot(0, SLOT_QUARANTINED,
               "500 MiB are in use, 100 MiB when idle, and NVML names no process");
    (void)snprintf(kept.boot_id, sizeof kept.boot_id, "another");
    begin_kept(&kept);
    check_slot(1, SLOT_CHECKING, "");
    answer(idle(0));
    check_slot(0, SLOT_FREE, "");
}

TEST(a_display_has_its_own_memory)
{
    struct gpu_facts facts = idle(0);
    begin();
    facts.has_graphics = true;
    facts.used_bytes = 900 * MIB;
    tick(6 * SECOND_US);
    answer(facts);
    check_slot(0, SLOT_FREE, "");
    CHECK_EQ(launcher.slots[0].baseline_bytes, 900 * MIB);
    facts.has_graphics = false;
    facts.used_bytes = 1900 * MIB;
    tick(6 * SECOND_US);
    answer(facts);
    CHECK(launcher.slots[0].state == SLOT_QUARANTINED);
}

TEST(the_timer_never_spins)
{
    begin();
    for (uint32_t i = 0; i < 200; i++) {
        CHECK(actions.timer_at_us > now_us);
        if (actions.timer_at_us == UINT64_MAX)
            break;
        now_us = actions.timer_at_us;
        step((struct launcher_event){.type = LAUNCHER_EVENT_TICK});
        if (i == 50)
            xid(0, 79);
    }
}

TEST_MAIN
