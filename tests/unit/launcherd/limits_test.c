/* The launcher's core at its declared limits: all shims and all slots, with everything in one step.
 * Nothing overflows (launcher_add asserts), nothing is left out, and every message fits its
 * frame. */
#include <stdio.h>
#include <string.h>

#include "common/buf.h"
#include "launcherd/core/launcher.h"
#include "launcherd/node/slots_file.h"
#include "tests/lib/test.h"
#include "tests/unit/launcherd/core_step.h"

#define BEAT_US SECOND_US

static struct slots_record record;

static void step_type(enum launcher_event_type type)
{
    step((struct launcher_event){.type = type});
}

static uint32_t count_actions(enum launcher_action_type type)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < actions.count; i++)
        count += actions.items[i].type == type;
    return count;
}

static uint32_t count_sent(enum launcher_action_type to, enum msg_type type)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < actions.count; i++)
        count += actions.items[i].type == to && actions.items[i].msg.type == type;
    return count;
}

/* The edge drops and logs a message over the limits: no message may be over them. */
static void check_messages_fit(void)
{
    for (uint32_t i = 0; i < actions.count; i++) {
        const struct launcher_action *action = &actions.items[i];
        struct buf buf = {0};
        struct err err;
        if (action->type != LAUNCHER_SEND_SERVER && action->type != LAUNCHER_SEND_SHIM)
            continue;
        if (msg_encode(&action->msg, &buf, &err) != STATUS_OK)
            FAIL("%s: %s", msg_type_name(action->msg.type), err.text);
        buf_free(&buf);
    }
}

static void begin(void)
{
    static const struct launcher_options options = {.name = "n",
                                                    .boot_id = "boot",
                                                    .address = "127.0.0.1",
                                                    .version = "1",
                                                    .slots = SLOTS_PER_NODE_MAX,
                                                    .gpus = SLOTS_PER_NODE_MAX,
                                                    .instance = UINT64_MAX,
                                                    .gpu_timeout_us = LAUNCHER_GPU_TIMEOUT_US};
    now_us = 1000 * SECOND_US;
    launcher_init(&launcher, &options);
}

static uint64_t job_of(uint32_t i)
{
    return JOB_ID_MAX - i;
}

/* All the shims that a node can have, two for each slot: only adopted shims can share slots. */
static void adopt_all(const char *cluster)
{
    for (uint32_t i = 0; i < SHIMS_PER_NODE_MAX; i++) {
        struct launcher_shim shim = {.job_id = job_of(i),
                                     .generation = GENERATION_MAX,
                                     .phase = SHIM_RUNNING,
                                     .slot_mask = UINT64_C(1) << (i % SLOTS_PER_NODE_MAX),
                                     .rank_base = RANKS_PER_JOB_MAX - SLOTS_PER_NODE_MAX,
                                     .local_count = SLOTS_PER_NODE_MAX};
        (void)snprintf(shim.cluster, sizeof shim.cluster, "%s", cluster);
        step((struct launcher_event){.type = LAUNCHER_EVENT_ADOPT, .shim = &shim, .alive = true});
    }
    CHECK_EQ(launcher.shim_count, SHIMS_PER_NODE_MAX);
}

static void shim_event(uint32_t i, enum launcher_event_type type, const struct msg *msg)
{
    step((struct launcher_event){.type = type,
                                 .job_id = job_of(i),
                                 .generation = GENERATION_MAX,
                                 .msg = msg,
                                 .text = "was killed (signal 9)"});
}

static void open_shim(uint32_t i)
{
    struct msg hello = {.type = MSG_TYPE_SHIM_HELLO, .shim_hello = {.phase = SHIM_RUNNING}};
    shim_event(i, LAUNCHER_EVENT_SHIM_OPEN, &hello);
}

static void welcome(void)
{
    struct msg msg = {
        .type = MSG_TYPE_NODE_WELCOME,
        .node_welcome = {"one", (uint32_t)BEAT_US, 60 * SECOND_US, PROTOCOL_VERSION, ""}};
    step((struct launcher_event){.type = LAUNCHER_EVENT_SERVER_MSG, .msg = &msg});
}

