/* Closed and drained slots in the server's core: nothing is placed there, and a job that
 * waits has the reason. */
#include "tests/unit/rendezvous/core_tools.h"

#include <stdio.h>
#include <string.h>

#include "tests/lib/test.h"

static const struct part_slot_closed none[1];

static void begin(void)
{
    begin_with(8, 4);
}

static bool was_logged(const char *text)
{
    for (uint32_t i = 0; i < actions.count; i++)
        if (actions.items[i].type == RDZV_LOG_EVENT && strcmp(actions.items[i].text, text) == 0)
            return true;
    return false;
}

static void hello(uint64_t conn, const char *name, uint32_t slots, uint32_t gpus,
                  const struct part_slot_closed *closed, uint32_t count)
{
    step_hello(conn, (struct msg_node_hello){.name = name,
                                             .instance = conn,
                                             .slots = slots,
                                             .gpus = gpus,
                                             .closed = {closed, count}});
}

static void beat(uint64_t conn, const struct part_beat_shim *shims, uint32_t shim_count,
                 const struct part_slot_closed *closed, uint32_t count)
{
    struct msg msg = {.type = MSG_TYPE_BEAT};

    msg.beat.sent_us = now_us;
    msg.beat.shims.items = shims;
    msg.beat.shims.count = shim_count;
    msg.beat.closed.items = closed;
    msg.beat.closed.count = count;
    step_node(conn, &msg);
}

static uint64_t submit(uint32_t nodes, uint32_t nproc)
{
    return step_submit((struct msg_submit){.nodes = nodes, .nproc_per_node = nproc});
}

static void report_ended(uint64_t conn, uint64_t job_id, uint32_t ranks)
{
    struct part_report_rank list[4] = {{0}};

    for (uint32_t i = 0; i < ranks; i++)
        list[i] = (struct part_report_rank){.rank = i, .state = RANK_EXITED};
    step_part_report(conn, job_id, 1, SHIM_ENDED, list, ranks);
}

static void operate(enum rdzv_event_type type, const char *name, uint64_t mask, const char *reason)
{
    struct msg msg = {.type = MSG_TYPE_NODE_DRAIN, .node_drain = {name, mask, reason}};

    if (type == RDZV_EVENT_NODE_RESUME)
        msg = (struct msg){.type = MSG_TYPE_NODE_RESUME, .node_resume = {name, mask}};
    step((struct rdzv_event){.type = type, .client = 9, .msg = &msg, .user = "ann"});
}

static uint64_t mask_of(uint64_t job_id)
{
    const struct rdzv_record *record = rdzv_job_record(core, job_id);

    return record == NULL || record->part_count == 0 ? 0 : record->parts[0].slot_mask;
}

static enum slot_state state_of(const char *node, uint32_t slot)
{
    struct part_slot slots[SLOTS_PER_NODE_MAX];
    uint32_t count = rdzv_node_slots(core, rdzv_node_after(core, node) - 1, true, slots);

    CHECK(slot < count);
    return slots[slot].state;
}

static void begin_empty(void)
{
    begin();
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 1});
}

TEST(closed_slots_are_left_out)
{
    const struct part_slot_closed closed[] = {
        {.slot = 0, .state = SLOT_QUARANTINED, .reason = "pid 4711 (python3 of bob) holds 5 MiB"}};
    uint64_t id;

    begin_empty();
    hello(1, "gpu1", 2, 2, closed, 1);
    CHECK(was_logged("node gpu1: slot 0 is quarantined: pid 4711 (python3 of bob) holds 5 MiB"));
    id = submit(1, 1);
    CHECK_EQ(mask_of(id), 2);
    id = submit(1, 1);
    CHECK_EQ(mask_of(id), 0);
    CHECK_STR(rdzv_job_record(core, id)->reason,
              "wants 1 slot on one node; 0 have them free, the best other has 0; slot 0 of gpu1 is "
              "quarantined: pid 4711 (python3 of bob) holds 5 MiB");
    CHECK_EQ(state_of("gpu1", 0), SLOT_QUARANTINED);
    CHECK_EQ(state_of("gpu1", 1), SLOT_BUSY);
    beat(1, NULL, 0, closed, 1);
    CHECK(!was_logged("node gpu1: slot 0 is quarantined: pid 4711 (python3 of bob) holds 5 MiB"));
    beat(1, NULL, 0, none, 0);
    CHECK(was_logged("node gpu1: slot 0 is open again"));
    CHECK_EQ(mask_of(id), 1);
}

