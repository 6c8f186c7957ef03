/* What workers say about their progress, and the budget of restarts that a new checkpoint renews. */
#include "rendezvous/core/restart.h"
#include "tests/lib/test.h"
#include "tests/unit/rendezvous/core_tools.h"

static void report(enum shim_phase phase, uint32_t generation, int32_t exit_code)
{
    step_rank_report(1, (struct rank_report){.job_id = 1,
                                             .phase = phase,
                                             .generation = generation,
                                             .exit_code = exit_code,
                                             .cause = ""});
}

static void run(uint32_t generation)
{
    report(SHIM_READY, generation, 0);
    report(SHIM_RUNNING, generation, 0);
    CHECK_EQ(rdzv_job_record(core, 1)->state, JOB_RUNNING);
}

static void say(uint32_t generation, uint64_t checkpoint_step)
{
    struct msg msg = {.type = MSG_TYPE_PROGRESS,
                      .progress = {.job_id = 1,
                                   .generation = generation,
                                   .step = checkpoint_step,
                                   .checkpoint_step = checkpoint_step}};

    step_node(1, &msg);
}

/* A program that fails repeatedly, and each time reports a checkpoint that it cannot have. */
TEST(a_forged_step_does_not_renew_the_budget)
{
    begin_with(4, 1);
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 1});
    step_hello(1, (struct msg_node_hello){.name = "a", .instance = 1, .slots = 1});
    CHECK_EQ(step_submit((struct msg_submit){.nodes = 1, .nproc_per_node = 1, .max_restarts = 2}),
             1);
    for (uint32_t generation = 1; generation <= 3; generation++) {
        run(generation);
        now_us += SECOND_US;
        say(generation, generation * 1000000ull);
        CHECK_EQ(rdzv_job_record(core, 1)->checkpoint_step, 0);
        CHECK_EQ(rdzv_job_record(core, 1)->restarts_without_progress, generation - 1);
        report(SHIM_ENDED, generation, 1);
        if (generation == 3)
            break;
        now_us += 3 * SECOND_US; /* the back-off */
        step_beat(1, NULL, 0);
        step((struct rdzv_event){.type = RDZV_EVENT_TICK});
    }
    CHECK_EQ(rdzv_job_record(core, 1)->state, JOB_FAILED);
}

/* The progress of a generation stays until the next one reports some; the summary says which
 * generation it is from. */
TEST(progress_is_that_of_the_generation_that_told_it)
{
    struct part_job part;

    begin_with(4, 1);
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 1});
    step_hello(1, (struct msg_node_hello){.name = "a", .instance = 1, .slots = 1});
    CHECK_EQ(step_submit((struct msg_submit){.nodes = 1, .nproc_per_node = 1, .max_restarts = 2}),
             1);
    run(1);
    rdzv_job_part(core, 1, &part);
    CHECK_EQ(part.progress_generation, 0);
    say(1, 7);
    report(SHIM_ENDED, 1, 1);
    run(2);
    rdzv_job_part(core, 1, &part);
    CHECK(part.generation == 2 && part.step == 7 && part.progress_generation == 1);
    say(1, 9); /* the node was lost and is back: what it still runs tells nothing of this one */
    rdzv_job_part(core, 1, &part);
    CHECK(part.step == 7 && part.progress_generation == 1 && part.checkpoint_step == 7);
    say(2, 8);
    rdzv_job_part(core, 1, &part);
    CHECK(part.step == 8 && part.progress_generation == 2);
}

/* A job may also resume from a checkpoint that this server does not know. */
TEST(what_time_allows_is_believed)
{
    begin_with(4, 1);
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 1});
    step_hello(1, (struct msg_node_hello){.name = "a", .instance = 1, .slots = 1});
    CHECK_EQ(step_submit((struct msg_submit){.nodes = 1, .nproc_per_node = 1, .max_restarts = 2}),
             1);
    run(1);
    report(SHIM_ENDED, 1, 1);
    run(2);
    now_us += 9 * SECOND_US;
    say(2, 100001);
    CHECK_EQ(rdzv_job_record(core, 1)->checkpoint_step, 0);
    CHECK_EQ(rdzv_job_record(core, 1)->restarts_without_progress, 1);
    now_us += SECOND_US;
    say(2, 100001);
    CHECK_EQ(rdzv_job_record(core, 1)->checkpoint_step, 100001);
    CHECK_EQ(rdzv_job_record(core, 1)->restarts_without_progress, 0);
    say(2, 100002);
    CHECK_EQ(rdzv_job_record(core, 1)->checkpoint_step, 100002);
    say(2, 99999);
    CHECK_EQ(rdzv_job_record(core, 1)->checkpoint_step, 100002);
}

TEST(the_rule)
{
    CHECK(restart_believes(0, 0, 0) && restart_believes(7, 3, 0));
    CHECK(restart_believes(0, 10000, 0) && !restart_believes(0, 10001, 0));
    CHECK(restart_believes(500, 20500, SECOND_US) && !restart_believes(500, 20501, SECOND_US));
    CHECK(!restart_believes(0, JOB_ID_MAX, 86400 * SECOND_US));
    CHECK(restart_believes(0, JOB_ID_MAX, UINT64_MAX)); /* nothing overflows */
}

TEST_MAIN