TEST(a_tick_in_which_all_is_due)
{
    begin();
    adopt_all("one");
    for (uint32_t i = 0; i < SHIMS_PER_NODE_MAX; i++)
        open_shim(i);
    step_type(LAUNCHER_EVENT_ADOPTED);
    CHECK_EQ(count_actions(LAUNCHER_ASK_GPU), SLOTS_PER_NODE_MAX);
    step_type(LAUNCHER_EVENT_SERVER_OPEN);
    welcome();
    for (uint32_t i = 0; i < SHIMS_PER_NODE_MAX; i += 2)
        shim_event(i, LAUNCHER_EVENT_SHIM_CLOSED, NULL);
    launcher.silent_at_us = UINT64_MAX; /* the server answers */
    now_us += LAUNCHER_GPU_TIMEOUT_US;
    step_type(LAUNCHER_EVENT_TICK);
    CHECK_EQ(count_actions(LAUNCHER_CONNECT_SHIM), SHIMS_PER_NODE_MAX / 2);
    CHECK_EQ(count_sent(LAUNCHER_SEND_SHIM, MSG_TYPE_REPORT_REQUEST), SHIMS_PER_NODE_MAX / 2);
    CHECK_EQ(count_actions(LAUNCHER_LOG), SLOTS_PER_NODE_MAX); /* a line for each silent GPU */
    CHECK_EQ(count_sent(LAUNCHER_SEND_SERVER, MSG_TYPE_BEAT), 1);
    check_messages_fit();
    now_us = actions.timer_at_us > now_us ? actions.timer_at_us : now_us;
    step_type(LAUNCHER_EVENT_TICK); /* the states that changed after the beat */
    CHECK_EQ(count_sent(LAUNCHER_SEND_SERVER, MSG_TYPE_BEAT), 1);
    CHECK_EQ(actions.items[0].msg.beat.closed.count, SLOTS_PER_NODE_MAX);
    check_messages_fit();
}

TEST(a_welcome_to_a_full_node)
{
    begin();
    adopt_all("one");
    for (uint32_t i = 0; i < SHIMS_PER_NODE_MAX; i++)
        open_shim(i);
    step_type(LAUNCHER_EVENT_ADOPTED);
    step_type(LAUNCHER_EVENT_SERVER_OPEN);
    check_messages_fit();
    launcher.slots_dirty = true;
    now_us += LAUNCHER_GPU_TIMEOUT_US;
    welcome();
    CHECK_EQ(count_sent(LAUNCHER_SEND_SHIM, MSG_TYPE_LEASE), SHIMS_PER_NODE_MAX);
    CHECK_EQ(count_sent(LAUNCHER_SEND_SHIM, MSG_TYPE_REPORT_REQUEST), SHIMS_PER_NODE_MAX);
    CHECK_EQ(count_actions(LAUNCHER_LOG), SLOTS_PER_NODE_MAX);
    CHECK_EQ(count_actions(LAUNCHER_SAVE_SLOTS), 1);
    check_messages_fit();
}

/* The last shim dies before any report is acknowledged. The step sends its report, and a beat,
 * since the slot has changed; with the beat it sends the reports of all shims. */
TEST(all_shims_dead_and_none_acknowledged)
{
    begin();
    adopt_all("one");
    step_type(LAUNCHER_EVENT_ADOPTED);
    step_type(LAUNCHER_EVENT_SERVER_OPEN);
    welcome();
    for (uint32_t i = 0; i < SHIMS_PER_NODE_MAX; i++)
        shim_event(i, LAUNCHER_EVENT_SHIM_GONE, NULL);
    CHECK_EQ(count_sent(LAUNCHER_SEND_SERVER, MSG_TYPE_SHIM_REPORT), SHIMS_PER_NODE_MAX + 1);
    check_messages_fit();
    now_us += BEAT_US;
    step_type(LAUNCHER_EVENT_TICK);
    CHECK_EQ(count_sent(LAUNCHER_SEND_SERVER, MSG_TYPE_SHIM_REPORT), SHIMS_PER_NODE_MAX);
}

TEST(a_node_full_of_another_servers_dead_takes_a_job)
{
    struct msg start = {.type = MSG_TYPE_START};
    begin();
    adopt_all("two");
    step_type(LAUNCHER_EVENT_ADOPTED);
    step_type(LAUNCHER_EVENT_SERVER_OPEN);
    welcome();
    for (uint32_t i = 0; i < SHIMS_PER_NODE_MAX; i++)
        shim_event(i, LAUNCHER_EVENT_SHIM_GONE, NULL);
    start.start = (struct msg_start){.cluster = "one",
                                     .job_id = 1,
                                     .generation = 1,
                                     .world = 1,
                                     .local_count = 1,
                                     .slot_mask = 1};
    step((struct launcher_event){.type = LAUNCHER_EVENT_SERVER_MSG, .msg = &start});
    CHECK_EQ(count_actions(LAUNCHER_REMOVE), 1);
    CHECK(launcher_find(&launcher, 1, 1) != NULL);
}

