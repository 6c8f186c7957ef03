/* What `ddpctl why` says of ranks that wait for a store which nobody serves: golden/why-dials*.ok. */
#include <string.h>

#include "ddpctl/why.h"
#include "tests/lib/test.h"
#include "tests/unit/ddpctl/golden_tools.h"

static struct part_job job = {.job_id = 40,
                              .name = "vit",
                              .user = "ada",
                              .state = JOB_RUNNING,
                              .generation = 3,
                              .nodes = 2,
                              .nproc_per_node = 4,
                              .where = "gpu02,gpu03",
                              .straggler = "",
                              .reason = ""};
static struct why_client clients[8];

static void check_text(const struct why *why, const char *name)
{
    const struct output_style style = {.now_ms = 1795224000123};
    struct buf out = {0};

    why_text(why, &style, &out);
    check_golden(name, &out);
}

TEST(the_answer_of_a_node)
{
    static const char dials[] =
        "{\"schema\":\"ddp.stack.v1\",\"dial_pid\":1012,\"dial_to\":\"10.0.0.9:1\"}";
    struct arena arena = {0};
    struct why_stack stack;
    struct err err;

    CHECK_EQ(why_stack_parse(dials, sizeof dials - 1, 0, &arena, &stack, &err), STATUS_OK);
    CHECK_EQ(stack.dial_pid, 1012);
    CHECK_STR(stack.dial_to, "10.0.0.9:1");
    arena_reset(&arena);
}

TEST(when_ranks_are_asked)
{
    struct msg_why_info info = {
        .jobs = {.items = &job, .count = 1}, .ran_us = WHY_DIAL_US, .avoided = ""};
    struct why why = {.info = &info, .store = {.address = "10.0.0.2:4123", .clients = clients}};

    CHECK(why_may_dial(&why));
    info.ran_us = WHY_DIAL_US - 1;
    CHECK(!why_may_dial(&why)); /* it is just starting */
    info.ran_us = WHY_DIAL_US;
    job.step = 1;
    CHECK(!why_may_dial(&why));
    job.step = 0;
    why.store.client_count = 8;
    CHECK(!why_may_dial(&why)); /* all ranks are in the job's store */
    why.store.client_count = 7;
    CHECK(why_may_dial(&why));
}

TEST(what_is_said)
{
    const struct msg_why_info info = {
        .jobs = {.items = &job, .count = 1}, .ran_us = 12000000, .avoided = ""};
    struct why why = {.info = &info,
                      .store = {.address = "10.0.0.2:4123"},
                      .dials = {{.rank = 0, .pid = 1012, .to = ""},
                                {.rank = 1, .pid = 1013, .to = ""},
                                {.rank = 5, .pid = 1005, .to = "10.0.0.2:4123"}},
                      .dial_count = 3};

    check_text(&why, "why-dials");
    why.store.address = ""; /* the job has no store */
    why.dials[0].to = "10.0.0.9:29500";
    why.dial_count = 1;
    check_text(&why, "why-dials-alone");
}

TEST_MAIN
