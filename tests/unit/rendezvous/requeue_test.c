/* A job whose time limit is over goes back into the queue, if it has a newer checkpoint (--requeue-at-limit). */
#include "tests/unit/rendezvous/core_tools.h"

#include "tests/lib/test.h"

#define LIMIT_US (60 * SECOND_US)

static const struct rdzv_record *record_of(uint64_t id)
{
    return rdzv_job_record(core, id);
}

static uint64_t submit(bool requeues, uint64_t time_limit_us)
{
    return step_submit((struct msg_submit){.nodes = 1,
                                           .nproc_per_node = 1,
                                           .max_restarts = 3,
                                           .grace_us = 10 * SECOND_US,
                                           .time_limit_us = time_limit_us,
                                           .requeue_at_limit = requeues});
}

/* One slot. */
static void begin(void)
{
    begin_with(8, 2);
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 1});
    step_hello(1, (struct msg_node_hello){.name = "a", .instance = 1, .slots = 1});
}

static void report(uint64_t id, enum shim_phase phase, bool is_stopped)
{
    step_rank_report(1, (struct rank_report){.job_id = id,
                                             .phase = phase,
                                             .generation = record_of(id)->generation,
                                             .is_stopped = is_stopped});
}

static void run(uint64_t id)
{
    CHECK_EQ(record_of(id)->state, JOB_STARTING);
    report(id, SHIM_READY, false);
    report(id, SHIM_RUNNING, false);
    CHECK_EQ(record_of(id)->state, JOB_RUNNING);
}

/* Lets `time_us` pass with beats of the node, so that it does not count as lost. */
static void pass(uint64_t id, uint64_t time_us)
{
    struct part_beat_shim shim = {.job_id = id, .phase = SHIM_RUNNING, .slot_mask = 1};

    for (uint64_t at_us = 0; at_us < time_us; at_us += SECOND_US) {
        now_us += SECOND_US;
        wall_ms += 1000;
        shim.generation = record_of(id)->generation;
        step_beat(1, &shim, 1);
    }
}

/* The job's limit is over, and the job writes its checkpoint on the signal. */
static void stop(uint64_t id, uint64_t checkpoint_step)
{
    struct msg msg = {.type = MSG_TYPE_PROGRESS,
                      .progress = {.job_id = id,
                                   .generation = record_of(id)->generation,
                                   .step = checkpoint_step,
                                   .checkpoint_step = checkpoint_step}};

    CHECK_EQ(count_of(RDZV_SEND_STOP), 1);
    CHECK_EQ(record_of(id)->state, JOB_RUNNING);
    if (checkpoint_step > 0)
        step_node(1, &msg);
    report(id, SHIM_ENDED, true);
}

static void reach_limit(uint64_t id, uint64_t checkpoint_step)
{
    pass(id, LIMIT_US);
    stop(id, checkpoint_step);
}

TEST(a_job_goes_on_after_its_limit_as_long_as_it_makes_progress)
{
    uint64_t id;

    begin();
    id = submit(true, LIMIT_US);
    for (uint32_t generation = 1; generation <= 3; generation++) {
        run(id);
        CHECK_EQ(record_of(id)->generation, generation);
        reach_limit(id, 10 * generation);
        CHECK_EQ(record_of(id)->limited_step, 10 * generation);
    }
    CHECK_EQ(record_of(id)->restarts_without_progress, 0);
    CHECK_EQ(record_of(id)->node_failures, 0);
    run(id);
    CHECK_EQ(record_of(id)->resumed_step, 30);
    reach_limit(id, 30);
    CHECK_EQ(record_of(id)->state, JOB_FAILED);
    CHECK_EQ(record_of(id)->exit_code, 124);
    CHECK_STR(record_of(id)->reason,
              "the time limit of 60 s is over, and no checkpoint is newer than when it was over "
              "before (step 30): not queued again");
}

TEST(without_a_checkpoint_it_ends)
{
    uint64_t id;

    begin();
    id = submit(true, LIMIT_US);
    run(id);
    reach_limit(id, 0);
    CHECK_EQ(record_of(id)->state, JOB_FAILED);
    CHECK_EQ(record_of(id)->exit_code, 124);
    CHECK_STR(record_of(id)->reason,
              "the time limit of 60 s is over without a checkpoint: not queued again");
}

TEST(without_the_option_it_ends)
{
    uint64_t id;

    begin();
    id = submit(false, LIMIT_US);
    run(id);
    reach_limit(id, 10);
    CHECK_EQ(record_of(id)->state, JOB_FAILED);
    CHECK_STR(record_of(id)->reason, "the time limit of 60 s is over");
}

TEST(one_that_ends_by_itself_meanwhile_has_succeeded)
{
    uint64_t id;

    begin();
    id = submit(true, LIMIT_US);
    run(id);
    pass(id, LIMIT_US);
    report(id, SHIM_ENDED, false);
    CHECK_EQ(record_of(id)->state, JOB_SUCCEEDED);
}

TEST(others_that_wait_have_their_turn_before_it)
{
    uint64_t id, other;

    begin();
    id = submit(true, LIMIT_US);
    run(id);
    pass(id, SECOND_US);
    other = submit(false, 0);
    CHECK_EQ(record_of(other)->state, JOB_QUEUED);
    pass(id, LIMIT_US - SECOND_US);
    stop(id, 7);
    CHECK_EQ(record_of(id)->state, JOB_QUEUED);
    CHECK_EQ(record_of(id)->part_count, 0);
    CHECK_STR(record_of(id)->reason,
              "wants 1 slot on one node; 0 have them free, the best other has 0");
    run(other);
    report(other, SHIM_ENDED, false);
    run(id);
    CHECK_EQ(record_of(id)->generation, 2);
    CHECK_EQ(record_of(id)->resumed_step, 7);
}

TEST(a_cancel_while_it_waits_or_stops_ends_it)
{
    struct msg msg = {.type = MSG_TYPE_CANCEL,
                      .cancel = {.job = "1", .signal = 15, .grace_us = -1}};
    uint64_t id;

    begin();
    id = submit(true, LIMIT_US);
    run(id);
    pass(id, LIMIT_US);
    step((struct rdzv_event){.type = RDZV_EVENT_CANCEL, .client = 9, .job_id = id, .msg = &msg});
    report(id, SHIM_ENDED, true);
    CHECK_EQ(record_of(id)->state, JOB_CANCELLED);
}

TEST(a_restarted_server_goes_on_with_it)
{
    struct rdzv_record record;
    uint64_t id;

    begin();
    id = submit(true, LIMIT_US);
    run(id);
    (void)submit(false, 0);
    reach_limit(id, 7);
    CHECK_EQ(record_of(id)->state, JOB_QUEUED);
    record = keep_record(id);
    begin_with(8, 2);
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORE, .record = &record});
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 3});
    step_hello(1, (struct msg_node_hello){.name = "a", .instance = 1, .slots = 1});
    now_us += 20 * SECOND_US; /* it has waited for its nodes */
    step_beat(1, NULL, 0);
    run(id);
    CHECK_EQ(record_of(id)->generation, 2);
    CHECK_EQ(record_of(id)->restarts_without_progress, 0);
    reach_limit(id, 7); /* it still knows that this is not new */
    CHECK_EQ(record_of(id)->state, JOB_FAILED);
}

TEST(it_needs_a_limit)
{
    begin();
    CHECK_EQ(submit(true, 0), 0);
    CHECK_STR(find(RDZV_REPLY_ERROR)->text, "--requeue-at-limit needs a limit: add --time 8h");
}

TEST_MAIN