TEST(a_run_directory_too_many_is_logged)
{
    struct launcher_shim shim = {.job_id = 1, .generation = 1, .slot_mask = 1, .local_count = 1};
    begin();
    adopt_all("one");
    step((struct launcher_event){.type = LAUNCHER_EVENT_ADOPT, .shim = &shim, .alive = true});
    CHECK_EQ(actions.count, 1);
    CHECK_STR(actions.items[0].text, "job 1, generation 1 is not adopted: this node has 128 shims, "
                                     "as many as it can have");
}

/* The longest reason for every slot, in characters that JSON must escape. */
TEST(every_slot_drained_for_the_longest_reason)
{
    struct slots_record read;
    struct buf buf = {0};
    struct err err;
    begin();
    record = (struct slots_record){.boot_id = "boot", .count = SLOTS_PER_NODE_MAX};
    for (uint32_t i = 0; i < SLOTS_PER_NODE_MAX; i++) {
        record.slots[i] =
            (struct slot_record){.slot = i, .incident = UINT64_MAX, .baseline_bytes = UINT64_MAX};
        memset(record.slots[i].reason, '"', REASON_BYTES_MAX - 1);
    }
    step((struct launcher_event){.type = LAUNCHER_EVENT_SLOTS_LOADED, .slots = &record});
    adopt_all("one");
    step_type(LAUNCHER_EVENT_ADOPTED);
    step_type(LAUNCHER_EVENT_SERVER_OPEN);
    CHECK_EQ(count_sent(LAUNCHER_SEND_SERVER, MSG_TYPE_NODE_HELLO), 1);
    check_messages_fit();
    launcher.slots_dirty = true;
    welcome();
    CHECK_EQ(count_sent(LAUNCHER_SEND_SERVER, MSG_TYPE_BEAT), 1);
    check_messages_fit();
    CHECK_EQ(count_actions(LAUNCHER_SAVE_SLOTS), 1);
    CHECK(slots_file_encode(&actions.slots, &buf, &err) == STATUS_OK);
    CHECK(slots_file_decode(buf.bytes, buf.byte_count, &read, &err) == STATUS_OK);
    CHECK_EQ(read.count, SLOTS_PER_NODE_MAX);
    for (uint32_t i = 0; i < SLOTS_PER_NODE_MAX; i++) {
        CHECK_EQ(read.slots[i].incident, UINT64_MAX);
        CHECK_STR(read.slots[i].reason, record.slots[i].reason);
    }
    buf_free(&buf);
}

/* The answer of NVML that causes the most actions: counters, rows and processes at once. */
TEST(one_answer_with_every_fault)
{
    struct gpu_facts facts = {.has_ecc = true, .used_bytes = 500};
    begin();
    step_type(LAUNCHER_EVENT_ADOPTED);
    facts.asked_us = launcher.slots[0].asked_us;
    step((struct launcher_event){.type = LAUNCHER_EVENT_GPU, .gpu = &facts});
    step_type(LAUNCHER_EVENT_SERVER_OPEN);
    welcome();
    now_us += LAUNCHER_GPU_TIMEOUT_US;
    step_type(LAUNCHER_EVENT_TICK);
    facts = (struct gpu_facts){.asked_us = launcher.slots[0].asked_us,
                               .has_ecc = true,
                               .ecc_uncorrected = UINT64_MAX,
                               .remap_failed = true,
                               .remap_pending = true,
                               .used_bytes = UINT64_MAX,
                               .process_count = UINT32_MAX,
                               .processes = {{.pid = UINT32_MAX, .bytes = UINT64_MAX}}};
    step((struct launcher_event){.type = LAUNCHER_EVENT_GPU, .gpu = &facts});
    CHECK_EQ(count_sent(LAUNCHER_SEND_SERVER, MSG_TYPE_NODE_EVENT), 3);
    CHECK(launcher.slots[0].state == SLOT_DRAINED);
    CHECK_EQ(count_actions(LAUNCHER_SAVE_SLOTS), 1);
    check_messages_fit();
}

TEST_MAIN