/* The entry of a node that is lost goes to a new one, which has nothing of the old one's slots. */
TEST(a_new_node_in_an_old_place_has_open_slots)
{
    const struct part_slot_closed closed[] = {
        {.slot = 0, .state = SLOT_QUARANTINED, .reason = "held"},
        {.slot = 1, .state = SLOT_DRAINED, .incident = 5, .reason = "fault"}};
    struct part_slot slots[SLOTS_PER_NODE_MAX];

    begin_empty();
    hello(1, "gpu1", 2, 2, closed, 2);
    now_us += 15 * SECOND_US;
    step((struct rdzv_event){.type = RDZV_EVENT_TICK});
    for (uint64_t i = 2; i <= 5; i++) {
        char name[16];

        (void)snprintf(name, sizeof name, "gpu%u", (unsigned)i);
        hello(i, name, 2, 2, none, 0);
    }
    CHECK(!rdzv_has_node(core, "gpu1")); /* four have room */
    for (uint32_t i = 0; i < 4; i++) {
        CHECK_EQ(rdzv_node_slots(core, i, false, slots), 0);
        CHECK_EQ(rdzv_node_slots(core, i, true, slots), 2);
    }
    CHECK(mask_of(submit(4, 2)) == 3);
}

TEST(a_gpu_that_was_left_waits_for_its_nodes_word)
{
    const struct part_slot_closed checking[] = {{.slot = 0, .state = SLOT_CHECKING, .reason = ""}};
    uint64_t first, second;

    begin_empty();
    hello(1, "gpu1", 1, 1, none, 0);
    first = submit(1, 1);
    second = submit(1, 1);
    CHECK_EQ(mask_of(first), 1);
    report_ended(1, first, 1); /* no beat had ever listed it */
    CHECK_EQ(mask_of(second), 0);
    CHECK_EQ(state_of("gpu1", 0), SLOT_CHECKING);
    CHECK_STR(rdzv_job_record(core, second)->reason,
              "wants 1 slot on one node; 0 have them free, the best other has 0; slot 0 of gpu1 is "
              "being proved free after its last job");
    beat(1, NULL, 0, checking, 1);
    CHECK_EQ(mask_of(second), 0);
    CHECK(find(RDZV_LOG_EVENT) == NULL); /* the ordinary course is not logged */
    beat(1, NULL, 0, none, 0);
    CHECK_EQ(mask_of(second), 1);
}

TEST(a_cpu_share_that_was_left_is_free)
{
    uint64_t first, second;

    begin_empty();
    hello(1, "cpu1", 1, 0, none, 0);
    first = submit(1, 1);
    second = submit(1, 1);
    report_ended(1, first, 1);
    CHECK_EQ(mask_of(second), 1);
}

TEST(operators_drain_and_resume)
{
    uint64_t id;

    begin_empty();
    hello(1, "n1", 3, 0, none, 0);
    operate(RDZV_EVENT_NODE_DRAIN, "n1", 5, "fan is loud");
    CHECK(find(RDZV_PERSIST_DRAINS) != NULL);
    CHECK_STR(find(RDZV_REPLY_NODE)->text, "n1");
    CHECK(was_logged("node n1: slot 2 was drained by ann: fan is loud"));
    id = submit(1, 1);
    CHECK_EQ(mask_of(id), 2);
    id = submit(1, 2);
    CHECK_STR(rdzv_job_record(core, id)->reason,
              "wants 2 slots on one node; 0 have them free, the best other has 0; 2 slots are "
              "closed: slot 0 of n1 was drained by ann: fan is loud");
    operate(RDZV_EVENT_NODE_DRAIN, "n1", 0, "all of it");
    CHECK_STR(rdzv_job_record(core, id)->reason,
              "wants 2 slots on one node; 0 have them free, the best other has 0; 3 slots are "
              "closed: node n1 was drained by ann: all of it");
    operate(RDZV_EVENT_NODE_RESUME, "n1", 1, NULL);
    CHECK_EQ(mask_of(id), 0); /* the node as a whole is still drained */
    operate(RDZV_EVENT_NODE_RESUME, "n1", 0, NULL);
    CHECK_EQ(mask_of(id), 5);
    operate(RDZV_EVENT_NODE_DRAIN, "n9", 0, "x");
    CHECK_EQ(find(RDZV_REPLY_ERROR)->status, STATUS_NOT_FOUND);
    operate(RDZV_EVENT_NODE_DRAIN, "n1", 8, "x");
    CHECK_EQ(find(RDZV_REPLY_ERROR)->status, STATUS_BAD_INPUT);
    CHECK_STR(find(RDZV_REPLY_ERROR)->text, "node n1 has 3 slots, 0 to 2");
}

