/* Launcherds that say they are node a, for the tests of identity.h. Node b is another one, and free. */
#ifndef TESTS_UNIT_RENDEZVOUS_IDENTITY_TOOLS_H
#define TESTS_UNIT_RENDEZVOUS_IDENTITY_TOOLS_H

#include <string.h>

#include "tests/lib/test.h"
#include "tests/unit/rendezvous/core_tools.h"

#define LEASE_US (60 * SECOND_US - LEASE_MARGIN_US) /* with it whole seconds */

/* A launcherd that says it is node a: on a machine, with a state directory, in a boot. */
struct who {
    const char *machine, *state, *boot;
    uint64_t up_us; /* since its kernel started; 0: it does not say */
};
static const struct who first = {"m1", "s1", "b1", 0}, other_machine = {"m2", "s2", "b2", 0},
                        copied_state = {"m2", "s1", "b2", 0}, other_state = {"m1", "s2", "b1", 0},
                        rebooted = {"m1", "s2", "b2", 1}, silent = {"", "", "b1", 0};

static inline void hello_as(uint64_t conn, struct who who, const struct part_beat_shim *shims,
                            uint32_t count)
{
    step_hello(conn, (struct msg_node_hello){.name = "a",
                                             .machine_id = who.machine,
                                             .state_id = who.state,
                                             .boot_id = who.boot,
                                             .instance = conn,
                                             .pid = (uint32_t)conn,
                                             .slots = 1,
                                             .up_us = who.up_us,
                                             .shims = {shims, count}});
}

static inline bool is_welcome(void)
{
    return count_of(RDZV_SEND_WELCOME) == 1;
}

/* Refused, and to be tried again: the edge makes "unreachable" of this status. */
static inline bool has_to_wait(void)
{
    return count_of(RDZV_SEND_WELCOME) == 0 && count_of(RDZV_CLOSE_NODE) == 1 &&
           find(RDZV_CLOSE_NODE)->status == STATUS_PEER_LOST;
}

static inline void report(uint64_t conn, enum shim_phase phase, bool joined)
{
    step_rank_report(conn, (struct rank_report){.job_id = 1, .phase = phase, .joined = joined});
}

/* Job 1 runs on node a, connection 1; b is free. */
static inline void run_as(struct who who, bool joined)
{
    begin_leased(4, 3, LEASE_US);
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 1});
    hello_as(1, who, NULL, 0);
    CHECK_EQ(step_submit((struct msg_submit){.nodes = 1, .nproc_per_node = 1, .max_restarts = 3}),
             1);
    report(1, SHIM_READY, false);
    report(1, SHIM_RUNNING, joined);
    step_hello(2, (struct msg_node_hello){.name = "b", .instance = 2, .slots = 1});
}

static inline void pass(uint64_t seconds)
{
    for (uint64_t i = 0; i < seconds; i++) {
        now_us += SECOND_US;
        wall_ms += 1000;
        step_beat(2, NULL, 0);
    }
}

static inline void check(enum job_state state, uint32_t generation)
{
    CHECK_EQ(rdzv_job_record(core, 1)->state, state);
    CHECK_EQ(rdzv_job_record(core, 1)->generation, generation);
}

/* The part is gone with its node, whose failure is followed by a short back-off. */
static inline void check_gone(void)
{
    CHECK(is_welcome());
    check(JOB_RESTARTING, 1);
    pass(1);
    check(JOB_STARTING, 2);
}

static inline struct part_node node_a(void)
{
    struct part_node node;

    rdzv_node_at(core, 0, now_us, &node);
    CHECK_STR(node.name, "a");
    return node;
}

static inline void close_a(void)
{
    step((struct rdzv_event){.type = RDZV_EVENT_NODE_CLOSED, .conn = 1});
}

/* The launcherd of connection 3 beats each second and lists nothing: the job runs until that beat, and starts
 * anew with it. */
static inline void runs_until_beat(uint32_t count)
{
    for (uint32_t i = 1; i < count; i++) {
        pass(1);
        step_beat(3, NULL, 0);
        check(JOB_RUNNING, 1);
    }
    pass(1);
    step_beat(3, NULL, 0);
    check(JOB_STARTING, 2);
}

/* A new server with what the last one has stored. */
static inline void restart(void)
{
    static struct rdzv_part part;
    struct rdzv_record record = keep_record(1);
    const int64_t at_ms = wall_ms;

    part = record.parts[0];
    record.parts = &part;
    begin_leased(4, 3, LEASE_US);
    wall_ms = at_ms;
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORE, .record = &record});
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 2});
    step_hello(2, (struct msg_node_hello){.name = "b", .instance = 2, .slots = 1});
}

#endif