TEST(drains_outlive_the_server)
{
    const struct rdzv_drain drain = {
        .node = "n1", .slot = RDZV_WHOLE_NODE, .user = "ann", .reason = "fan", .at_ms = 5};
    uint32_t count;
    uint64_t id;

    begin();
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORE_DRAIN, .drain = &drain});
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 1});
    hello(1, "n1", 1, 0, none, 0);
    id = submit(1, 1);
    CHECK_EQ(mask_of(id), 0);
    CHECK_STR(rdzv_drains(core, &count)->reason, "fan");
    CHECK_EQ(count, 1);
}

TEST(a_drain_is_resumed_while_its_node_is_away)
{
    const struct rdzv_drain drains[] = {
        {.node = "n1", .slot = RDZV_WHOLE_NODE, .user = "ann", .reason = "fan", .at_ms = 5},
        {.node = "n1", .slot = 3, .user = "ann", .reason = "disk", .at_ms = 6},
        {.node = "n2", .slot = RDZV_WHOLE_NODE, .user = "ann", .reason = "fan", .at_ms = 5}};
    uint32_t count;

    begin();
    for (uint32_t i = 0; i < 3; i++)
        step((struct rdzv_event){.type = RDZV_EVENT_RESTORE_DRAIN, .drain = &drains[i]});
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 1});
    operate(RDZV_EVENT_NODE_RESUME, "n3", 0, NULL);
    CHECK_EQ(find(RDZV_REPLY_ERROR)->status, STATUS_NOT_FOUND);
    operate(RDZV_EVENT_NODE_RESUME, "n1", 8, NULL);
    CHECK(find(RDZV_REPLY_ERROR) == NULL);
    CHECK_STR(find(RDZV_REPLY_NODE)->text, "n1");
    (void)rdzv_drains(core, &count);
    CHECK_EQ(count, 2);
    operate(RDZV_EVENT_NODE_RESUME, "n1", 0, NULL);
    CHECK(find(RDZV_PERSIST_DRAINS) != NULL);
    CHECK(was_logged("node n1 was resumed by ann"));
    CHECK_STR(rdzv_drains(core, &count)->node, "n2");
    CHECK_EQ(count, 1);
    operate(RDZV_EVENT_NODE_RESUME, "n1", 0, NULL); /* it is not there, nor drained */
    CHECK_EQ(find(RDZV_REPLY_ERROR)->status, STATUS_NOT_FOUND);
    hello(1, "n1", 1, 0, none, 0);
    CHECK_EQ(mask_of(submit(1, 1)), 1);
}

TEST(a_resumed_fault_is_told_until_it_is_heard)
{
    struct part_slot_closed fault = {
        .slot = 1, .state = SLOT_DRAINED, .incident = 77, .reason = "Xid 79"};

    begin_empty();
    hello(1, "gpu1", 2, 2, &fault, 1);
    operate(RDZV_EVENT_NODE_RESUME, "gpu1", 1, NULL);
    CHECK(find(RDZV_SEND_SLOT_RESUME) == NULL); /* another slot */
    operate(RDZV_EVENT_NODE_RESUME, "gpu1", 2, NULL);
    CHECK_EQ(find(RDZV_SEND_SLOT_RESUME)->incident, 77);
    CHECK_EQ(find(RDZV_SEND_SLOT_RESUME)->slot, 1);
    beat(1, NULL, 0, &fault, 1);
    CHECK_EQ(find(RDZV_SEND_SLOT_RESUME)->incident, 77); /* it was lost */
    fault.incident = 78;
    beat(1, NULL, 0, &fault, 1);
    CHECK(find(RDZV_SEND_SLOT_RESUME) == NULL); /* a newer fault, which was not resumed */
    CHECK_EQ(state_of("gpu1", 1), SLOT_DRAINED);
}

TEST(a_fault_is_logged_with_the_job_on_the_slot)
{
    struct msg msg = {.type = MSG_TYPE_NODE_EVENT, .node_event = {0, "GPU 0: Xid 31: x"}};
    uint64_t id;

    begin_empty();
    hello(1, "gpu1", 1, 1, none, 0);
    id = submit(1, 1);
    step((struct rdzv_event){.type = RDZV_EVENT_NODE_MSG, .conn = 1, .msg = &msg});
    CHECK_EQ(find(RDZV_LOG_EVENT)->job_id, id);
    CHECK_STR(find(RDZV_LOG_EVENT)->text, "node gpu1: GPU 0: Xid 31: x");
}

TEST_MAIN
